//! Derived batches: straight into the engine, without journal or sync.
//!
//! They are always on the blocking pool: the engine may hold a writer back for 100 ms while it flushes.

use super::overlay::Coming;
use super::parts::Parts;
use crate::port::{Class, CommitError, StateOp};
use crate::state::{View, Writes, plan};

impl Parts {
    pub(super) fn commit_derived(&self, ops: &[StateOp]) -> Result<(), CommitError> {
        self.write_derived(|view| {
            let context = plan::Context { view, topics: self };
            plan::plan(Class::Derived, ops, &context)
        })
    }

    /// Plans as [`Parts::commit_derived`] does, and writes nothing.
    pub(super) fn check_derived(&self, ops: &[StateOp]) -> Result<(), CommitError> {
        let _sequencer = self.sequencer.blocking_lock();
        self.overlay.check()?;
        let coming = Coming::new(&self.overlay, &self.engine);
        let context = plan::Context { view: &coming, topics: self };
        plan::plan(Class::Derived, ops, &context).map(drop)
    }

    /// Removes a piece of what time has ended; says whether there is more.
    pub(super) fn sweep(&self, now_ms: i64) -> Result<bool, CommitError> {
        let mut more = false;
        self.write_derived(|view| {
            let piece = plan::sweep::piece(view, now_ms)?;
            more = piece.more;
            Ok(piece.writes)
        })?;
        Ok(more)
    }

    /// Writes what `plan` makes of the coming state.
    ///
    /// If that depends on batches that the engine has not applied yet, they are waited for first. After a power cut the
    /// engine has a prefix of what was written to it; written after what it depends on, a derived batch is never there
    /// without it.
    fn write_derived(
        &self,
        mut plan: impl FnMut(&dyn View) -> Result<Writes, CommitError>,
    ) -> Result<(), CommitError> {
        loop {
            let sequencer = self.sequencer.blocking_lock();
            self.overlay.check()?;
            let coming = Coming::new(&self.overlay, &self.engine);
            let writes = plan(&coming)?;
            let ticket = coming.depends_on(&writes);
            if ticket == 0 {
                let unknown = |fault: crate::state::StateFault| {
                    self.overlay.fail(&fault.to_string());
                    CommitError::UnknownOutcome { reason: fault.to_string() }
                };
                return if writes.is_empty() { Ok(()) } else { self.engine.write(writes).map_err(unknown) };
            }
            drop(sequencer);
            self.overlay.wait(ticket)?;
        }
    }
}
