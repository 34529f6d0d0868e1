//! Writes that the log has accepted and the engine has not applied yet.
//!
//! A batch is checked against the coming state: the state after all batches accepted before it are applied. That is the
//! state of the engine with these writes laid over it. Tickets number batches in the order in which the log accepted
//! them, which is also the order in which they are applied.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::engine::Engine;
use crate::port::CommitError;
use crate::state::{RowSpan, StateFault, StateSpace, View, Visit, Writes, merge_scan};
use promethean_model::IgnorePoison;

/// The accepted writes that are not applied, by ticket and by key.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// Held for single lookups and changes only. The state thread takes this lock, so no code may wait for the log under
    /// it.
    pending: Mutex<Pending>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Pending {
    batches: BTreeMap<u64, Arc<Writes>>,
    /// The ticket of the latest batch that writes a key.
    latest: BTreeMap<StateSpace, BTreeMap<Vec<u8>, u64>>,
    /// Every ticket up to this one is applied or was never used.
    applied: u64,
    /// The failure after which no batch is applied any more.
    failed: Option<String>,
}

impl Overlay {
    /// Adds a batch that the log has accepted. The state thread may have applied the batch before this call.
    pub(super) fn add(&self, ticket: u64, writes: Arc<Writes>) {
        let mut pending = self.lock();
        if ticket <= pending.applied {
            return;
        }
        for (space, key, _) in writes.iter() {
            pending.latest.entry(space).or_default().insert(key.to_vec(), ticket);
        }
        pending.batches.insert(ticket, writes);
    }

    /// Drops the batches up to this ticket: the engine has applied them.
    pub(super) fn applied(&self, ticket: u64) {
        let mut pending = self.lock();
        let applied = pending.applied.max(ticket);
        pending.applied = applied;
        let later = pending.batches.split_off(&(applied + 1));
        let done = std::mem::replace(&mut pending.batches, later);
        for (ticket, writes) in done {
            for (space, key, _) in writes.iter() {
                let Some(latest) = pending.latest.get_mut(&space) else { continue };
                if latest.get(key) == Some(&ticket) {
                    latest.remove(key);
                }
            }
        }
        drop(pending);
        self.moved.notify_all();
    }

    /// Notes a failure after which no batch is applied any more, and logs the first.
    pub(super) fn fail(&self, reason: &str) {
        let is_first = {
            let mut pending = self.lock();
            let is_first = pending.failed.is_none();
            pending.failed.get_or_insert_with(|| reason.to_owned());
            is_first
        };
        self.moved.notify_all();
        if is_first {
            tracing::error!(
                reason,
                "the store has stopped writing; remove the cause, then restart the server"
            );
        }
    }

    /// The highest ticket applied; recovery applies tickets of earlier processes.
    pub(super) fn last_applied(&self) -> u64 {
        self.lock().applied
    }

    /// The failure after which no batch is applied any more.
    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    pub(super) fn check(&self) -> Result<(), CommitError> {
        match &self.lock().failed {
            Some(reason) => Err(CommitError::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Blocks until the engine has applied all batches up to this ticket.
    pub(super) fn wait(&self, ticket: u64) -> Result<(), CommitError> {
        let mut pending = self.lock();
        while pending.applied < ticket {
            if let Some(reason) = &pending.failed {
                return Err(CommitError::Poisoned { reason: reason.clone() });
            }
            pending = self.moved.wait(pending).ignore_poison();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // Only an allocation could panic under this lock.
        self.pending.lock().ignore_poison()
    }
}

impl Pending {
    fn get(&self, space: StateSpace, key: &[u8]) -> Option<(u64, Option<Vec<u8>>)> {
        let ticket = self.latest.get(&space)?.get(key)?;
        let value = self.batches.get(ticket)?.get(space, key)?;
        Some((*ticket, value.map(<[u8]>::to_vec)))
    }
}

/// The state after all accepted batches are applied. Reads look at the overlay first: writes that have left it are in
/// the engine by then.
pub(super) struct ComingState<'a> {
    overlay: &'a Overlay,
    engine: &'a Engine,
    /// The highest ticket whose writes were read.
    seen: Cell<u64>,
}

impl<'a> ComingState<'a> {
    pub(super) fn new(overlay: &'a Overlay, engine: &'a Engine) -> Self {
        Self { overlay, engine, seen: Cell::new(0) }
    }

    /// The highest ticket that the reads so far and these writes depend on; 0 if the engine has applied all of them.
    pub(super) fn depends_on(&self, writes: &Writes) -> u64 {
        let pending = self.overlay.lock();
        for (space, key, _) in writes.iter() {
            if let Some(ticket) = pending.latest.get(&space).and_then(|latest| latest.get(key)) {
                self.note(*ticket);
            }
        }
        self.seen.get()
    }

    fn note(&self, ticket: u64) {
        self.seen.set(self.seen.get().max(ticket));
    }
}

impl View for ComingState<'_> {
    fn get(&self, space: StateSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StateFault> {
        let found = self.overlay.lock().get(space, key);
        match found {
            Some((ticket, value)) => {
                self.note(ticket);
                Ok(value)
            }
            None => self.engine.get(space, key),
        }
    }

    fn scan(&self, space: StateSpace, span: RowSpan<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault> {
        let over: Vec<(Vec<u8>, Option<Vec<u8>>)> = {
            let pending = self.overlay.lock();
            let Some(latest) = pending.latest.get(&space) else {
                return self.engine.scan(space, span, visit);
            };
            let keys = latest.range::<[u8], _>((span.start(), Bound::Unbounded));
            keys.take_while(|(key, _)| key.starts_with(span.prefix))
                .filter_map(|(key, _)| {
                    let (ticket, value) = pending.get(space, key)?;
                    self.note(ticket);
                    Some((key.clone(), value))
                })
                .collect()
        };
        let over = over.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
        merge_scan(over, |visit| self.engine.scan(space, span, visit), visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(entries: &[(&str, Option<&str>)]) -> Arc<Writes> {
        let mut writes = Writes::default();
        for (key, value) in entries {
            let value = value.map(|value| value.as_bytes().to_vec());
            writes.set(StateSpace::Meta, key.as_bytes().to_vec(), value);
        }
        Arc::new(writes)
    }

    fn get(overlay: &Overlay, key: &str) -> Option<(u64, Option<Vec<u8>>)> {
        overlay.lock().get(StateSpace::Meta, key.as_bytes())
    }

    #[test]
    fn a_key_leaves_with_its_latest_batch() {
        let overlay = Overlay::default();
        overlay.add(1, writes(&[("a", Some("1")), ("b", Some("1"))]));
        overlay.add(2, writes(&[("a", None)]));
        assert_eq!(get(&overlay, "a"), Some((2, None)));
        overlay.applied(1);
        assert_eq!((get(&overlay, "a"), get(&overlay, "b")), (Some((2, None)), None));
        overlay.applied(2);
        assert_eq!(get(&overlay, "a"), None);
        assert!(overlay.lock().latest.values().all(BTreeMap::is_empty));
    }

    #[test]
    fn a_batch_applied_before_it_was_added_is_not_added() {
        let overlay = Overlay::default();
        overlay.applied(3);
        overlay.add(3, writes(&[("a", Some("1"))]));
        assert_eq!(get(&overlay, "a"), None);
        overlay.wait(3).unwrap();
    }

    #[test]
    fn no_caller_waits_for_a_failed_engine() {
        let overlay = Overlay::default();
        overlay.add(1, writes(&[("a", Some("1"))]));
        overlay.fail("disk");
        assert!(overlay.wait(1).is_err() && overlay.check().is_err());
    }
}
