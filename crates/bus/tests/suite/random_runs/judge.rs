//! The rules for all that members see.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use promethean_bus::Lease;
use promethean_bus::dead_letters::Letter;
use promethean_model::{GroupName, TopicName};
use promethean_store::port::StoredEvent;

/// Group, topic, offset.
pub(super) type Place = (String, String, u64);

/// A lease that a member believes it holds.
#[derive(Debug, Clone, Copy)]
struct Live {
    member: u64,
    ends_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Judge {
    live: BTreeMap<Place, Live>,
    /// Acks that were answered: these are never undone.
    acked: BTreeSet<Place>,
    /// Acks whose answer never came.
    unclear: BTreeSet<Place>,
    /// Failed attempts whose answer came.
    failed: BTreeMap<Place, u32>,
    /// Events that may be finished, for the order of keys.
    maybe_done: BTreeSet<Place>,
    /// Offsets seen, by group, topic and key.
    keys: BTreeMap<(String, String, String), BTreeSet<u64>>,
    /// Redriven events: they do not keep the order of keys.
    redriven: BTreeSet<Place>,
    /// Events that need not be delivered: a seek went beyond them, or retention removed them.
    excused: BTreeSet<Place>,
    /// Events whose letter a user dropped.
    dropped: BTreeSet<Place>,
    /// Groups, topics and first offsets from which on events may have died more than once.
    again: BTreeMap<(String, String), u64>,
    /// Groups that were deleted. Letters of the dead-letter topic may be of an earlier group of the name.
    reborn: BTreeSet<String>,
}

/// The kind of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) max_attempts: u32,
    pub(super) by_key: bool,
    /// Whether leases end only by an action of the member or by time.
    pub(super) steady: bool,
}

impl Judge {
    pub(super) fn given(
        &mut self,
        at: &Place,
        lease: &Lease,
        rules: Rules,
        now_ms: u64,
        live_for: (u64, u64),
    ) {
        super::trace!("given {at:?} attempt {} to {live_for:?}", lease.attempt);
        let (member, timeout_ms) = live_for;
        assert!(!self.acked.contains(at), "{at:?} was acked and comes again, attempt {}", lease.attempt);
        assert!(lease.attempt <= rules.max_attempts, "{at:?}: attempt {}", lease.attempt);
        let failed = self.failed.get(at).copied().unwrap_or(0);
        assert!(lease.attempt > failed, "{at:?}: attempt {} after {failed} failures", lease.attempt);
        if let Some(live) = self.live.get(at)
            && rules.steady
        {
            assert!(live.ends_ms <= now_ms, "{at:?} is leased to {live:?} and to {member} at {now_ms}");
        }
        self.live.insert(at.clone(), Live { member, ends_ms: now_ms + timeout_ms });
        if lease.attempt == rules.max_attempts {
            self.maybe_done.insert(at.clone());
        }
        self.excused.remove(at);
        if let (true, false, Some(key)) = (rules.by_key, self.redriven.contains(at), lease.event.key()) {
            let (group, topic, offset) = at;
            let met = self.keys.entry((group.clone(), topic.clone(), key.to_owned())).or_default();
            let waiting =
                |earlier: &&u64| !self.maybe_done.contains(&(group.clone(), topic.clone(), **earlier));
            let unfinished = met.range(..offset).find(waiting);
            assert_eq!(unfinished, None, "{at:?} overtakes an earlier event of key {key}");
            met.insert(*offset);
        }
    }

    /// Notes a delivery by a bus that was left behind. It is real as long as the other bus has not taken the group over.
    pub(super) fn given_behind(&mut self, at: &Place, attempt: u32, rules: Rules) {
        super::trace!("given behind {at:?} attempt {attempt}");
        if attempt == rules.max_attempts {
            self.maybe_done.insert(at.clone());
        }
    }

    /// Notes an ack before it is sent.
    pub(super) fn acking(&mut self, at: &Place) {
        self.maybe_done.insert(at.clone());
    }

    /// Notes the answer to an ack. `stale`: `None` without an answer.
    pub(super) fn ack_answered(&mut self, at: &Place, stale: Option<bool>) {
        super::trace!("ack {at:?} stale {stale:?}");
        match stale {
            Some(false) => {
                assert!(self.acked.insert(at.clone()), "{at:?} was acked twice");
                self.live.remove(at);
            }
            Some(true) => {}
            None => _ = self.unclear.insert(at.clone()),
        }
    }

    pub(super) fn nack_answered(&mut self, at: &Place, attempt: u32, stale: Option<bool>) {
        super::trace!("nack {at:?} {attempt} stale {stale:?}");
        if stale == Some(false) {
            self.failed.insert(at.clone(), attempt);
        }
        if stale != Some(true) {
            self.live.remove(at);
        }
    }

    pub(super) fn extended(&mut self, at: &Place, ends_ms: u64) {
        if let Some(live) = self.live.get_mut(at) {
            live.ends_ms = live.ends_ms.max(ends_ms);
        }
    }

    /// Notes that a member was lost that held this lease: the attempt has failed.
    pub(super) fn lost(&mut self, at: &Place, member: u64, attempt: u32) {
        if self.live.get(at).is_some_and(|live| live.member == member) {
            let failed = self.failed.entry(at.clone()).or_default();
            *failed = attempt.max(*failed);
        }
    }

