//! What the bus holds to count in.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, RwLock};

use promethean_model::{GroupName, IgnorePoison, TopicName};

use super::catalogue::{GroupSeries, RejectSeries, ServerSeries, TopicSeries};
use super::registry::{Registry, Table};
use super::value::Gauge;
use crate::error::BusError;

/// Codes of refusals that get a series of their own.
const CODES_MAX: usize = 100;

/// The metrics of the bus.
#[derive(Debug)]
pub struct BusMetrics {
    registry: Registry,
    topics: Arc<Table<TopicSeries>>,
    /// The series of topics that were asked for, as many as get one of their own.
    known: RwLock<HashMap<TopicName, Arc<TopicSeries>>>,
    series_max: usize,
    groups: Arc<Table<GroupSeries>>,
    rejects: Arc<Table<RejectSeries>>,
    server: Arc<ServerSeries>,
}

/// Counts for one holder of a group on a topic: its owner, or a subscription. Counters go straight to the series.
/// Gauges are shares: what is shown is the sum over all holders, and a holder's share goes when it is dropped. So
/// gauges are right also where several groups are counted as `other`.
#[derive(Debug)]
pub struct GroupMetrics {
    series: Arc<GroupSeries>,
    shares: [AtomicI64; SHARES],
}

const SHARES: usize = 6;

impl BusMetrics {
    /// Topics, and groups, that get a series of their own where nothing is configured.
    pub const SERIES_MAX_DEFAULT: usize = 1_000;

    /// Adds the families of the bus to a registry. `series_max` bounds topics and groups each.
    pub fn new(registry: &Registry, series_max: usize) -> Self {
        let topics = registry.table(series_max);
        let groups = registry.table(series_max);
        let rejects = registry.table(CODES_MAX);
        let server = registry.table(1).series(&[]);
        let known = RwLock::default();
        Self { registry: registry.clone(), topics, known, series_max, groups, rejects, server }
    }

    /// The counts of a topic.
    pub fn topic(&self, topic: &TopicName) -> Arc<TopicSeries> {
        if let Some(series) = self.known.read().ignore_poison().get(topic) {
            return Arc::clone(series);
        }
        let mut known = self.known.write().ignore_poison();
        // Under the lock, or a topic that is forgotten meanwhile would stay known.
        let series = self.topics.series(&[topic.as_str()]);
        if known.len() < self.series_max {
            known.insert(topic.clone(), Arc::clone(&series));
        }
        series
    }

    /// A new holder of a group's counts on a topic. To be looked up once and kept.
    pub fn group(&self, topic: &TopicName, group: &GroupName) -> GroupMetrics {
        let series = self.groups.series(&[topic.as_str(), group.as_str()]);
        GroupMetrics { series, shares: Default::default() }
    }

    /// The counts of the server.
    pub fn server(&self) -> &ServerSeries {
        &self.server
    }

    /// Counts a refusal. Takes a lock; refusals are rare.
    pub fn rejected(&self, error: &BusError) {
        self.rejects.series(&[error.code()]).rejected.inc();
    }

    /// Shows a deleted group no longer.
    pub fn forget_group(&self, topic: &TopicName, group: &GroupName) {
        self.groups.remove(&[topic.as_str(), group.as_str()]);
    }

    /// Shows a deleted topic and its groups no longer.
    pub fn forget_topic(&self, topic: &TopicName) {
        let mut known = self.known.write().ignore_poison();
        known.remove(topic);
        self.topics.remove(&[topic.as_str()]);
        drop(known);
        self.groups.retain(|labels| labels.first().is_none_or(|label| label != topic.as_str()));
    }

    /// Where other crates add families of their own.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The page of everything in the registry.
    pub fn render(&self) -> String {
        self.registry.render()
    }
}

macro_rules! shares {
    ($($(#[$doc:meta])* $set:ident, $add:ident => $index:literal, $gauge:ident;)*) => {
        impl GroupMetrics {
            $(
                $(#[$doc])*
                pub fn $set(&self, value: i64) {
                    self.put::<$index>(&self.series.$gauge, value);
                }

                /// The same, up or down by so much.
                pub fn $add(&self, change: i64) {
                    self.change::<$index>(&self.series.$gauge, change);
                }
            )*

            fn gauges(&self) -> [&Gauge; SHARES] {
                [$(&self.series.$gauge),*]
            }
        }
    };
}

shares! {
    /// This holder's events leased to members.
    set_inflight, add_inflight => 0, inflight;
    /// This holder's events leased to sockets.
    set_ws_inflight, add_ws_inflight => 1, ws_inflight;
    /// Events not finished.
    set_lag, add_lag => 2, lag;
    /// Open dead letters.
    set_dead_letters, add_dead_letters => 3, dead_letters;
    /// Members.
    set_members, add_members => 4, members;
    /// Blocked keys.
    set_blocked_keys, add_blocked_keys => 5, blocked_keys;
}

impl GroupMetrics {
    fn put<const N: usize>(&self, gauge: &Gauge, value: i64) {
        const { assert!(N < SHARES) };
        if let Some(share) = self.shares.get(N) {
            // Mostly it is what it was.
            if share.load(Ordering::Relaxed) != value {
                gauge.add(value - share.swap(value, Ordering::Relaxed));
            }
        }
    }

    fn change<const N: usize>(&self, gauge: &Gauge, change: i64) {
        const { assert!(N < SHARES) };
        if let Some(share) = self.shares.get(N) {
            share.fetch_add(change, Ordering::Relaxed);
            gauge.add(change);
        }
    }
}

impl Deref for GroupMetrics {
    type Target = GroupSeries;

    fn deref(&self) -> &GroupSeries {
        &self.series
    }
}

impl Drop for GroupMetrics {
    fn drop(&mut self) {
        for (share, gauge) in self.shares.iter().zip(self.gauges()) {
            gauge.add(-share.load(Ordering::Relaxed));
        }
    }
}
