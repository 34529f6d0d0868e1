//! A state engine in memory that loses un-synced state in a power cut.
//!
//! Redo bytes are puts, back to back: `key length u16 | key | value length u32 | value`, little-endian.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use promethean_log::state::{Redo, StateError, StateSink};
use promethean_model::IgnorePoison;

use crate::rng::SeededRng;

/// Keys and values, in key order.
pub type StateMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// Redo bytes that put these keys.
///
/// # Panics
/// If a key or value is too long for its length field.
#[must_use]
pub fn encode_puts(puts: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in puts {
        assert!(key.len() <= usize::from(u16::MAX), "key of {} bytes", key.len());
        assert!(value.len() as u64 <= u64::from(u32::MAX), "value of {} bytes", value.len());
        out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(value);
    }
    out
}

/// A state engine in memory. After [`FaultState::crash`] every call on it fails, so a thread that outlived the crash cannot use it.
#[derive(Debug, Default)]
pub struct FaultState {
    inner: Mutex<FaultStateInner>,
}

#[derive(Debug, Clone, Default)]
struct FaultStateInner {
    seen: Image,
    synced: Image,
    /// Each atomic step since the last sync: the LSN it ends at and its puts.
    steps: Vec<(u64, StateMap)>,
    fail_apply: bool,
    fail_sync: bool,
    ignore_syncs: bool,
    dead: bool,
}

#[derive(Debug, Clone, Default)]
struct Image {
    applied: u64,
    map: StateMap,
}

impl FaultState {
    /// An empty engine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the power and returns the engine that the next start finds: the synced state and, by the seed, some of the steps
    /// after it, in order and each whole.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let mut inner = self.end();
        let kept = SeededRng::new(seed).range(0..inner.steps.len() as u64 + 1) as usize;
        for (lsn, puts) in inner.steps.drain(..).take(kept) {
            inner.synced.map.extend(puts);
            inner.synced.applied = lsn;
        }
        inner.seen = inner.synced.clone();
        Self { inner: Mutex::new(inner) }
    }

    /// Kills the process: all applied state is still seen, and un-synced state is still not durable.
    #[must_use]
    pub fn kill(&self) -> Self {
        Self { inner: Mutex::new(self.end()) }
    }

    /// A copy that goes its own way, as a backup has it.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { inner: Mutex::new(self.inner().clone()) }
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.inner().seen.map.get(key).cloned()
    }

    /// All keys and values that are seen.
    #[must_use]
    pub fn snapshot(&self) -> StateMap {
        self.inner().seen.map.clone()
    }

    /// The LSN up to which a power cut loses nothing.
    #[must_use]
    pub fn synced_lsn(&self) -> u64 {
        self.inner().synced.applied
    }

    /// Makes the next apply fail, leaving nothing behind.
    pub fn fail_next_apply(&self) {
        self.inner().fail_apply = true;
    }

    /// Makes the next sync fail.
    pub fn fail_next_sync(&self) {
        self.inner().fail_sync = true;
    }

    /// From now on syncs do nothing and report success. Lasts over crashes.
    pub fn ignore_syncs(&self) {
        self.inner().ignore_syncs = true;
    }

    fn end(&self) -> FaultStateInner {
        let mut inner = self.inner();
        inner.dead = true;
        FaultStateInner { dead: false, fail_apply: false, fail_sync: false, ..inner.clone() }
    }

    fn inner(&self) -> MutexGuard<'_, FaultStateInner> {
        self.inner.lock().ignore_poison()
    }

    fn alive(&self) -> Result<MutexGuard<'_, FaultStateInner>, StateError> {
        let inner = self.inner();
        if inner.dead { Err("the state engine stopped in a crash".into()) } else { Ok(inner) }
    }
}

impl StateSink for FaultState {
    fn applied_lsn(&self) -> Result<u64, StateError> {
        Ok(self.alive()?.seen.applied)
    }

