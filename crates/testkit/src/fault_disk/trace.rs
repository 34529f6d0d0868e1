//! The last operations, to read when a seed fails.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::faults::OpKind;

const ENTRIES_MAX: usize = 512;

/// An operation as the caller asked for it.
#[derive(Debug, Clone)]
pub(super) struct DiskCall {
    pub(super) kind: OpKind,
    pub(super) path: Arc<str>,
    /// The open file it goes to, 0 for operations on names.
    pub(super) file: u64,
    /// Position and length of a read or write; the new length of a cut.
    pub(super) at: u64,
    pub(super) len: u64,
}

impl DiskCall {
    pub(super) fn on_path(kind: OpKind, path: &str) -> Self {
        Self { kind, path: path.into(), file: 0, at: 0, len: 0 }
    }
}

impl fmt::Display for DiskCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.kind, self.path)?;
        match self.kind {
            OpKind::Write | OpKind::Read => write!(f, " at {} len {}", self.at, self.len),
            OpKind::SetLen => write!(f, " to {}", self.len),
            _ => Ok(()),
        }
    }
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallOutcome {
    Done,
    /// Done for fewer bytes than asked.
    Short(u64),
    /// Not done, and reported as done.
    Lied,
    Failed,
    Cut,
}

/// A ring of calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Trace {
    entries: VecDeque<(u64, DiskCall, CallOutcome)>,
}

impl Trace {
    pub(super) fn push(&mut self, op: u64, call: DiskCall, outcome: CallOutcome) {
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back((op, call, outcome));
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.entries.iter().map(|(op, call, outcome)| format!("#{op} {call}: {outcome:?}")).collect()
    }
}
