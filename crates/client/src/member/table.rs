//! The leases of one subscription.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use promethean_model::{EventId, TopicName};
use tokio::time::Instant;

use crate::effects::LockEffects;
use crate::event::RawDelivery;
use crate::frames::decode::{LeaseContext, OkFields};

/// The most events that are remembered because their handler is done and their ack may be lost.
const FINISHED_MAX: usize = 10_000;
/// A finished event is remembered for this many lease times. A later delivery is a replay: a user moved the group
/// or redrove a dead letter.
const FINISHED_LEASES: u32 = 3;

/// An event of a subscription. Topics of one pattern can have events with the same id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LeaseKey {
    pub(crate) id: EventId,
    pub(crate) topic: TopicName,
}

/// The place of a lease in its table. A place that is used again has another generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowId {
    at: u32,
    generation: u32,
}

/// A lease that is handed to a handler or a loop.
#[derive(Debug)]
pub(crate) struct TakenLease {
    pub(crate) event: RawDelivery,
    pub(crate) row: RowId,
    pub(crate) attempt: u32,
}

/// One lease that is not settled.
#[derive(Debug)]
pub(crate) struct LeaseRow {
    pub(crate) key: LeaseKey,
    /// When the lease arrived.
    pub(crate) since: Instant,
    /// When the lease ends, unless it is extended.
    pub(crate) until: Instant,
    /// How long it lasted when it arrived.
    pub(crate) lasts: Duration,
    /// Whether this member still has the event, as far as the client knows.
    pub(crate) is_held: bool,
    is_taken: bool,
    /// Whether an extension is sent and not answered.
    is_extending: bool,
    pub(crate) lost_waker: Option<Waker>,
}

#[derive(Debug)]
struct RowPlace {
    generation: u32,
    row: Option<LeaseRow>,
}

/// What became of a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// A new lease, which waits to be taken.
    Fresh,
    /// An event that is still worked on under a lost lease goes on under the new one.
    Renewed,
    /// The event is done and needs only an ack.
    Finished(LeaseKey),
    /// The server acks: the event is delivered without a lease.
    Unleased,
}

/// How deliveries are taken over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseRules {
    /// Whether the client acks.
    pub(crate) is_manual: bool,
    /// Whether leases are extended.
    pub(crate) is_extended: bool,
}

/// The leases that are not settled, and those of them that wait to be taken.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    places: Vec<RowPlace>,
    free: Vec<u32>,
    by_id: HashMap<EventId, RowId>,
    /// Leases that are not taken, the oldest first.
    pub(crate) queue: VecDeque<TakenLease>,
    /// How many leases are taken and not settled.
    pub(crate) taken: usize,
    /// Events whose handler is done and whose ack may be lost, with the time from which they are remembered.
    finished: HashMap<LeaseKey, Instant>,
    finished_order: VecDeque<LeaseKey>,
}

/// The leases that an answer says are over.
pub(crate) enum StaleLeases<'a> {
    None,
    /// The leases of these events.
    Ids(&'a [EventId]),
    /// The only lease of the frame.
    All,
    /// Some lease of the frame; it is unknown which.
    Unknown,
}

impl<'a> StaleLeases<'a> {
    /// Reads the answer to a frame with `count` events.
    pub(crate) fn new(fields: &'a OkFields, count: usize) -> Self {
        match (fields.stale, &fields.stale_ids) {
            (Some(true), Some(ids)) if !ids.is_empty() => Self::Ids(ids),
            (Some(true), _) if count == 1 => Self::All,
            (Some(true), _) => Self::Unknown,
            _ => Self::None,
        }
    }

    /// Whether the lease of this event may be over.
    pub(crate) fn contains(&self, id: &EventId) -> bool {
        match self {
            Self::None => false,
            Self::Ids(ids) => ids.contains(id),
            Self::All | Self::Unknown => true,
        }
    }
}

