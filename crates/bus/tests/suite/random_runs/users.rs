//! What users and operators do to groups and topics in a run: seek, redrive, drop, pause, delete and retain.

use std::collections::BTreeSet;
use std::time::Duration;

use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_bus::publish::Publish;
use promethean_bus::rows::StartPosition;
use promethean_bus::{BusError, Lease, SubscriptionItem};
use promethean_delivery::Subject;
use promethean_model::{Clock as _, GroupName, Millis, Offset, Retention, TopicName, TopicSettings};
use promethean_store::port::PageLimit;
use promethean_testkit::ledger::{Invocation, payload_hash};
use promethean_testkit::{Fault, StoreCall};

use super::Run;
use super::actions::TOPICS;
use super::members::{GROUPS, rules};
use crate::suite::bus::harness::{request, soon};

/// The topic with large events, of which retention keeps the last ones.
pub(super) const RETAINED: &str = "r.4";
/// The topic of which compaction keeps the latest event of each key.
pub(super) const COMPACTED: &str = "r.3";
const KEPT: u64 = 12;
/// The age from which on retention removes events of a topic on disk.
const AGE: Millis = Millis::from_secs(600);
/// So long that the process has missed beats of its pulse.
const STANDSTILL: Duration = Duration::from_millis(1_000);

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
        self.doing = "seek";
        let (topic, by) = self.some_place();
        let to = self.rng.range(0..self.ground.store.durable_end(&topic).get() + 1);
        let sought = self.bus.seek(&topic, &by, StartPosition::Offset(Offset(to)), false).await;
        match sought {
            Ok(report) => {
                self.covered.count("seeks", 1);
                self.judge.sought(&topic, &by, report.to.get(), true);
            }
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
        self.doing = "redrive";
        let (topic, by) = self.some_place();
        let before = self.letters(&topic, &by).await;
        if !self.ground.armed && self.rng.chance(30) {
            return self.redrive_to_topic(&topic, &by, &before).await;
        }
        let redriven = self.bus.redrive(&topic, &by, LetterChoice::All, RedriveTo::Group).await;
        let open: Vec<u64> = before.iter().filter(|(_, redriving)| !redriving).map(|(at, _)| *at).collect();
        match redriven {
            Ok(report) => {
                self.judge.redriven(&topic, &by, &open);
                let (redriven, gone) = (report.redriven, report.gone);
                self.covered.count("events redriven to the group", redriven);
                assert_eq!(redriven + gone, open.len() as u64, "{topic} {by}: {report:?} of {before:?}");
            }
            Err(error) if is_nothing(&error) => {}
            Err(error) => {
                self.judge.redriven(&topic, &by, &open);
                self.trouble(&error);
            }
        }
    }

    /// Publishes the events of all open letters again. No power cut comes meanwhile, so it is certain which copies exist.
    async fn redrive_to_topic(&mut self, topic: &TopicName, by: &GroupName, before: &[(u64, bool)]) {
        let end = self.ground.store.durable_end(topic);
        let report = match self.bus.redrive(topic, by, LetterChoice::All, RedriveTo::Topic).await {
            Ok(report) => report,
            Err(error) => {
                assert!(is_nothing(&error), "{error}");
                return;
            }
        };
        self.covered.count("events redriven to the topic", report.redriven);
        let copies: Vec<_> = self.events_from(topic, end).await;
        assert_eq!(copies.len() as u64, report.redriven, "{topic} {by}: {report:?} of {before:?}");
        for copy in copies {
            self.published += 1;
            let op = self.ledger.record_invoked(Invocation {
                producer: format!("copy{}", self.published),
                topic: topic.to_string(),
                id: copy.id.to_string(),
                key: copy.key().map(str::to_owned),
                payload: payload_hash(copy.payload()),
                batch: None,
            });
            self.ledger.record_ok(op, copy.offset.get());
        }
        let left: Vec<u64> = self.letters(topic, by).await.iter().map(|(at, _)| *at).collect();
        for (offset, redriving) in before {
            if !redriving && !left.contains(offset) {
                self.judge.dropped(topic, by, *offset);
            }
        }
        let open = before.iter().filter(|(_, redriving)| !redriving).count() as u64;
        assert_eq!(report.redriven + report.gone, open, "{topic} {by}: {report:?} of {before:?}");
    }

    pub(super) async fn drop_letters(&mut self) {
        self.doing = "drop_letters";
        let (topic, by) = self.some_place();
        let before = self.letters(&topic, &by).await;
        let dropped = self.bus.drop_letters(&topic, &by, LetterChoice::All).await;
        for (offset, _) in before.iter().filter(|(_, redriving)| !redriving) {
            self.judge.dropped(&topic, &by, *offset);
        }
        match dropped {
            Ok(report) => {
                self.covered.count(
                    "letters dropped",
                    before.iter().filter(|(_, redriving)| !redriving).count() as u64,
                );
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
        self.doing = "pause";
        let (subject, by) = self.some_group();
        let done = if self.rng.chance(40) {
            let paused = self.bus.pause_group(&subject, &by).await;
            self.covered.count("groups paused", u64::from(paused.is_ok()));
            paused
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
        self.doing = "delete_group";
        let (subject, by) = self.some_group();
        let used = self.members.iter().any(|it| GROUPS[it.group].1 == by.as_str() && !it.left_behind);
        match self.bus.delete_group(&subject, &by).await {
            Ok(()) => {
                assert!(!used, "{by} was deleted under its members");
                self.covered.count("groups deleted", 1);
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
        self.doing = "retain";
        let compacted = self.rng.chance(50);
        // A store in memory has no times but those of the wall clock.
        let age = (!compacted && self.ground.has_disk()).then_some(AGE);
        let retention = Retention { count: (!compacted).then_some(KEPT), age, bytes: None };
        let dedupe_window = Millis::from_hours(1);
        let settings = TopicSettings { retention, compacted, dedupe_window, ..TopicSettings::default() };
        let topic = if compacted { COMPACTED } else { RETAINED };
        if let Err(error) = self.bus.set_topic(&topic.parse().unwrap(), settings).await {
            return self.trouble(&error);
        }
        self.ages |= age.is_some();
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
                let removed: Vec<u64> = removed.collect();
                for offset in removed {
                    self.judge.removed(&topic, offset);
                    if topic.as_str() == COMPACTED {
                        self.covered.count("events removed by compaction", 1);
                    } else {
                        self.covered.count("events removed by retention", 1);
                        self.check_age(offset, end);
                    }
                }
                from = page.next;
            }
        }
    }

    /// Fails if age alone can have removed an event, and the event was too young. Ages grow at most ten times as fast as time,
    /// however the clock jumps. A store that is opened after a jump takes the clock as it is.
    fn check_age(&mut self, offset: u64, end: Offset) {
        let by_count = offset + KEPT < end.get();
        if let Some(born) = self.born.remove(&offset)
            && !by_count
            && !self.reopened
        {
            let lived = self.ground.clock.monotonic_ms() - born;
            assert!(lived * 10 >= AGE.get(), "offset {offset} was removed after {lived} ms");
        }
    }

    /// Deletes a topic while a member acks its events. Publishing creates it again.
    pub(super) async fn delete_topic(&mut self) {
        self.doing = "delete_topic";
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
            Ok(()) => {
                self.covered.count("topics deleted", 1);
                assert!(self.bus.topic(&topic).await.is_err(), "a deleted topic is there");
            }
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
        self.doing = "refuse";
        self.refusing = true;
        let (fault, what) = [
            (Fault::Fail, "writes refused: failed"),
            (Fault::Full, "writes refused: full"),
            (Fault::Busy, "writes refused: busy"),
        ][self.rng.range(0..3) as usize];
        self.covered.count(what, 1);
        self.ground.faults.rule(move |call| match call {
            StoreCall::Commit(_) | StoreCall::Append => fault,
            _ => Fault::None,
        });
        self.work_in_trouble().await;
        self.ground.faults.heal();
        soon("the store works again", self.recover()).await;
        self.refusing = false;
    }

    /// No file can be opened for a while: a new journal file, a segment that is not open. Afterwards all work goes on
    /// without a restart.
    pub(super) async fn starve(&mut self) {
        self.doing = "starve";
        if !self.ground.has_disk() || self.ground.armed {
            return;
        }
        self.refusing = true;
        self.ground.lack_descriptors(true);
        self.covered.count("lacks of descriptors", 1);
        self.work_in_trouble().await;
        self.ground.maintain().await;
        self.ground.lack_descriptors(false);
        soon("files can be opened again", self.recover()).await;
        self.refusing = false;
        assert!(!self.broken, "a lack of descriptors stopped the store");
        self.publish().await;
        assert!(!self.broken, "the store is stopped after a lack of descriptors");
    }

    async fn work_in_trouble(&mut self) {
        self.publish().await;
        self.ack_unanswered().await;
        self.pass_time();
        tokio::task::yield_now().await;
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
        self.doing = "lose";
        let Some(index) = self.pick() else { return };
        // Events that wait for the member have not reached it.
        if let Some(Ok(SubscriptionItem::Over(_))) = self.members[index].subscription.try_take(0) {
            return;
        }
        let member = self.members.swap_remove(index);
        // A power cut may come before the failures are durable.
        let counts = !self.ground.armed && !member.left_behind;
        let mut held = Vec::new();
        for lease in &member.held {
            // A rebalance may have taken the lease away, which is no failure.
            if counts && !rules(member.group).steady && !self.still_holds(lease).await {
                continue;
            }
            held.push((member.place(lease), lease.attempt));
        }
        member.subscription.lost();
        if counts {
            // An owner that was asked twice has written everything.
            for _ in 0..2 {
                self.bus.groups(None).await.unwrap();
            }
            held.iter().for_each(|(at, attempt)| self.judge.lost(at, member.no, *attempt));
            self.covered.count("failures of lost members", held.len() as u64);
        }
        self.judge.gone(member.no);
    }
}

impl Run {
    /// The process stands still while members hold leases, for longer than a lease lasts. Acks that members sent meanwhile are
    /// taken, because no lease expires before they are read. The runtime has one thread, so its pulse stands still too.
    #[expect(clippy::disallowed_methods, reason = "the pulse measures real time")]
    pub(super) async fn stand_still(&mut self) {
        self.doing = "stand_still";
        let mut held = Vec::new();
        for index in 0..self.members.len() {
            if self.members[index].left_behind || !rules(self.members[index].group).steady {
                continue;
            }
            for lease in std::mem::take(&mut self.members[index].held) {
                if self.still_holds(&lease).await {
                    held.push((self.members[index].place(&lease), lease));
                }
            }
        }
        self.ground.clock.advance(60_000);
        std::thread::sleep(STANDSTILL);
        self.bus.wake();
        for (at, lease) in held {
            self.judge.acking(&at);
            let stale = lease.ack().await.unwrap().stale > 0;
            assert!(!stale, "{at:?} expired while the process stood still");
            self.judge.ack_answered(&at, Some(stale));
            self.covered.count("acks after the process stood still", 1);
        }
    }

    /// Whether the lease is held, once all earlier changes of the group are made.
    async fn still_holds(&self, lease: &Lease) -> bool {
        for _ in 0..2 {
            self.bus.groups(None).await.unwrap();
        }
        lease.extend(None).await.is_ok_and(|settled| settled.stale == 0)
    }
}

/// Whether the group or the topic does not exist, so that nothing was done.
fn is_nothing(error: &BusError) -> bool {
    matches!(error.code(), "unknown_group" | "unknown_topic" | "not_found")
}
