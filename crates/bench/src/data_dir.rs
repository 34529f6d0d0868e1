//! Opening the log of a data directory.

use std::path::Path;
use std::sync::Arc;

use promethean_log::state::NoState;
use promethean_log::{Log, LogOpenError, LogOptions, NoObserver, OpenArgs, RealDisk, RecoveryReport};
use promethean_model::SystemClock;

/// Opens the log in `dir`, creating it if there is none.
pub fn open(dir: &Path, options: LogOptions) -> Result<(Arc<Log>, RecoveryReport), LogOpenError> {
    let disk = RealDisk::new(dir).map_err(|source| LogOpenError::Io {
        action: "open",
        file: dir.display().to_string(),
        source,
    })?;
    let (log, report) = Log::open(OpenArgs {
        disk: Arc::new(disk),
        clock: Arc::new(SystemClock::new()),
        state: Arc::new(NoState),
        observer: Arc::new(NoObserver),
        options,
    })?;
    Ok((Arc::new(log), report))
}
