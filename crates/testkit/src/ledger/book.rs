//! Recording a ledger, reading it and writing it.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::sync::{Mutex, MutexGuard};

use super::check;
use super::entry::{Invocation, LedgerEntry, OpId};
use super::observed::ObservedTopics;
use super::violation::{Summary, Violation};
use promethean_model::IgnorePoison;

/// The record of a run. Shared by reference between producers.
#[derive(Debug, Default)]
pub struct Ledger {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    entries: Vec<LedgerEntry>,
    next_op: OpId,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that an event is about to be published, and numbers the operation. Call it before the request is sent.
    pub fn record_invoked(&self, event: Invocation) -> OpId {
        let mut pages = self.pages();
        pages.next_op += 1;
        let op = pages.next_op;
        pages.entries.push(LedgerEntry::Invoked { op, event });
        op
    }

    /// Notes that the operation was acknowledged at this offset.
    pub fn record_ok(&self, op: OpId, offset: u64) {
        self.record(LedgerEntry::Ok { op, offset });
    }

    /// Notes that the operation was refused.
    pub fn record_fail(&self, op: OpId) {
        self.record(LedgerEntry::Fail { op });
    }

    /// Notes that the outcome is unknown.
    pub fn record_unknown(&self, op: OpId) {
        self.record(LedgerEntry::Unknown { op });
    }

    /// Adds a line as it is.
    pub fn record(&self, entry: LedgerEntry) {
        let mut pages = self.pages();
        if let LedgerEntry::Invoked { op, .. } = &entry {
            pages.next_op = pages.next_op.max(*op);
        }
        pages.entries.push(entry);
    }

    /// A copy of the lines.
    #[must_use]
    pub fn entries(&self) -> Vec<LedgerEntry> {
        self.pages().entries.clone()
    }

    /// Reads JSON lines. A last line without newline was torn when its writer died; it is skipped if it cannot be read: its
    /// operation is then unknown or was never sent.
    pub fn from_json_lines(mut reader: impl BufRead) -> Result<Self, LedgerReadError> {
        let ledger = Self::new();
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            if reader.read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            match serde_json::from_slice(&bytes) {
                Ok(entry) => ledger.record(entry),
                Err(_) if bytes.last() != Some(&b'\n') => break,
                Err(cause) => return Err(LedgerReadError::Line { line, cause }),
            }
        }
        Ok(ledger)
    }

    /// Writes one line in one call, so that a killed writer tears at most the last line.
    pub fn write_json_line(mut writer: impl Write, entry: &LedgerEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        writer.write_all(&line)?;
        writer.flush()
    }

    /// Checks the ledger against what a reader saw. Rules:
    ///
    /// - an acknowledged event is seen exactly once, at its offset, with the same id, key and payload, unless its offset
    ///   is below the topic's earliest;
    /// - a refused event is not seen; an event of unknown outcome is seen at most once;
    /// - a batch is seen whole or not at all, over all topics;
    /// - a producer's events stand in the order in which it invoked them;
    /// - offsets have no gaps from the earliest on; every event that is seen was invoked;
    /// - in a compacted topic an event may be missing if a later event of its key is seen, or if a tombstone is or was the
    ///   latest of its key; offsets then have gaps and still only grow.
    pub fn check(&self, observed: &ObservedTopics) -> Result<Summary, Vec<Violation>> {
        check::check(&self.pages().entries, observed)
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().ignore_poison()
    }
}

/// Why a ledger could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum LedgerReadError {
    /// Reading failed.
    Io(io::Error),
    /// A whole line is not an entry.
    Line {
        /// Counted from 1.
        line: u64,
        /// The fault of the line.
        cause: serde_json::Error,
    },
}

impl From<io::Error> for LedgerReadError {
    fn from(cause: io::Error) -> Self {
        Self::Io(cause)
    }
}

impl fmt::Display for LedgerReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(cause) => write!(f, "read ledger: {cause}"),
            Self::Line { line, cause } => write!(f, "line {line} of the ledger is no entry: {cause}"),
        }
    }
}

impl std::error::Error for LedgerReadError {}