impl LeaseTable {
    /// How many leases are not settled.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes a delivery over.
    pub(crate) fn accept(
        &mut self,
        event: RawDelivery,
        context: LeaseContext,
        rules: LeaseRules,
        now: Instant,
        effects: &mut LockEffects,
    ) -> Accepted {
        let LeaseContext { attempt, ack_deadline_ms } = context;
        let lasts = Duration::from_millis(ack_deadline_ms);
        let known = self.by_id.get(&event.id).copied();
        let earlier = known.filter(|row| self.row(*row).is_some_and(|row| row.key.topic == event.topic));
        if let Some(earlier) = earlier {
            if rules.is_extended {
                if let Some(row) = self.row_mut(earlier) {
                    (row.is_held, row.is_extending, row.until) = (true, false, now + lasts);
                }
                return Accepted::Renewed;
            }
            self.lose_row(earlier, effects);
            self.remove(earlier);
            self.queue.retain(|lease| lease.row != earlier);
        }
        let key = LeaseKey { id: event.id, topic: event.topic.clone() };
        if !self.finished.is_empty()
            && let Some(since) = self.finished.remove(&key)
        {
            self.finished_order.retain(|other| *other != key);
            if now < since + lasts * FINISHED_LEASES {
                return Accepted::Finished(key);
            }
        }
        if !rules.is_manual {
            self.queue.push_back(TakenLease { event, row: RowId { at: u32::MAX, generation: 0 }, attempt });
            return Accepted::Unleased;
        }
        let id = event.id;
        let row = self.insert(LeaseRow {
            key,
            since: now,
            until: now + lasts,
            lasts,
            is_held: true,
            is_taken: false,
            is_extending: false,
            lost_waker: None,
        });
        // An event of another topic with the same id keeps its entry.
        if known.is_none() || earlier.is_some() {
            self.by_id.insert(id, row);
        }
        self.queue.push_back(TakenLease { event, row, attempt });
        Accepted::Fresh
    }

    /// Takes the oldest lease that waits and is not over.
    pub(crate) fn take(&mut self) -> Option<TakenLease> {
        while let Some(lease) = self.queue.pop_front() {
            match self.row_mut(lease.row) {
                Some(row) if !row.is_held => drop(self.remove(lease.row)),
                Some(row) => {
                    row.is_taken = true;
                    self.taken += 1;
                    return Some(lease);
                }
                // The server acks, so there is no lease.
                None => return Some(lease),
            }
        }
        None
    }

    pub(crate) fn row(&self, id: RowId) -> Option<&LeaseRow> {
        let place = self.places.get(id.at as usize).filter(|place| place.generation == id.generation);
        place.and_then(|place| place.row.as_ref())
    }

    pub(crate) fn row_mut(&mut self, id: RowId) -> Option<&mut LeaseRow> {
        let place = self.places.get_mut(id.at as usize).filter(|place| place.generation == id.generation);
        place.and_then(|place| place.row.as_mut())
    }

