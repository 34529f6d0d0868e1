//! Power cuts, process kills, and copies of the whole disk.

use super::disk::FaultDisk;
use super::state::DiskState;
use super::trace::Trace;
use crate::rng::SeededRng;

/// How much of the un-synced bytes survives a power cut. Mostly a part of them; often all or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Nothing,
    Everything,
    Mixed,
}

/// A copy of a disk at one moment, seen and durable state both. Cheap: files are shared until one side changes them.
#[derive(Debug, Clone)]
pub struct DiskSnapshot {
    state: DiskState,
}

impl FaultDisk {
    /// Cuts the power and returns the disk that the next start finds; this disk is dead afterwards.
    ///
    /// All synced bytes survive. Of the rest, by the seed: any subset of 512-byte pieces, old or new file lengths, and
    /// any legal subset of created, renamed and removed names, in some seeds only prefixes of them. Asking a dead disk
    /// again with another seed gives another outcome of the same power cut.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let mood = match rng.range(0..16) {
            0 => Mood::Nothing,
            1 => Mood::Everything,
            _ => Mood::Mixed,
        };
        let mut next = self.end("the machine lost power and restarted");
        next.names = next.names.crash(&mut rng, mood);
        let reachable = next.names.reachable();
        for (id, file) in &mut next.files {
            // Each file draws from its own dice, so that its fate does not depend on files that are gone.
            let mut rng = rng.fork();
            if reachable.contains(id) {
                *file = file.crash(&mut rng, mood);
            }
        }
        next.settle_paths();
        next.prune();
        Self::from_state(next)
    }

    /// Kills the process and returns the disk that the next start finds: all that was written is seen, and un-synced bytes
    /// are still not durable. This disk is dead afterwards.
    #[must_use]
    pub fn kill(&self) -> Self {
        Self::from_state(self.end("the process was killed"))
    }

    /// A copy to go back to.
    #[must_use]
    pub fn snapshot(&self) -> DiskSnapshot {
        DiskSnapshot { state: self.state().restarted() }
    }

    /// A new disk from a copy, with the copy's capacity and lies and no other faults.
    #[must_use]
    pub fn restore(snapshot: &DiskSnapshot) -> Self {
        Self::from_state(snapshot.state.clone())
    }

    fn end(&self, why: &'static str) -> DiskState {
        let mut state = self.state();
        state.dead = state.dead.or(Some(why));
        state.restarted()
    }
}

impl DiskState {
    /// The same disk after a restart: no handles, no locks, no passing faults; operations are counted from 1 again.
    fn restarted(&self) -> Self {
        let mut next = self.clone();
        next.files.values_mut().for_each(|file| file.handles = 0);
        next.locks.clear();
        next.rules = self.rules.lies_only();
        next.trace = Trace::default();
        next.ops = 0;
        next.stop = None;
        next.dead = None;
        next
    }

    /// Tells the files their names again: a crash may have taken renames back.
    fn settle_paths(&mut self) {
        let names: Vec<(String, u64)> =
            self.names.files().map(|(path, file)| (path.to_owned(), file)).collect();
        for (path, file) in names {
            if let Some(file) = self.files.get_mut(&file) {
                file.path = path.into();
            }
        }
    }
}
