//! The handles through which the bus counts.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, RwLock};

use promethean_model::{GroupName, IgnorePoison, TopicName};
use promethean_store::port::Store;
use tokio::time::Instant;

use super::catalogue::{GroupSeries, RejectSeries, ServerSeries, StoreSeries, TopicSeries};
use super::registry::{MetricTable, Registry};
use crate::error::BusError;

/// How many codes of refusals get a series of their own.
const CODES_MAX: usize = 100;

/// The metrics of the bus.
#[derive(Debug)]
pub struct BusMetrics {
    registry: Registry,
    topics: Arc<MetricTable<TopicSeries>>,
    /// A cache of the series of topics; at most `series_max` of them.
    known: RwLock<HashMap<TopicName, Arc<TopicSeries>>>,
    series_max: usize,
    groups: Arc<MetricTable<GroupSeries>>,
    rejects: Arc<MetricTable<RejectSeries>>,
    server: Arc<ServerSeries>,
    /// Has a series once the store has told figures.
    store: Arc<MetricTable<StoreSeries>>,
}

/// The counts of one holder of a group on a topic: its owner, or a subscription. Counters change the series
/// directly. Each gauge is the sum of the shares of all holders, and a holder's share is subtracted when it
/// is dropped. So gauges are right even where several groups are counted as `other`.
#[derive(Debug)]
pub struct GroupMetrics {
    series: Arc<GroupSeries>,
    shares: Shares,
}

impl BusMetrics {
    /// How many topics, and how many groups, get a series of their own by default.
    pub const SERIES_MAX_DEFAULT: usize = 1_000;

    /// Adds the families of the bus to a registry. `series_max` bounds topics and groups each.
    pub fn new(registry: &Registry, series_max: usize) -> Self {
        let topics = registry.table(series_max);
        let groups = registry.table(series_max);
        let rejects = registry.table(CODES_MAX);
        let server = registry.table(1).series(&[]);
        let store = registry.table(1);
        let known = RwLock::default();
        Self { registry: registry.clone(), topics, known, series_max, groups, rejects, server, store }
    }

    /// The counts of a topic.
    pub fn topic(&self, topic: &TopicName) -> Arc<TopicSeries> {
        if let Some(series) = self.known.read().ignore_poison().get(topic) {
            return Arc::clone(series);
        }
        let mut known = self.known.write().ignore_poison();
        // Under the lock: else a topic that is deleted meanwhile would stay in the cache.
        let series = self.topics.series(&[topic.as_str()]);
        if known.len() < self.series_max {
            known.insert(topic.clone(), Arc::clone(&series));
        }
        series
    }

    /// A new holder of a group's counts on a topic. The caller looks it up once and keeps it.
    pub fn group(&self, topic: &TopicName, group: &GroupName) -> GroupMetrics {
        let series = self.groups.series(&[topic.as_str(), group.as_str()]);
        GroupMetrics { series, shares: Shares::default() }
    }

    /// The counts of the server.
    pub fn server(&self) -> &ServerSeries {
        &self.server
    }

    /// Counts a commit that was handed to the store at `began` and is answered now.
    pub(crate) fn committed(&self, began: Instant) {
        self.server.commit_us.observe(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }

    /// Takes over the figures of the store, which counts by itself.
    pub fn measure_store(&self, store: &dyn Store) {
        let Some(figures) = store.figures() else { return };
        let series = self.store.series(&[]);
        series.sync_ms.set(&figures.syncs, figures.syncs_ms);
        if let Some(bytes) = figures.free_bytes {
            series.disk_free_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// Counts a refusal. Takes a lock; refusals are rare.
    pub fn rejected(&self, error: &BusError) {
        self.rejects.series(&[error.code()]).rejected.inc();
    }

    /// Removes a deleted group from the metrics page.
    pub fn forget_group(&self, topic: &TopicName, group: &GroupName) {
        self.groups.remove(&[topic.as_str(), group.as_str()]);
    }

    /// Removes a deleted topic and its groups from the metrics page.
    pub fn forget_topic(&self, topic: &TopicName) {
        let mut known = self.known.write().ignore_poison();
        known.remove(topic);
        self.topics.remove(&[topic.as_str()]);
        drop(known);
        self.groups.retain(|labels| labels.first().is_none_or(|label| label != topic.as_str()));
    }

    /// The registry, to which other crates add families of their own.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The metrics page with everything in the registry.
    pub fn render(&self) -> String {
        self.registry.render()
    }
}

macro_rules! shares {
    ($($(#[$doc:meta])* $gauge:ident: $set:ident, $add:ident;)*) => {
        /// The share of one holder in each gauge of its series.
        #[derive(Debug, Default)]
        struct Shares {
            $($gauge: AtomicI64,)*
        }

        impl GroupMetrics {
            $(
                $(#[$doc])*
                pub fn $set(&self, value: i64) {
                    let share = &self.shares.$gauge;
                    // Mostly the value is unchanged, and a needless write would slow down other processors
                    // that use the same cache line.
                    if share.load(Ordering::Relaxed) != value {
                        self.series.$gauge.add(value - share.swap(value, Ordering::Relaxed));
                    }
                }

                /// Adds `change` to the same share.
                pub fn $add(&self, change: i64) {
                    self.shares.$gauge.fetch_add(change, Ordering::Relaxed);
                    self.series.$gauge.add(change);
                }
            )*
        }

        impl Drop for GroupMetrics {
            fn drop(&mut self) {
                $(self.series.$gauge.add(-self.shares.$gauge.load(Ordering::Relaxed));)*
            }
        }
    };
}

shares! {
    /// Sets how many events this holder has leased to members.
    inflight: set_inflight, add_inflight;
    /// Sets how many events this holder has leased to sockets.
    ws_inflight: set_ws_inflight, add_ws_inflight;
    /// Sets how many events are not finished.
    lag: set_lag, add_lag;
    /// Sets how many dead letters are open.
    dead_letters: set_dead_letters, add_dead_letters;
    /// Sets how many members there are.
    members: set_members, add_members;
    /// Sets how many keys are blocked.
    blocked_keys: set_blocked_keys, add_blocked_keys;
}

impl Deref for GroupMetrics {
    type Target = GroupSeries;

    fn deref(&self) -> &GroupSeries {
        &self.series
    }
}
