//! Random work on a log whose machine may lose power at any disk operation.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use promethean_log::{AppendError, Log, LogBatch, ReadLimit, TopicPolicy};
use promethean_model::Durability;
use promethean_testkit::fault_state::encode_puts;
use promethean_testkit::ledger::{Invocation, OpId, payload_hash};
use promethean_testkit::{Ledger, ObservedEvent, ObservedTopic, ObservedTopics, SeededRng};

use super::world::*;

const TOPICS: [&str; 5] = ["a", "b.c", "big", "short", COMPACTED];
/// A topic that keeps the latest event of each key, with small segments, so that it is compacted all the
/// time.
pub(super) const COMPACTED: &str = "table";
/// A topic that keeps few events, so that retention drops segments all the time.
const SHORT_COUNT: u64 = 12;

/// One event as its publisher knows it.
#[derive(Debug, Clone)]
struct Sent {
    topic: &'static str,
    number: u64,
    key: Option<String>,
    payload: String,
    offset: Option<u64>,
}

/// A world, the work done in it, and the answers its users got.
pub(super) struct Simulation {
    pub(super) world: World,
    ledger: Ledger,
    rng: SeededRng,
    next: u64,
    sent: Vec<Sent>,
    /// Batches with redo: key in the state, index of one of its events, whether it was acknowledged.
    redone: Vec<(String, usize, bool)>,
    /// The events that readers have seen: they must stay.
    shown: BTreeMap<(String, u64), ObservedEvent>,
    /// The most holes that a check found, which shows that compaction worked.
    pub(super) holes: u64,
}

impl Simulation {
    pub(super) fn new(seed: u64) -> Simulation {
        Simulation {
            world: World::new(),
            ledger: Ledger::new(),
            rng: SeededRng::new(seed),
            next: 0,
            sent: Vec::new(),
            redone: Vec::new(),
            shown: BTreeMap::new(),
            holes: 0,
        }
    }

    /// Sets the policies, which the log does not persist.
    pub(super) fn set_policies(&self, log: &Log) {
        if let Some(topic) = log.topic(&name("short")) {
            log.set_policy(&topic, TopicPolicy { count: Some(SHORT_COUNT), ..TopicPolicy::default() });
        }
        if let Some(topic) = log.topic(&name(COMPACTED)) {
            log.set_policy(
                &topic,
                TopicPolicy { compacted: true, tombstone_ms: 5000, ..TopicPolicy::default() },
            );
        }
    }

    /// Does random steps until all are done or the log stops.
    pub(super) fn work(&mut self, log: &Log, steps: usize) {
        for _ in 0..steps {
            if self.step(log) || log.health().poisoned.is_some() {
                return;
            }
        }
    }

    /// Does one random step. Returns whether it failed.
    pub(super) fn step(&mut self, log: &Log) -> bool {
        self.set_policies(log);
        let failed = match self.rng.range(0..100) {
            0..70 => self.publish(log),
            70..80 => self.repeat(log),
            80..86 => log.checkpoint().is_err(),
            86..92 => log.maintain().is_err(),
            92..96 => {
                self.world.clock.advance(self.rng.range(0..5000));
                false
            }
            _ => {
                let _ = log.sync();
                false
            }
        };
        if self.rng.chance(20) {
            self.look(log);
        }
        failed
    }

    fn look(&mut self, log: &Log) {
        for (topic, seen) in observe(log).unwrap_or_default() {
            self.shown.extend(seen.events.into_iter().map(|event| ((topic.clone(), event.offset), event)));
        }
    }

    fn publish(&mut self, log: &Log) -> bool {
        let mut batch = LogBatch::new();
        let count = self.rng.range(1..5);
        let first = self.sent.len();
        let batch_name = format!("batch-{}", self.next);
        let durability = if self.rng.chance(15) { Durability::Os } else { Durability::Fsync };
        let mut ops = Vec::new();
        for _ in 0..count {
            let sent = self.draw_event();
            let Ok(topic) = log.topic_or_create(&name(sent.topic)) else { return true };
            batch.push(&topic, event(sent.number, sent.key.as_deref(), &sent.payload)).unwrap();
            ops.push(self.ledger.record_invoked(invocation(&sent, Some(&batch_name))));
            self.sent.push(sent);
        }
        let with_redo = self.rng.chance(40);
        if with_redo {
            batch.redo(&encode_puts(&[(batch_name.as_bytes(), b"done")]));
        }
        let result = log.append(batch, durability);
        let ok = result.is_ok();
        if with_redo {
            self.redone.push((batch_name, first, ok));
        }
        match result {
            // Acknowledged as `os`: a power cut may lose it.
            Ok(_) if durability == Durability::Os && !with_redo => self.close_ops(&ops, None, first),
            Ok(receipt) => {
                let offsets: Vec<u64> = receipt.events.iter().map(|placed| placed.offset).collect();
                self.close_ops(&ops, Some(&offsets), first);
            }
            Err(error) => self.refuse_ops(&ops, &error),
        }
        !ok
    }