    fn apply(&self, frames: &[Redo<'_>]) -> Result<(), StateError> {
        let mut inner = self.alive()?;
        if std::mem::take(&mut inner.fail_apply) {
            return Err("the state engine could not apply".into());
        }
        if !frames.is_sorted_by(|a, b| a.lsn < b.lsn) {
            return Err("redo is not in LSN order".into());
        }
        let mut puts = StateMap::new();
        for frame in frames.iter().filter(|frame| frame.lsn > inner.seen.applied) {
            decode_puts(frame.bytes, &mut puts)
                .ok_or_else(|| format!("redo of LSN {} is malformed", frame.lsn))?;
        }
        if let Some(last) = frames.last().filter(|last| last.lsn > inner.seen.applied) {
            inner.seen.applied = last.lsn;
            inner.seen.map.extend(puts.clone());
            inner.steps.push((last.lsn, puts));
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StateError> {
        let mut inner = self.alive()?;
        if std::mem::take(&mut inner.fail_sync) {
            return Err("the state engine could not sync".into());
        }
        if !inner.ignore_syncs {
            let FaultStateInner { synced, steps, .. } = &mut *inner;
            for (lsn, puts) in steps.drain(..) {
                synced.map.extend(puts);
                synced.applied = lsn;
            }
        }
        Ok(())
    }
}

fn decode_puts(mut bytes: &[u8], into: &mut StateMap) -> Option<()> {
    while !bytes.is_empty() {
        let (key_len, rest) = bytes.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_len)))?;
        let (value_len, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_len) as usize)?;
        into.insert(key.to_vec(), value.to_vec());
        bytes = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn put(state: &FaultState, lsns: &[u64]) {
        let redo: Vec<(u64, Vec<u8>)> = lsns
            .iter()
            .map(|lsn| (*lsn, encode_puts(&[(b"last", &lsn.to_le_bytes()), (&lsn.to_le_bytes(), b"x")])))
            .collect();
        let frames: Vec<Redo<'_>> = redo.iter().map(|(lsn, bytes)| Redo { lsn: *lsn, bytes }).collect();
        state.apply(&frames).unwrap();
    }

    fn last(state: &FaultState) -> u64 {
        state.get(b"last").map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
    }

    #[test]
    fn a_crash_goes_back_to_a_whole_step_between_sync_and_newest() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..200 {
            let state = FaultState::new();
            put(&state, &[1, 2]);
            state.sync().unwrap();
            put(&state, &[3, 4]);
            put(&state, &[5]);
            let after = state.crash(seed);
            let applied = after.applied_lsn().unwrap();
            assert_eq!(last(&after), applied, "the LSN moves with the state");
            assert_eq!(after.snapshot().len() as u64, applied + 1);
            assert_eq!(after.synced_lsn(), applied);
            outcomes.insert(applied);
        }
        assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [2, 4, 5], "never inside a step");
    }

    #[test]
    fn a_kill_keeps_everything_and_makes_nothing_durable() {
        let state = FaultState::new();
        put(&state, &[1]);
        let killed = state.kill();
        assert_eq!((killed.applied_lsn().unwrap(), killed.synced_lsn()), (1, 0));
        assert!((0..50).any(|seed| killed.crash(seed).applied_lsn().unwrap() == 0));
    }

    #[test]
    fn applying_again_changes_nothing() {
        let state = FaultState::new();
        put(&state, &[1, 2, 3]);
        put(&state, &[1, 2]);
        assert_eq!((state.applied_lsn().unwrap(), last(&state)), (3, 3));
        put(&state, &[2, 3, 4]);
        assert_eq!((state.applied_lsn().unwrap(), last(&state)), (4, 4));
    }

    #[test]
    fn bad_redo_is_refused_whole() {
        let state = FaultState::new();
        let good = encode_puts(&[(b"k", b"v")]);
        let frames = [Redo { lsn: 1, bytes: &good }, Redo { lsn: 2, bytes: &good[..good.len() - 1] }];
        assert!(state.apply(&frames).is_err());
        assert!(state.apply(&[Redo { lsn: 2, bytes: &good }, Redo { lsn: 1, bytes: &good }]).is_err());
        assert_eq!((state.applied_lsn().unwrap(), state.snapshot().len()), (0, 0));
    }

    #[test]
    fn a_crashed_engine_takes_nothing_more() {
        let state = FaultState::new();
        let after = state.crash(0);
        assert!(state.apply(&[]).is_err() && state.sync().is_err() && state.applied_lsn().is_err());
        put(&after, &[1]);
    }

    #[test]
    fn failures_and_lies_are_kept_apart() {
        let state = FaultState::new();
        state.fail_next_apply();
        assert!(state.apply(&[]).is_err());
        put(&state, &[1]);
        state.fail_next_sync();
        assert!(state.sync().is_err());
        assert_eq!(state.synced_lsn(), 0);
        state.ignore_syncs();
        state.sync().unwrap();
        assert_eq!(state.synced_lsn(), 0);
    }
}
