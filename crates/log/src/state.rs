//! The state engine that recovers together with the journal and the segments.

use std::error::Error;

/// The failure of a state engine; the log then stops writing.
pub type StateError = Box<dyn Error + Send + Sync>;

/// Redo bytes of one frame; their meaning belongs to the sink.
#[derive(Debug, Clone, Copy)]
pub struct Redo<'a> {
    /// The frame's position in the journal.
    pub lsn: u64,
    /// The redo of the batch.
    pub bytes: &'a [u8],
}

/// Receives redo after its frame was synced, in LSN order, each at least once.
pub trait StateSink: Send + Sync + 'static {
    /// LSN of the last redo applied, 0 if none. It may be ahead of what is durable in the engine.
    fn applied_lsn(&self) -> Result<u64, StateError>;
    /// Applies these frames in one atomic step together with the LSN of the last. Applying again changes
    /// nothing.
    fn apply(&self, frames: &[Redo<'_>]) -> Result<(), StateError>;
    /// Makes everything applied so far durable.
    fn sync(&self) -> Result<(), StateError>;
}

/// A sink for logs that carry no state; refuses redo.
#[derive(Debug, Default)]
pub struct NoState;

impl StateSink for NoState {
    fn applied_lsn(&self) -> Result<u64, StateError> {
        Ok(0)
    }
    fn apply(&self, _frames: &[Redo<'_>]) -> Result<(), StateError> {
        Err("this log was opened without a state engine".into())
    }
    fn sync(&self) -> Result<(), StateError> {
        Ok(())
    }
}
