//! What users and operators do to groups and topics in a run: seek, redrive, drop, pause, delete and retain.

use std::collections::BTreeSet;

use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_bus::publish::Publish;
use promethean_bus::rows::StartPosition;
use promethean_bus::{BusError, SubscriptionItem};
use promethean_delivery::Subject;
use promethean_model::{GroupName, Millis, Offset, Retention, TopicName, TopicSettings};
use promethean_store::port::PageLimit;
use promethean_testkit::{Fault, StoreCall};

use super::Run;
use super::actions::TOPICS;
use super::members::GROUPS;
use crate::suite::bus::harness::{request, soon};

/// The topic with large events, of which retention keeps the last ones.
pub(super) const RETAINED: &str = "r.4";
/// The topic of which compaction keeps the latest event of each key.
pub(super) const COMPACTED: &str = "r.3";
const KEPT: u64 = 12;

impl Run {
    fn some_group(&mut self) -> (Subject, GroupName) {
        let (subject, by) = GROUPS[self.rng.range(0..GROUPS.len() as u64) as usize];
        (subject.parse().unwrap(), by.parse().unwrap())
    }

    /// A group, and a topic that it may have.
    fn some_place(&mut self) -> (TopicName, GroupName) {
        let (subject, by) = self.some_group();
        let topic = match subject {
            Subject::Topic(topic) => topic,
            Subject::Pattern(_) => format!("r.{}", self.rng.range(0..TOPICS)).parse().unwrap(),
        };
        (topic, by)
    }

    pub(super) async fn seek(&mut self) {
        let (topic, by) = self.some_place();
        let to = self.rng.range(0..self.ground.store.durable_end(&topic).get() + 1);
        let sought = self.bus.seek(&topic, &by, StartPosition::Offset(Offset(to)), false).await;
        match sought {
            Ok(report) => self.judge.sought(&topic, &by, report.to.get(), true),
            Err(error) if is_nothing(&error) => {}
            Err(error) => {
                self.judge.sought(&topic, &by, to, false);
                self.trouble(&error);
            }
        }
    }

    /// The open letters of a group on a topic, and whether each is being redriven.
    pub(super) async fn letters(&mut self, topic: &TopicName, by: &GroupName) -> Vec<(u64, bool)> {
        match self.bus.dead_letters(topic, by, None, 1000).await {
            Ok(page) => page.letters.iter().map(|it| (it.offset.get(), it.row.redriving)).collect(),
            Err(error) if is_nothing(&error) => Vec::new(),
            Err(error) => {
                self.trouble(&error);
                Vec::new()
            }
        }
    }

    pub(super) async fn redrive(&mut self) {
        let (topic, by) = self.some_place();
        let before = self.letters(&topic, &by).await;
        let redriven = self.bus.redrive(&topic, &by, LetterChoice::All, RedriveTo::Group).await;
        let open: Vec<u64> = before.iter().filter(|(_, redriving)| !redriving).map(|(at, _)| *at).collect();
        match redriven {
            Ok(report) => {
                self.judge.redriven(&topic, &by, &open);
                let (redriven, gone) = (report.redriven, report.gone);
                assert_eq!(redriven + gone, open.len() as u64, "{topic} {by}: {report:?} of {before:?}");
            }
            Err(error) if is_nothing(&error) => {}
            Err(error) => {
                self.judge.redriven(&topic, &by, &open);
                self.trouble(&error);
            }
        }
    }

    pub(super) async fn drop_letters(&mut self) {
        let (topic, by) = self.some_place();
        let before = self.letters(&topic, &by).await;
        let dropped = self.bus.drop_letters(&topic, &by, LetterChoice::All).await;
        for (offset, _) in before.iter().filter(|(_, redriving)| !redriving) {
            self.judge.dropped(&topic, &by, *offset);
        }
        match dropped {
            Ok(report) => {
                let left: Vec<_> = self.letters(&topic, &by).await;
                assert!(
                    left.iter().all(|(_, redriving)| *redriving),
                    "{topic} {by}: {report:?}, left {left:?}"
                );
            }
            Err(error) if is_nothing(&error) => {}
            Err(error) => self.trouble(&error),
        }
    }

    pub(super) async fn pause(&mut self) {
        let (subject, by) = self.some_group();
        let done = if self.rng.chance(40) {
            self.bus.pause_group(&subject, &by).await
        } else {
            self.bus.resume_group(&subject, &by).await
        };
        if let Err(error) = done
            && !is_nothing(&error)
        {
            self.trouble(&error);
        }
    }

    pub(super) async fn resume_all(&mut self) {
        for (subject, by) in GROUPS {
            if let Err(error) = self.bus.resume_group(&subject.parse().unwrap(), &by.parse().unwrap()).await {
                assert!(is_nothing(&error), "{error}");
            }
        }
    }

    /// Deletes a group without members; a group with members refuses.
    pub(super) async fn delete_group(&mut self) {
        let (subject, by) = self.some_group();
        let used = self.members.iter().any(|it| GROUPS[it.group].1 == by.as_str() && !it.left_behind);
        match self.bus.delete_group(&subject, &by).await {
            Ok(()) => {
                assert!(!used, "{by} was deleted under its members");
                self.judge.deleted(&by, true);
            }
            Err(error) if error.code() == "group_busy" || is_nothing(&error) => {}
            Err(error) => {
                self.judge.deleted(&by, false);
                self.trouble(&error);
            }
        }
    }