    fn draw_event(&mut self) -> Sent {
        let topic = TOPICS[self.rng.range(0..TOPICS.len() as u64) as usize];
        let number = self.next;
        self.next += 1;
        let len = match topic {
            "big" => self.rng.range(300..1500),
            COMPACTED => self.rng.range(100..900),
            _ => self.rng.range(2..80),
        };
        let mut payload = String::new();
        write!(payload, "\"{number}-").unwrap();
        while (payload.len() as u64) < len {
            payload.push((b'a' + self.rng.range(0..26) as u8) as char);
        }
        payload.push('"');
        let compacted = topic == COMPACTED;
        if compacted && self.rng.chance(15) {
            "null".clone_into(&mut payload);
        }
        let key = (compacted || self.rng.chance(70)).then(|| format!("key-{}", self.rng.range(0..6)));
        Sent { topic, number, key, payload, offset: None }
    }

    fn close_ops(&mut self, ops: &[OpId], offsets: Option<&[u64]>, first: usize) {
        for (index, op) in ops.iter().enumerate() {
            match offsets {
                Some(offsets) => {
                    self.ledger.record_ok(*op, offsets[index]);
                    self.sent[first + index].offset = Some(offsets[index]);
                }
                None => self.ledger.record_unknown(*op),
            }
        }
    }

    fn refuse_ops(&mut self, ops: &[OpId], error: &AppendError) {
        for op in ops {
            match error {
                AppendError::UnknownOutcome { .. } => self.ledger.record_unknown(*op),
                _ => self.ledger.record_fail(*op),
            }
        }
    }

    /// Publishes an acknowledged event once more: it must be a duplicate at the same offset.
    fn repeat(&mut self, log: &Log) -> bool {
        let Some(sent) = self.pick_acknowledged() else { return false };
        let topic = log.topic(&name(sent.topic)).expect("a topic with acknowledged events");
        let mut batch = LogBatch::new();
        batch.push(&topic, event(sent.number, sent.key.as_deref(), &sent.payload)).unwrap();
        match log.append(batch, Durability::Fsync) {
            Ok(receipt) => {
                let placed = receipt.events[0];
                assert!(placed.duplicate, "{sent:?} was taken for a new event");
                assert_eq!(Some(placed.offset), sent.offset);
                false
            }
            Err(
                AppendError::UnknownOutcome { .. }
                | AppendError::Poisoned { .. }
                | AppendError::StorageFull { .. }
                | AppendError::Busy { .. }
                | AppendError::Lookup { .. },
            ) => true,
            Err(error) => panic!("repeating {sent:?} failed: {error}"),
        }
    }

    fn pick_acknowledged(&mut self) -> Option<Sent> {
        let acknowledged: Vec<&Sent> = self.sent.iter().filter(|sent| sent.offset.is_some()).collect();
        if acknowledged.is_empty() {
            return None;
        }
        let index = self.rng.range(0..acknowledged.len() as u64) as usize;
        Some(acknowledged[index].clone())
    }

    /// Cuts the power; bytes that were not synced may be lost.
    pub(super) fn cut_power(&mut self, seed: u64) {
        self.world.disk = self.world.disk.crash(seed);
        self.world.state = Arc::new(self.world.state.crash(seed ^ 0x5eed));
    }

    /// Kills the process; the machine and its page cache live on.
    pub(super) fn kill(&mut self) {
        self.world.disk = self.world.disk.kill();
        self.world.state = Arc::new(self.world.state.kill());
    }

    /// Checks everything that must hold after a restart. `Err` says what does not hold.
    pub(super) fn check(&mut self, log: &Log) -> Result<(), String> {
        let observed = observe(log)?;
        let checked = self.ledger.check(&observed);
        checked
            .map_err(|violations| format!("{} violations, first: {:?}", violations.len(), violations[0]))?;
        let holes = |seen: &ObservedTopic| {
            let end = seen.events.last().map_or(seen.earliest, |last| last.offset + 1);
            end - seen.earliest - seen.events.len() as u64
        };
        self.holes = self.holes.max(observed.values().map(holes).sum());
        for ((topic, offset), shown) in &self.shown {
            let Some(topic) = observed.get(topic).filter(|seen| *offset >= seen.earliest) else { continue };
            let now = topic.events.iter().find(|event| event.offset == *offset);
            let later = |event: &&ObservedEvent| event.key == shown.key && event.offset > *offset;
            let superseded = topic.events.iter().any(|event| later(&event)) || self.buried(shown);
            if now != Some(shown) && !(topic.compacted && now.is_none() && superseded) {
                return Err(format!("a reader saw {shown:?}, now it is {now:?}"));
            }
        }
        self.check_state(&observed)?;
        self.check_index(log)?;
        let report = log.verify(&mut |_, _| {});
        if !report.is_clean() {
            return Err(format!("verify: {report:?}"));
        }
        Ok(())
    }