    /// Notes a seek: events from `to` on are delivered again, those below are finished. If it is unknown whether the
    /// seek was carried out, both may be so.
    pub(super) fn sought(&mut self, topic: &TopicName, by: &GroupName, to: u64, certain: bool) {
        super::trace!("sought {topic} {by} to {to} certain {certain}");
        let on = |at: &Place| at.0 == by.as_str() && at.1 == topic.as_str();
        let above = |at: &Place| on(at) && at.2 >= to;
        self.live.retain(|at, _| !on(at));
        self.failed.retain(|at, _| !on(at));
        let acked: Vec<Place> = self.acked.iter().filter(|at| above(at)).cloned().collect();
        self.acked.retain(|at| !above(at));
        if certain {
            self.unclear.retain(|at| !above(at));
            self.dropped.retain(|at| !above(at));
            self.redriven.retain(|at| !above(at));
            self.excused.retain(|at| !above(at));
        } else {
            self.unclear.extend(acked);
        }
        self.excuse(topic, by, 0..to);
        self.forget_order(by, |of, offset| of == topic.as_str() && offset >= to);
        self.again(topic, by, to);
    }

    fn excuse(&mut self, topic: &TopicName, by: &GroupName, offsets: Range<u64>) {
        for offset in offsets {
            let at = (by.to_string(), topic.to_string(), offset);
            self.maybe_done.insert(at.clone());
            self.excused.insert(at);
        }
    }

    fn forget_order(&mut self, by: &GroupName, these: impl Fn(&str, u64) -> bool) {
        self.maybe_done.retain(|at| at.0 != by.as_str() || !these(&at.1, at.2));
        for ((group, topic, _), met) in &mut self.keys {
            if group == by.as_str() {
                met.retain(|offset| !these(topic, *offset));
            }
        }
    }

    pub(super) fn redriven(&mut self, topic: &TopicName, by: &GroupName, offsets: &[u64]) {
        super::trace!("redriven {topic} {by} {offsets:?}");
        for offset in offsets {
            let at = (by.to_string(), topic.to_string(), *offset);
            self.failed.remove(&at);
            // The event was given up, so its last lease is over.
            self.live.remove(&at);
            self.excused.remove(&at);
            self.again(topic, by, *offset);
            self.redriven.insert(at);
        }
    }

    fn again(&mut self, topic: &TopicName, by: &GroupName, from: u64) {
        let again = self.again.entry((by.to_string(), topic.to_string())).or_insert(u64::MAX);
        *again = from.min(*again);
    }

    pub(super) fn dropped(&mut self, topic: &TopicName, by: &GroupName, offset: u64) {
        super::trace!("dropped {topic} {by} {offset}");
        self.again(topic, by, offset);
        self.dropped.insert((by.to_string(), topic.to_string(), offset));
    }

    /// Notes that a group was deleted: a new one of its name begins anew.
    pub(super) fn deleted(&mut self, by: &GroupName, certain: bool) {
        super::trace!("deleted {by} certain {certain}");
        let of = |at: &Place| at.0 == by.as_str();
        self.live.retain(|at, _| !of(at));
        self.failed.retain(|at, _| !of(at));
        let acked: Vec<Place> = self.acked.iter().filter(|at| of(at)).cloned().collect();
        self.acked.retain(|at| !of(at));
        if certain {
            for places in [&mut self.unclear, &mut self.dropped, &mut self.redriven, &mut self.excused] {
                places.retain(|at| !of(at));
            }
        } else {
            self.unclear.extend(acked);
        }
        self.forget_order(by, |_, _| true);
        self.reborn.insert(by.to_string());
    }

    /// Notes that retention or compaction removed an event.
    pub(super) fn removed(&mut self, topic: &TopicName, offset: u64) {
        for (_, by) in super::members::GROUPS {
            self.excuse(topic, &by.parse().unwrap(), offset..offset + 1);
        }
    }

    pub(super) fn gone(&mut self, member: u64) {
        self.live.retain(|_, live| live.member != member);
    }

    pub(super) fn all_gone(&mut self) {
        self.live.clear();
    }

    /// Checks the end of a run, when every event is finished: no event was skipped, and each letter exists once.
    pub(super) fn close(
        &self,
        group: &str,
        events: &[StoredEvent],
        letters: &[StoredEvent],
        open: &[(u64, bool)],
    ) {
        let Some(topic) = events.first().map(|event| event.topic.to_string()) else { return };
        let again = match self.reborn.contains(group) {
            true => 0,
            false => self.again.get(&(group.to_owned(), topic.clone())).copied().unwrap_or(u64::MAX),
        };
        let mut dead = BTreeSet::new();
        for letter in letters {
            let letter: Letter = serde_json::from_slice(letter.payload()).unwrap();
            if letter.group.as_str() == group {
                let offset = letter.event.offset.get();
                assert!(dead.insert(offset) || offset >= again, "{group} {topic} {offset} has two letters");
            }
        }
        for (offset, redriving) in open {
            assert!(dead.contains(offset), "{group} {topic} {offset}: an open letter without an event");
            assert!(!redriving, "{group} {topic} {offset} was redriven and not delivered");
        }
        for event in events {
            let at = (group.to_owned(), topic.clone(), event.offset.get());
            let is_open = open.iter().any(|(offset, _)| *offset == at.2);
            assert!(is_open || at.2 >= again || !dead.contains(&at.2), "{at:?}: its letter is gone");
            let done = self.acked.contains(&at) || self.unclear.contains(&at);
            let given_up = is_open || self.dropped.contains(&at);
            assert!(
                done || given_up || self.excused.contains(&at),
                "{at:?} was finished without a member having done so"
            );
            assert!(!(is_open && self.acked.contains(&at)), "{at:?} is acked and dead");
        }
    }
}
