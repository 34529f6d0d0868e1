//! The rules for all that members see.

use std::collections::{BTreeMap, BTreeSet};

use promethean_bus::Lease;
use promethean_bus::dead_letters::Letter;
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
        if let (true, Some(key)) = (rules.by_key, lease.event.key()) {
            let (group, topic, offset) = at;
            let met = self.keys.entry((group.clone(), topic.clone(), key.to_owned())).or_default();
            let waiting =
                |earlier: &&u64| !self.maybe_done.contains(&(group.clone(), topic.clone(), **earlier));
            let unfinished = met.range(..offset).find(waiting);
            assert_eq!(unfinished, None, "{at:?} overtakes an earlier event of key {key}");
            met.insert(*offset);
        }
    }

    /// Notes an ack before it is sent.
    pub(super) fn acking(&mut self, at: &Place) {
        self.maybe_done.insert(at.clone());
    }

    /// Notes the answer to an ack. `stale`: `None` without an answer.
    pub(super) fn ack_answered(&mut self, at: &Place, stale: Option<bool>) {
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

    pub(super) fn gone(&mut self, member: u64) {
        self.live.retain(|_, live| live.member != member);
    }

    pub(super) fn all_gone(&mut self) {
        self.live.clear();
    }

    /// Checks the end of a run, when every event is finished: no event was skipped, and each letter exists once.
    pub(super) fn close(&self, group: &str, events: &[StoredEvent], letters: &[StoredEvent], open: usize) {
        let Some(topic) = events.first().map(|event| event.topic.to_string()) else { return };
        let mut dead = BTreeSet::new();
        for letter in letters {
            let letter: Letter = serde_json::from_slice(letter.payload()).unwrap();
            if letter.group.as_str() == group {
                let offset = letter.event.offset.get();
                assert!(dead.insert(offset), "{group} {topic} {offset} has two letters");
            }
        }
        assert_eq!(open, dead.len(), "{group} {topic}: open letters");
        for event in events {
            let at = (group.to_owned(), topic.clone(), event.offset.get());
            let is_dead = dead.contains(&at.2);
            assert!(
                is_dead || self.acked.contains(&at) || self.unclear.contains(&at),
                "{at:?} was finished without a member having done so"
            );
            assert!(!(is_dead && self.acked.contains(&at)), "{at:?} is acked and dead");
        }
    }
}