    /// Whether a tombstone of the event's key was published.
    fn buried(&self, shown: &ObservedEvent) -> bool {
        self.sent.iter().any(|sent| sent.payload == "null" && sent.key == shown.key)
    }

    /// Checks that redo is applied for exactly the batches whose events are in the log.
    fn check_state(&self, observed: &ObservedTopics) -> Result<(), String> {
        for (key, first, acknowledged) in &self.redone {
            let sent = &self.sent[*first];
            let applied = self.world.state.get(key.as_bytes()).is_some();
            if *acknowledged && !applied {
                return Err(format!("state of the acknowledged {key} is gone"));
            }
            let Some(topic) = observed.get(sent.topic) else {
                if applied {
                    return Err(format!("state of {key} without its topic"));
                }
                continue;
            };
            let id = id(sent.number).to_string();
            let present = topic.events.iter().any(|event| event.id == id);
            let dropped = (topic.earliest > 0 || topic.compacted) && !present;
            if applied != present && !dropped {
                return Err(format!("{key}: state {applied}, events {present}"));
            }
        }
        Ok(())
    }

    fn check_index(&mut self, log: &Log) -> Result<(), String> {
        for topic in log.topics() {
            let earliest = topic.info().earliest;
            let mut latest: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
            let mut next = earliest;
            loop {
                let page = log
                    .read(&topic, next, ReadLimit { events: 50, bytes: 1 << 20 })
                    .map_err(|e| e.to_string())?;
                for view in page.iter() {
                    let found = log.find_id(&topic, view.id).map_err(|error| error.to_string())?;
                    if found.map(|record| record.view().offset) != Some(view.offset) {
                        return Err(format!("{} {} is not found by id", topic.name(), view.offset));
                    }
                    if let Some(key) = view.key {
                        latest.entry(key.to_vec()).or_default().push(view.offset);
                    }
                }
                if page.next == next {
                    break;
                }
                next = page.next;
            }
            for (key, offsets) in latest {
                let history =
                    log.key_history(&topic, &key, 0..u64::MAX, usize::MAX).map_err(|e| e.to_string())?;
                let found: Vec<u64> = history.iter().map(|record| record.view().offset).collect();
                if found != offsets {
                    return Err(format!("{} key history {found:?}, expected {offsets:?}", topic.name()));
                }
                let latest = log.latest_by_key(&topic, &key).map_err(|e| e.to_string())?;
                if latest.map(|record| record.view().offset) != offsets.last().copied() {
                    return Err(format!("{} has another latest of a key than {offsets:?}", topic.name()));
                }
            }
        }
        for _ in 0..3 {
            self.repeat(log);
        }
        Ok(())
    }
}

fn invocation(sent: &Sent, batch: Option<&str>) -> Invocation {
    Invocation {
        producer: "p".to_owned(),
        topic: sent.topic.to_owned(),
        id: id(sent.number).to_string(),
        key: sent.key.clone(),
        payload: payload_hash(sent.payload.as_bytes()),
        batch: batch.map(str::to_owned),
    }
}

/// Reads every topic from its earliest offset.
pub(super) fn observe(log: &Log) -> Result<ObservedTopics, String> {
    let mut observed = ObservedTopics::new();
    for topic in log.topics() {
        let (earliest, compacted) = (topic.info().earliest, topic.name().as_str() == COMPACTED);
        let mut seen = ObservedTopic { earliest, compacted, events: Vec::new() };
        let mut next = seen.earliest;
        loop {
            let page =
                log.read(&topic, next, ReadLimit { events: 20, bytes: 8000 }).map_err(|e| e.to_string())?;
            for view in page.iter() {
                let key = view.key.map(|key| String::from_utf8_lossy(key).into_owned());
                seen.events.push(ObservedEvent::new(
                    view.offset,
                    &view.id.to_string(),
                    key.as_deref(),
                    view.payload,
                ));
            }
            if page.next == next {
                break;
            }
            next = page.next;
        }
        observed.insert(topic.name().to_string(), seen);
    }
    Ok(observed)
}
