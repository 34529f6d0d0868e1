//! The state engine: four ordered maps in fjall.

use std::fs::{File, TryLockError};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};

use super::error::OpenError;
use super::options::EmbeddedOptions;
use super::readable::{self, EntryVisit, KeyGap, ReadEntries, ReadEntry};
use super::state_folder;
use super::state_journal::{self, JournalFault, TornTail};
use super::state_versions;
use super::sync_mark::SyncMark;
use crate::state::keys::counter::{self, StateCounter};
use crate::state::{RowSpan, StateFault, StateSpace, View, Visit, Writes, read};

/// Version of the key catalogue.
const FORMAT: u64 = 1;

/// The four keyspaces of the state. Cheap to clone; clones share the engine.
#[derive(Clone)]
pub(super) struct Engine {
    db: Database,
    meta: Keyspace,
    docs: Keyspace,
    index: Keyspace,
    dedupe: Keyspace,
    folder: PathBuf,
    /// The number of the last sync mark.
    last_mark: Arc<AtomicU64>,
}

impl Engine {
    /// Opens the engine in its folder, or creates it there. A torn tail of the engine's journal is cut.
    pub(super) fn open(folder: &Path, options: &EmbeddedOptions) -> Result<Self, OpenError> {
        state_folder::create_once(folder, |new| Self::open_whole(new, options)?.sync().map_err(corrupt))?;
        state_folder::make_private(folder)?;
        let torn = mend(folder)?;
        let engine = Self::open_whole(folder, options)?;
        if let Some(torn) = torn {
            let (file, at) = (torn.journal.display().to_string(), torn.at);
            torn.settle(engine.persisted())?;
            tracing::warn!(
                file,
                at,
                "cut the torn end of the state engine's journal; the log repeats what it held"
            );
        }
        Ok(engine)
    }

    /// Opens an engine whose files are whole.
    pub(super) fn open_whole(folder: &Path, options: &EmbeddedOptions) -> Result<Self, OpenError> {
        // Two workers: one may flush while the other compacts. The default takes four.
        const WORKERS: usize = 2;
        state_versions::check(folder)?;
        let db = Database::builder(folder)
            .cache_size(options.state_cache_bytes)
            .max_cached_files(Some(options.state_open_files))
            .max_journaling_size(options.state_journal_bytes)
            .worker_threads(WORKERS)
            .open()
            .map_err(open_error)?;
        let keyspace = |space: StateSpace| {
            let small = || KeyspaceCreateOptions::default().max_memtable_size(options.state_buffer_bytes);
            db.keyspace(space.name(), small).map_err(open_error)
        };
        let engine = Self {
            meta: keyspace(StateSpace::Meta)?,
            docs: keyspace(StateSpace::Docs)?,
            index: keyspace(StateSpace::Index)?,
            dedupe: keyspace(StateSpace::Dedupe)?,
            db,
            folder: folder.to_owned(),
            last_mark: Arc::default(),
        };
        engine.check_format()?;
        let last_mark = read::counter(&engine.image(), StateCounter::SyncMark).map_err(corrupt)?;
        engine.last_mark.store(last_mark.unwrap_or(0), Ordering::Relaxed);
        Ok(engine)
    }

    /// The highest sequence number in the tables of the engine.
    fn persisted(&self) -> Option<u64> {
        let of = |space: &StateSpace| self.keyspace(*space).tree.get_highest_persisted_seqno();
        StateSpace::ALL.iter().filter_map(of).max()
    }

    /// Refuses state of another format; a new engine gets this one.
    pub(super) fn check_format(&self) -> Result<(), OpenError> {
        match read::counter(&self.image(), StateCounter::Format).map_err(corrupt)? {
            Some(FORMAT) => Ok(()),
            Some(found) => Err(OpenError::StateFormat { found, expected: FORMAT }),
            None => {
                let mut writes = Writes::default();
                writes.set(
                    StateSpace::Meta,
                    counter::key(StateCounter::Format),
                    Some(counter::value(FORMAT)),
                );
                self.write(writes).map_err(corrupt)
            }
        }
    }

    /// Writes all of the writes or none. They survive a crash of the process at once, and a power cut after
    /// [`Engine::sync`]; a power cut loses only the latest writes.
    pub(super) fn write(&self, writes: Writes) -> Result<(), StateFault> {
        // `batch()` hands the bytes to the operating system on commit; a batch made otherwise keeps them in the process.
        let mut batch = self.db.batch();
        for (space, key, value) in writes.into_iter() {
            match value {
                Some(value) => batch.insert(self.keyspace(space), key, value),
                None => batch.remove(self.keyspace(space), key),
            }
        }
        batch.commit().map_err(engine_fault)
    }

    /// Makes all earlier writes durable, and notes how far the journal is synced.
    pub(super) fn sync(&self) -> Result<(), StateFault> {
        let number = self.last_mark.fetch_add(1, Ordering::Relaxed) + 1;
        let journal = state_journal::newest(&self.folder);
        let mut writes = Writes::default();
        writes.set(StateSpace::Meta, counter::key(StateCounter::SyncMark), Some(counter::value(number)));
        self.write(writes)?;
        self.db.persist(PersistMode::SyncAll).map_err(engine_fault)?;
        // Without a descriptor to look at the folder, the sync counts all the same.
        if let Err(error) = journal.and_then(|journal| self.note_sync(journal, number)) {
            // The mark before stays: it is lower, and true.
            tracing::warn!(%error, folder = %self.folder.display(), "cannot note that the state is synced");
        }
        Ok(())
    }

