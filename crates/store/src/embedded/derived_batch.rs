//! Derived batches: written straight to the engine, without journal or sync.
//!
//! They always run on the blocking pool: the engine may hold a writer back for 100 ms while it flushes.

use super::error::commit_error;
use super::open_store::OpenStore;
use super::overlay::ComingState;
use crate::port::{Class, CommitError, StateOp};
use crate::state::{View, Writes, plan};

impl OpenStore {
    /// Writes a batch, unless less than the reserve is free: the engine stops for good when it finds no space.
    pub(super) fn commit_derived(&self, ops: &[StateOp]) -> Result<(), CommitError> {
        self.log.check_reserve().map_err(commit_error)?;
        self.write_derived(|view| {
            let context = plan::PlanContext { view, topics: self };
            plan::plan(Class::Derived, ops, &context)
        })
    }

    /// Checks a batch as [`OpenStore::commit_derived`] does, and writes nothing.
    pub(super) fn check_derived(&self, ops: &[StateOp]) -> Result<(), CommitError> {
        let _sequencer = self.sequencer.blocking_lock();
        self.overlay.check()?;
        let coming = ComingState::new(&self.overlay, &self.engine);
        let context = plan::PlanContext { view: &coming, topics: self };
        plan::plan(Class::Derived, ops, &context).map(drop)
    }

    /// Removes a bounded number of expired entries; returns whether there are more. It may use the reserve, because it
    /// makes space.
    pub(super) fn sweep(&self, now_ms: i64) -> Result<bool, CommitError> {
        const WHAT: &str = "waiting for space";
        if self.log.is_out_of_space() {
            return Err(commit_error(self.log.no_room(WHAT)));
        }
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
    /// If the plan depends on batches that the engine has not applied yet, it waits for them first. After a power cut the
    /// engine has a prefix of what was written to it; so a derived batch is never there without the batches that it
    /// depends on.
    fn write_derived(
        &self,
        mut plan: impl FnMut(&dyn View) -> Result<Writes, CommitError>,
    ) -> Result<(), CommitError> {
        loop {
            let sequencer = self.sequencer.blocking_lock();
            self.overlay.check()?;
            let coming = ComingState::new(&self.overlay, &self.engine);
            let writes = plan(&coming)?;
            let ticket = coming.depends_on(&writes);
            if ticket == 0 {
                let unknown = |fault: crate::state::StateFault| {
                    self.overlay.fail(&fault.to_string());
                    CommitError::UnknownOutcome { reason: fault.to_string() }
                };
                let _step = self.derived_steps.enter(&*self.clock);
                return if writes.is_empty() { Ok(()) } else { self.engine.write(writes).map_err(unknown) };
            }
            drop(sequencer);
            self.overlay.wait(ticket)?;
        }
    }
}