    /// Removes old events of one topic, and all but the latest event of each key of another.
    pub(super) async fn retain(&mut self) {
        let compacted = self.rng.chance(50);
        let retention = Retention { count: (!compacted).then_some(KEPT), age: None, bytes: None };
        let dedupe_window = Millis::from_hours(1);
        let settings = TopicSettings { retention, compacted, dedupe_window, ..TopicSettings::default() };
        let topic = if compacted { COMPACTED } else { RETAINED };
        if let Err(error) = self.bus.set_topic(&topic.parse().unwrap(), settings).await {
            return self.trouble(&error);
        }
        self.ground.maintain().await;
        self.look_at_removed().await;
    }

    /// Tells the judge which events were removed so far.
    pub(super) async fn look_at_removed(&mut self) {
        for topic in [RETAINED, COMPACTED] {
            let topic: TopicName = topic.parse().unwrap();
            let (end, mut from) = (self.ground.store.durable_end(&topic), Offset::ZERO);
            while from < end {
                // A store without power cannot be read.
                let Ok(page) = self.ground.store.read(&topic, from, PageLimit::default()).await else {
                    break;
                };
                let kept: BTreeSet<u64> = page.events.iter().map(|event| event.offset.get()).collect();
                let removed = (from.get()..page.next.get()).filter(|offset| !kept.contains(offset));
                removed.for_each(|offset| self.judge.removed(&topic, offset));
                from = page.next;
            }
        }
    }

    /// Deletes a topic while a member acks its events. Publishing creates it again.
    pub(super) async fn delete_topic(&mut self) {
        let topic: TopicName = "d.0".parse().unwrap();
        let events = (0..3).map(|n| Publish::new(topic.clone(), n.to_string())).collect();
        for published in self.bus.publish_each(events).await {
            if let Err(error) = published {
                return self.topic_trouble(&error);
            }
        }
        let subscription = match self.bus.subscribe(request("d.0", "doomed")).await {
            Ok(subscription) => subscription,
            Err(error) => return self.topic_trouble(&error),
        };
        let leases = match subscription.try_take(2) {
            Some(Ok(SubscriptionItem::Leases(leases))) => leases,
            _ => Vec::new(),
        };
        let (acked, deleted) = tokio::join!(subscription.ack_soon(&leases), self.bus.delete_topic(&topic));
        if let Err(error) = acked {
            self.topic_trouble(&error);
        }
        match deleted {
            Ok(()) => assert!(self.bus.topic(&topic).await.is_err(), "a deleted topic is there"),
            Err(error) => self.topic_trouble(&error),
        }
    }

    /// A deletion that was interrupted may not be finished yet.
    fn topic_trouble(&mut self, error: &BusError) {
        if !is_nothing(error) && error.code() != "topic_deleted" {
            self.trouble(error);
        }
    }

    /// The store refuses every write for a while, as a full disk or a lack of descriptors makes it do.
    pub(super) async fn refuse(&mut self) {
        self.refusing = true;
        self.ground.faults.rule(|call| match call {
            StoreCall::Commit(_) | StoreCall::Append => Fault::Fail,
            _ => Fault::None,
        });
        self.publish().await;
        self.ack_unanswered().await;
        self.pass_time();
        tokio::task::yield_now().await;
        self.ground.faults.heal();
        soon("the store works again", self.recover()).await;
        self.refusing = false;
    }

    /// Waits until every owner has written what was refused.
    async fn recover(&mut self) {
        let mut clean = 0;
        // An owner may hear of a refusal only after it was asked.
        while clean < 3 {
            self.ground.clock.advance(1_000);
            self.bus.wake();
            self.left_behind.iter().for_each(promethean_bus::Bus::wake);
            let groups = match self.bus.groups(None).await {
                Ok(groups) => groups,
                Err(error) => return self.trouble(&error),
            };
            let works = groups.iter().all(|group| group.topics.iter().all(|topic| topic.failure.is_none()));
            clean = if works { clean + 1 } else { 0 };
            if !works && self.ground.armed {
                // The power is gone, so the store never works again without a restart.
                self.broken = true;
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Sends acks of some held leases without waiting for an answer.
    async fn ack_unanswered(&mut self) {
        let Some((index, leases)) = self.some_held() else { return };
        let member = &self.members[index];
        let places: Vec<_> = leases.iter().map(|lease| member.place(lease)).collect();
        let sent = member.subscription.ack_soon(&leases).await;
        for at in &places {
            self.judge.acking(at);
            self.judge.ack_answered(at, None);
            self.judge.nack_answered(at, 0, None);
        }
        if let Err(error) = sent {
            self.trouble(&error);
        }
    }

    /// Loses a member: its written deliveries count as failed.
    pub(super) async fn lose(&mut self) {
        let Some(index) = self.pick() else { return };
        // Events that wait for the member are written to nobody.
        if let Some(Ok(SubscriptionItem::Over(_))) = self.members[index].subscription.try_take(0) {
            return;
        }
        let member = self.members.swap_remove(index);
        let held: Vec<_> = member.held.iter().map(|lease| (member.place(lease), lease.attempt)).collect();
        member.subscription.lost();
        // A power cut may come before the failures are durable. Partitions are given back without a failure.
        let counts =
            !self.ground.has_disk() && !member.left_behind && super::members::rules(member.group).steady;
        if counts {
            // An owner that was asked twice has written everything.
            for _ in 0..2 {
                self.bus.groups(None).await.unwrap();
            }
            held.iter().for_each(|(at, attempt)| self.judge.lost(at, member.no, *attempt));
        }
        self.judge.gone(member.no);
    }
}

/// Whether the group or the topic does not exist, so that nothing was done.
fn is_nothing(error: &BusError) -> bool {
    matches!(error.code(), "unknown_group" | "unknown_topic" | "not_found")
}