    /// Notes the mark that a sync wrote to this journal. If the engine began another journal meanwhile, it is not known
    /// which of the two has the mark, and nothing is noted.
    fn note_sync(&self, journal: Option<u64>, number: u64) -> std::io::Result<()> {
        if let Some(journal) = journal
            && state_journal::newest(&self.folder)? == Some(journal)
        {
            SyncMark { journal, number }.write(&self.folder)?;
        }
        state_folder::make_private(&self.folder)
    }

    /// Visits the entries under a prefix that can be read, and returns the gaps between them.
    pub(super) fn visit_readable<E>(
        &self,
        space: StateSpace,
        prefix: &[u8],
        visit: &mut EntryVisit<'_, E>,
    ) -> Result<Vec<KeyGap>, E> {
        let end = match end_of_prefix(prefix) {
            Bound::Excluded(end) => Some(end),
            Bound::Included(_) | Bound::Unbounded => None,
        };
        readable::visit_readable(self.keyspace(space), (prefix.to_vec(), end), visit)
    }

    /// The state of all spaces at this moment.
    pub(super) fn image(&self) -> EngineImage<'_> {
        EngineImage { engine: self, snapshot: self.db.snapshot() }
    }

    /// The state of all spaces at this moment, to be kept for long.
    pub(super) fn freeze(&self) -> FrozenEngine {
        FrozenEngine { engine: self.clone(), snapshot: self.db.snapshot() }
    }

    fn keyspace(&self, space: StateSpace) -> &Keyspace {
        match space {
            StateSpace::Meta => &self.meta,
            StateSpace::Docs => &self.docs,
            StateSpace::Index => &self.index,
            StateSpace::Dedupe => &self.dedupe,
        }
    }
}

impl ReadEntries for Keyspace {
    fn entries(
        &self,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        backward: bool,
    ) -> Box<dyn Iterator<Item = ReadEntry> + '_> {
        let read = |entry: fjall::Guard| {
            let entry = entry.into_inner().ok();
            entry.map(|(key, value)| (key.to_vec(), value.to_vec()))
        };
        let range = self.range(bounds);
        if backward { Box::new(range.rev().map(read)) } else { Box::new(range.map(read)) }
    }
}

/// Reads see the latest writes.
impl View for Engine {
    fn get(&self, space: StateSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StateFault> {
        let value = self.keyspace(space).get(key).map_err(engine_fault)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, space: StateSpace, span: RowSpan<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault> {
        walk(self.keyspace(space).range(bounds(span)), span, visit)
    }
}

/// The state of all spaces at one moment.
pub(super) struct EngineImage<'a> {
    engine: &'a Engine,
    snapshot: Snapshot,
}

impl View for EngineImage<'_> {
    fn get(&self, space: StateSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StateFault> {
        let value = self.snapshot.get(self.engine.keyspace(space), key).map_err(engine_fault)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, space: StateSpace, span: RowSpan<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault> {
        walk(self.snapshot.range(self.engine.keyspace(space), bounds(span)), span, visit)
    }
}

/// The state of all spaces at one moment, with the engine that has it.
pub(super) struct FrozenEngine {
    engine: Engine,
    snapshot: Snapshot,
}

impl View for FrozenEngine {
    fn get(&self, space: StateSpace, key: &[u8]) -> Result<Option<Vec<u8>>, StateFault> {
        let value = self.snapshot.get(self.engine.keyspace(space), key).map_err(engine_fault)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, space: StateSpace, span: RowSpan<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault> {
        walk(self.snapshot.range(self.engine.keyspace(space), bounds(span)), span, visit)
    }
}

fn bounds(span: RowSpan<'_>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (span.start().map(<[u8]>::to_vec), end_of_prefix(span.prefix))
}

/// The first key after all keys that begin with `prefix`.
fn end_of_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

fn walk(iter: fjall::Iter, span: RowSpan<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault> {
    for entry in iter {
        let (key, value) = entry.into_inner().map_err(engine_fault)?;
        if !key.starts_with(span.prefix) || visit(&key, &value)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Cuts a torn tail of the journal, unless another process has the engine open.
fn mend(folder: &Path) -> Result<Option<TornTail>, OpenError> {
    const LOCK: &str = "lock";
    let lock = match File::open(folder.join(LOCK)) {
        Ok(lock) => lock,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match lock.try_lock() {
        // The lock is released at the end, for the engine to take it.
        Ok(()) => Ok(state_journal::mend(folder, SyncMark::read(folder)?)?),
        // The engine waits for its lock, and refuses to open without it.
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

fn corrupt(fault: StateFault) -> OpenError {
    OpenError::StateCorrupt { reason: fault.to_string() }
}

impl From<JournalFault> for OpenError {
    fn from(fault: JournalFault) -> Self {
        match fault {
            JournalFault::Damaged { .. } => Self::StateCorrupt { reason: fault.to_string() },
            JournalFault::Io(error) => error.into(),
        }
    }
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed { reason: format!("the `state` folder: {error}") }
    }
}

fn engine_fault(error: fjall::Error) -> StateFault {
    StateFault::Engine(match error {
        // The engine says so after a failure of a thread of its own, and does not say which.
        fjall::Error::Poisoned => {
            "it stopped because it found no space or no file descriptor, or its disk failed".to_owned()
        }
        other => other.to_string(),
    })
}

fn open_error(error: fjall::Error) -> OpenError {
    match error {
        fjall::Error::Locked => OpenError::StateLocked,
        other => OpenError::StateCorrupt { reason: other.to_string() },
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_all_its_keys() {
        assert_eq!(end_of_prefix(b"a"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(end_of_prefix(b"a\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(end_of_prefix(b"\xff\xff"), Bound::Unbounded);
        assert_eq!(end_of_prefix(b""), Bound::Unbounded);
    }
}
