//! The file descriptors of the process: how many there are, and how they are shared between the store and
//! connections.
//!
//! ```text
//! limit = reserved + segment files + files of the state engine + connections
//! ```

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Descriptors that no connection gets: journal, manifest, lock, index runs and files that are being written,
/// the log and journal of the state engine, listeners, timers, standard streams, files of the configuration,
/// and connections that are accepted only to be closed.
const RESERVED: usize = 128;
/// Segment files that are open, at most.
const SEGMENT_FILES_MAX: usize = 512;
/// Table files of the state engine that are open, at most.
const STATE_FILES_MAX: usize = 256;
/// Fewer files of each kind than this would be opened again for nearly every read.
const FILES_MIN: usize = 16;
/// Connections there must be room for.
const CONNECTIONS_MIN: usize = 16;
/// Connections if the configuration does not say how many, at most.
const CONNECTIONS_DEFAULT: usize = 20_000;

/// How the descriptors are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Files and connections that the process may have open.
    limit: usize,
    /// Segment files of the log.
    pub(crate) segment_files: usize,
    /// Table files of the state engine.
    pub(crate) state_files: usize,
    /// Connections.
    pub(crate) connections: usize,
}

impl Descriptors {
    /// Raises the limit of the process as far as it may, and shares the descriptors. `connections` are those
    /// that the configuration asks for; `has_files` is `false` for a store in memory.
    pub(crate) fn claim(connections: Option<usize>, has_files: bool) -> Result<Self> {
        let shared = Self::share(raise_limit(), connections, has_files)?;
        let Self { limit, segment_files, state_files, connections: room } = shared;
        if let Some(asked) = connections.filter(|asked| *asked > room) {
            warn!(
                asked,
                connections = room,
                "`limits.connections` is more than the limit of open files ({limit}) has room for; raise that limit \
                 (`ulimit -n`, or LimitNOFILE= of systemd)"
            );
        }
        info!(
            limit,
            connections = room,
            segment_files,
            state_files,
            reserved = RESERVED,
            "descriptors this process may open"
        );
        Ok(shared)
    }

    fn share(limit: usize, connections: Option<usize>, has_files: bool) -> Result<Self> {
        let files_min = if has_files { 2 * FILES_MIN } else { 0 };
        let needed = RESERVED + files_min + CONNECTIONS_MIN;
        ensure!(
            limit >= needed,
            "this process may have {limit} files and connections open, and a server needs at least {needed}; raise the \
             limit (`ulimit -n`, or LimitNOFILE= of systemd)"
        );
        let left = limit - RESERVED;
        let part = |divisor: usize, max: usize| match has_files {
            true => (left / divisor).clamp(FILES_MIN, max),
            false => 0,
        };
        let (segment_files, state_files) = (part(4, SEGMENT_FILES_MAX), part(8, STATE_FILES_MAX));
        let room = left - segment_files - state_files;
        let connections = connections.unwrap_or(CONNECTIONS_DEFAULT).min(room);
        Ok(Self { limit, segment_files, state_files, connections })
    }
}

/// Raises the soft limit to the hard one; the limit that then holds.
fn raise_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let limit = match setrlimit(Resource::Nofile, raised).context("raise the limit of open files") {
        Ok(()) => maximum,
        Err(error) => {
            warn!(error = format!("{error:#}"), "the limit of open files stays as it is");
            current
        }
    };
    // No limit at all is `None`.
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(limit: usize, connections: Option<usize>) -> Descriptors {
        Descriptors::share(limit, connections, true).unwrap()
    }

    #[test]
    fn everything_together_stays_below_the_limit() {
        for limit in (176..3_000).chain([20_000, 1_048_576, usize::MAX]) {
            for connections in [None, Some(1), Some(100), Some(1_000_000)] {
                let shared = share(limit, connections);
                let used = RESERVED + shared.segment_files + shared.state_files + shared.connections;
                assert!(used <= limit, "{shared:?}");
                assert!(shared.connections >= connections.unwrap_or(usize::MAX).min(CONNECTIONS_MIN));
            }
        }
    }

    #[test]
    fn the_configuration_is_followed_where_there_is_room() {
        assert_eq!(share(1 << 20, Some(50_000)).connections, 50_000);
        assert_eq!(share(1 << 20, None).connections, CONNECTIONS_DEFAULT);
        assert_eq!(
            share(256, None),
            Descriptors { limit: 256, segment_files: 32, state_files: 16, connections: 80 }
        );
        assert_eq!(share(1_024, Some(2_000)).connections, 560);
        let memory = Descriptors::share(256, None, false).unwrap();
        assert_eq!((memory.segment_files, memory.connections), (0, 128));
    }

    #[test]
    fn a_limit_that_is_too_small_is_refused() {
        let error = Descriptors::share(175, None, true).unwrap_err().to_string();
        assert!(error.contains("175") && error.contains("176") && error.contains("ulimit"), "{error}");
    }
}
