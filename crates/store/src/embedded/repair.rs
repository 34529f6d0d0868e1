//! The repair of a directory: first the state, then the log, then one open and close that finish both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use promethean_log::disk::Disk;
use promethean_log::{LogOpenError, LogRepair, LogRepairReport, RealDisk, RepairSettings};
use promethean_model::{Clock, GroupName, TopicName};

use super::engine::Engine;
use super::error::OpenError;
use super::options::EmbeddedOptions;
use super::state_repair::{self, StateRepairReport};
use super::{EmbeddedStore, STATE_DIR, blocking, open};
use crate::state::keys::cursor;
use crate::state::{StateSpace, Writes};

const STATE_MISSING: &str = "the folder `state` is missing: put it back, from a backup or from `quarantine/state-N`, and \
     repair then; without it, groups, settings, schemas and dead letters are lost";

/// The most cursors that a repair removes because they are beyond their topics.
const CURSORS_MAX: usize = 10_000;

/// What a repair of a directory finds, does and loses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreRepairReport {
    /// Events, indexes, journal and manifest.
    pub log: LogRepairReport,
    /// The state.
    pub state: StateRepairReport,
}

impl StoreRepairReport {
    /// Whether nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.log.is_clean() && self.state.is_clean()
    }
}

impl EmbeddedStore {
    /// Repairs a directory that no process uses: sets damage aside in `quarantine/` and keeps the rest. With `dry_run`
    /// it only says what it would do.
    pub async fn repair(
        dir: impl AsRef<Path>,
        clock: Arc<dyn Clock>,
        options: EmbeddedOptions,
        dry_run: bool,
    ) -> Result<StoreRepairReport, OpenError> {
        let dir = dir.as_ref().to_owned();
        let work = RepairWork { dir, clock, options: options.clamped(), dry_run };
        blocking(move || work.run()).await?
    }
}

struct RepairWork {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    options: EmbeddedOptions,
    dry_run: bool,
}

impl RepairWork {
    fn run(self) -> Result<StoreRepairReport, OpenError> {
        let disk = RealDisk::new(&self.dir).map_err(|error| OpenError::Failed {
            reason: format!("cannot use the directory {}: {error}", self.dir.display()),
        })?;
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let repair = LogRepair::begin(Arc::clone(&disk)).map_err(OpenError::Log)?;
        state_repair::finish_interrupted(&self.dir)?;
        let state_lsn = repair.state_lsn().map_err(OpenError::Log)?;
        if !self.dir.join(STATE_DIR).try_exists()? && state_lsn > 0 {
            return Err(OpenError::Failed { reason: STATE_MISSING.to_owned() });
        }
        let (mut state, applied_lsn) = state_repair::run(&self.dir, &self.options, self.dry_run)?;
        if state.is_clean() && applied_lsn == 0 && state_lsn > 0 {
            // An engine's journal that was cut after a whole batch looks whole.
            state.faults.push("state: it has none of the changes that the log gave it".to_owned());
            state.lost.push(format!(
                "changes of state up to frame {state_lsn} that the state does not have and the log does not repeat"
            ));
        }
        let settings = RepairSettings { applied_lsn, dry_run: self.dry_run, now_ms: self.clock.wall_ms() };
        let log = repair.run(settings).map_err(OpenError::Log)?;
        drop(repair);
        let mut report = StoreRepairReport { log, state };
        if !self.dry_run {
            self.finish(&disk, &mut report)?;
        }
        Ok(report)
    }

    /// Opens the directory once, which repeats the journal and rebuilds the index, makes the entries of state agree, and
    /// closes it.
    fn finish(&self, disk: &Arc<dyn Disk>, report: &mut StoreRepairReport) -> Result<(), OpenError> {
        for _ in 0..CURSORS_MAX {
            match open(Arc::clone(disk), &self.dir, Arc::clone(&self.clock), self.options.clone()) {
                Err(OpenError::CursorAhead { group, topic, floor, end }) => {
                    self.remove_cursor(&group, &topic)?;
                    report.state.lost.push(format!(
                        "the cursor of group `{group}` on topic `{topic}` (at {floor}, the topic ends at {end})"
                    ));
                }
                Err(error) => return Err(error),
                Ok((store, _)) => {
                    let opened = store.opened.write();
                    let opened = promethean_model::IgnorePoison::ignore_poison(opened).take();
                    let Some(opened) = opened else { return Ok(()) };
                    state_repair::agree(&opened.engine, &mut report.state)?;
                    return opened.close().map_err(|error| OpenError::Failed { reason: error.to_string() });
                }
            }
        }
        Err(OpenError::Log(LogOpenError::State("too many cursors are beyond their topics".to_owned())))
    }

    fn remove_cursor(&self, group: &GroupName, topic: &TopicName) -> Result<(), OpenError> {
        let engine = Engine::open(&self.dir.join(STATE_DIR), &self.options)?;
        let mut writes = Writes::default();
        writes.set(StateSpace::Meta, cursor::key(group, topic), None);
        let written = engine.write(writes).and_then(|()| engine.sync());
        written.map_err(|fault| OpenError::StateCorrupt { reason: fault.to_string() })
    }
}
