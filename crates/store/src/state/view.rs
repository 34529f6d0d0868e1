//! The view of the state that planning and reads need from an engine.

use std::ops::ControlFlow;

use thiserror::Error;

use super::codec::Malformed;
use crate::port::{CommitError, ReadError};

/// The separate ordered maps of the state. The numbers are persisted in redo: never change or reuse one.
///
/// Small families share one space, because an engine keeps a write buffer for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum StateSpace {
    /// Small families of keys, each with a tag.
    Meta = 1,
    /// Documents.
    Docs = 2,
    /// Index entries.
    Index = 3,
    /// Dedupe marks.
    Dedupe = 4,
}

impl StateSpace {
    pub(crate) const ALL: [Self; 4] = [Self::Meta, Self::Docs, Self::Index, Self::Dedupe];

    pub(crate) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|space| *space as u8 == number)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Docs => "docs",
            Self::Index => "index",
            Self::Dedupe => "dedupe",
        }
    }
}

/// Why state could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum StateFault {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("state engine: {0}")]
    Engine(String),
}

impl From<StateFault> for ReadError {
    fn from(fault: StateFault) -> Self {
        Self::Storage { reason: fault.to_string() }
    }
}

impl From<StateFault> for CommitError {
    fn from(fault: StateFault) -> Self {
        Self::Storage { reason: fault.to_string() }
    }
}

impl From<Malformed> for ReadError {
    fn from(malformed: Malformed) -> Self {
        StateFault::from(malformed).into()
    }
}

impl From<Malformed> for CommitError {
    fn from(malformed: Malformed) -> Self {
        StateFault::from(malformed).into()
    }
}

/// Keys that begin with `prefix` and, if given, come after `after`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSpan<'a> {
    pub(crate) prefix: &'a [u8],
    pub(crate) after: Option<&'a [u8]>,
}

impl<'a> RowSpan<'a> {
    pub(crate) fn of(prefix: &'a [u8]) -> Self {
        Self { prefix, after: None }
    }

    /// The bound at which the keys of this span begin.
    pub(crate) fn start(&self) -> std::ops::Bound<&'a [u8]> {
        match self.after {
            Some(after) if after >= self.prefix => std::ops::Bound::Excluded(after),
            _ => std::ops::Bound::Included(self.prefix),
        }
    }
}

/// Whether a scan goes on.
pub(crate) type Flow = ControlFlow<()>;

/// A function that a scan calls with each key and value.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<Flow, StateFault> + 'a;

/// A consistent image of the state.
pub(crate) trait View {
    fn get(&self, space: StateSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StateFault>;

    /// Visits keys in ascending order until told to stop.
    fn scan(&self, space: StateSpace, span: RowSpan<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault>;
}