    /// Takes a lease out of the table.
    pub(crate) fn remove(&mut self, id: RowId) -> Option<LeaseRow> {
        let place = self.places.get_mut(id.at as usize).filter(|place| place.generation == id.generation)?;
        let row = place.row.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.at);
        self.taken -= usize::from(row.is_taken);
        if self.by_id.get(&row.key.id) == Some(&id) {
            self.by_id.remove(&row.key.id);
        }
        Some(row)
    }

    fn insert(&mut self, row: LeaseRow) -> RowId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(RowPlace { generation: 0, row: None });
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let Some(place) = self.places.get_mut(at as usize) else { return RowId { at, generation: 0 } };
        place.row = Some(row);
        RowId { at, generation: place.generation }
    }

    /// The lease is over, and this member did not end it.
    pub(crate) fn lose_row(&mut self, id: RowId, effects: &mut LockEffects) {
        if let Some(row) = self.row_mut(id) {
            row.is_held = false;
            effects.wake(row.lost_waker.take());
        }
    }

    /// The server has taken all leases back. Leases that are taken are kept, for when their events come again.
    pub(crate) fn lose_all(&mut self, effects: &mut LockEffects) {
        while let Some(lease) = self.queue.pop_front() {
            self.remove(lease.row);
        }
        for row in self.places.iter_mut().filter_map(|place| place.row.as_mut()) {
            (row.is_held, row.is_extending) = (false, false);
            effects.wake(row.lost_waker.take());
        }
    }

    /// An extension of this lease is sent. Returns the event, if the lease is there.
    pub(crate) fn extending(&mut self, id: RowId) -> Option<EventId> {
        let row = self.row_mut(id)?;
        row.is_extending = true;
        Some(row.key.id)
    }

    /// The server has extended these leases until this time, except those that are over.
    pub(crate) fn extended(
        &mut self,
        rows: &[RowId],
        until: Instant,
        lost: &StaleLeases<'_>,
        effects: &mut LockEffects,
    ) {
        self.not_extended(rows);
        for id in rows {
            let Some(row) = self.row_mut(*id) else { continue };
            match lost {
                // The next look extends again, and then the server names the lease.
                StaleLeases::Unknown => {}
                lost if lost.contains(&row.key.id) => self.lose_row(*id, effects),
                _ => row.until = until,
            }
        }
    }

    /// The extension of these leases was answered.
    pub(crate) fn not_extended(&mut self, rows: &[RowId]) {
        for id in rows {
            if let Some(row) = self.row_mut(*id) {
                row.is_extending = false;
            }
        }
    }

    /// Remembers that the handler of an event is done, so that the event is only acked when it comes again.
    pub(crate) fn remember(&mut self, key: LeaseKey, now: Instant) {
        if self.finished.insert(key.clone(), now).is_none() {
            self.finished_order.push_back(key);
        }
        if self.finished.len() > FINISHED_MAX
            && let Some(oldest) = self.finished_order.pop_front()
        {
            self.finished.remove(&oldest);
        }
    }

    /// Events come again from now on: the memory of finished events counts from here, however long there was no
    /// connection.
    pub(crate) fn connected(&mut self, now: Instant) {
        self.finished.values_mut().for_each(|since| *since = now);
    }

    /// Forgets which events are finished: the user wants them again.
    pub(crate) fn forget_finished(&mut self) {
        self.finished.clear();
        self.finished_order.clear();
    }

    /// The leases that would not last until some time after the next look.
    pub(crate) fn due(&self, now: Instant, lease_max: Duration) -> Vec<RowId> {
        let is_due = |row: &LeaseRow| {
            row.is_held
                && !row.is_extending
                && row.until.saturating_duration_since(now) < row.lasts * 2 / 3
                && now.saturating_duration_since(row.since) < lease_max
        };
        let places = self.places.iter().enumerate();
        places
            .filter(|(_, place)| place.row.as_ref().is_some_and(is_due))
            .map(|(at, place)| RowId { at: at as u32, generation: place.generation })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::value::RawValue;

    use super::*;
    use crate::frames::decode::EventFields;

    const MANUAL: LeaseRules = LeaseRules { is_manual: true, is_extended: true };

    fn event(n: u8, topic: &str) -> RawDelivery {
        let frame = Bytes::from_static(b"1");
        let payload: &RawValue = serde_json::from_slice(&frame).unwrap();
        let fields = EventFields {
            id: EventId::from_bytes([n; 16]),
            ts: 0,
            topic: topic.into(),
            offset: 0,
            key: None,
            partition: None,
            headers: None,
            payload,
            tags: None,
            caused_by: None,
            sid: None,
        };
        RawDelivery::new(fields, topic.parse().unwrap(), &frame)
    }

    struct Fixture(LeaseTable, Instant);

    impl Fixture {
        fn accept(&mut self, n: u8, topic: &str, rules: LeaseRules) -> Accepted {
            let context = LeaseContext { attempt: 1, ack_deadline_ms: 3_000 };
            self.0.accept(event(n, topic), context, rules, self.1, &mut LockEffects::default())
        }
    }

    #[tokio::test]
    async fn an_event_that_comes_again_goes_on_under_its_new_lease() {
        let mut f = Fixture(LeaseTable::default(), Instant::now());
        assert_eq!(f.accept(1, "t", MANUAL), Accepted::Fresh);
        let lease = f.0.take().unwrap();
        f.0.lose_all(&mut LockEffects::default());
        assert!(!f.0.row(lease.row).unwrap().is_held);
        assert_eq!(f.accept(1, "t", MANUAL), Accepted::Renewed);
        assert!(f.0.row(lease.row).unwrap().is_held && f.0.queue.is_empty());
        let row = f.0.remove(lease.row).unwrap();
        assert_eq!((f.0.len(), f.0.taken), (0, 0));
        assert!(f.0.remove(lease.row).is_none(), "a lease is settled once");
        f.0.remember(row.key.clone(), f.1);
        assert_eq!(f.accept(1, "t", MANUAL), Accepted::Finished(row.key));
        assert_eq!(f.accept(1, "t", MANUAL), Accepted::Fresh, "it is remembered for one delivery");
    }

    #[tokio::test]
    async fn an_id_of_two_topics_is_two_events() {
        let mut f = Fixture(LeaseTable::default(), Instant::now());
        assert_eq!((f.accept(1, "a", MANUAL), f.accept(1, "b", MANUAL)), (Accepted::Fresh, Accepted::Fresh));
        let (a, b) = (f.0.take().unwrap(), f.0.take().unwrap());
        f.0.remove(b.row).unwrap();
        assert_eq!(f.accept(1, "a", MANUAL), Accepted::Renewed);
        f.0.remove(a.row).unwrap();
        assert_eq!((f.0.len(), f.0.by_id.len()), (0, 0));
    }

    #[tokio::test]
    async fn without_extension_a_new_lease_ends_the_old_one() {
        let rules = LeaseRules { is_manual: true, is_extended: false };
        let mut f = Fixture(LeaseTable::default(), Instant::now());
        f.accept(1, "t", rules);
        let old = f.0.take().unwrap();
        assert_eq!(f.accept(1, "t", rules), Accepted::Fresh);
        assert!(f.0.row(old.row).is_none());
        assert_eq!((f.0.len(), f.0.taken), (1, 0));
    }

    #[tokio::test]
    async fn leases_are_due_for_their_last_two_thirds_and_not_for_ever() {
        let mut f = Fixture(LeaseTable::default(), Instant::now());
        f.accept(1, "t", MANUAL);
        let (ms, hour) = (Duration::from_millis, Duration::from_secs(3_600));
        assert_eq!(f.0.due(f.1 + ms(900), hour).len(), 0);
        assert_eq!(f.0.due(f.1 + ms(1_100), hour).len(), 1);
        assert_eq!(f.0.due(f.1 + ms(1_100), ms(1_000)).len(), 0);
    }

    #[tokio::test]
    async fn a_lease_that_is_over_before_it_is_taken_is_not_handed_out() {
        let mut f = Fixture(LeaseTable::default(), Instant::now());
        f.accept(1, "t", MANUAL);
        f.accept(2, "t", MANUAL);
        let first = f.0.queue[0].row;
        f.0.lose_row(first, &mut LockEffects::default());
        assert_eq!(f.0.take().unwrap().event.id, EventId::from_bytes([2; 16]));
        assert!(f.0.take().is_none());
        assert_eq!((f.0.len(), f.0.taken), (1, 1));
    }

    #[tokio::test]
    async fn remembered_events_are_bounded() {
        let mut table = LeaseTable::default();
        for n in 0..(FINISHED_MAX as u128 + 10) {
            let id = EventId::from_bytes(n.to_be_bytes());
            table.remember(LeaseKey { id, topic: "t".parse().unwrap() }, Instant::now());
        }
        assert_eq!((table.finished.len(), table.finished_order.len()), (FINISHED_MAX, FINISHED_MAX));
    }
}
