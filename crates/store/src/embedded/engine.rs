//! The state engine: four ordered maps in fjall.

use std::ops::Bound;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};

use super::error::OpenError;
use super::options::Options;
use crate::state::keys::counter::{self, Counter};
use crate::state::{Space, Span, StateFault, View, Visit, Writes, read};

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
}

impl Engine {
    pub(super) fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        // Two workers: one may flush while the other compacts. The default takes four.
        const WORKERS: usize = 2;
        let db = Database::builder(path)
            .cache_size(options.state_cache_bytes)
            .max_journaling_size(options.state_journal_bytes)
            .worker_threads(WORKERS)
            .open()
            .map_err(open_error)?;
        let keyspace = |space: Space| {
            let small = || KeyspaceCreateOptions::default().max_memtable_size(options.state_buffer_bytes);
            db.keyspace(space.name(), small).map_err(open_error)
        };
        let engine = Self {
            meta: keyspace(Space::Meta)?,
            docs: keyspace(Space::Docs)?,
            index: keyspace(Space::Index)?,
            dedupe: keyspace(Space::Dedupe)?,
            db,
        };
        engine.check_format()?;
        Ok(engine)
    }

    fn check_format(&self) -> Result<(), OpenError> {
        let corrupt = |fault: StateFault| OpenError::StateCorrupt { reason: fault.to_string() };
        match read::counter(&self.image(), Counter::Format).map_err(corrupt)? {
            Some(FORMAT) => Ok(()),
            Some(found) => Err(OpenError::StateFormat { found, expected: FORMAT }),
            None => {
                let mut writes = Writes::default();
                writes.set(Space::Meta, counter::key(Counter::Format), Some(counter::value(FORMAT)));
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

    pub(super) fn sync(&self) -> Result<(), StateFault> {
        self.db.persist(PersistMode::SyncAll).map_err(engine_fault)
    }

    /// The state of all spaces at this moment.
    pub(super) fn image(&self) -> EngineImage<'_> {
        EngineImage { engine: self, snapshot: self.db.snapshot() }
    }

    fn keyspace(&self, space: Space) -> &Keyspace {
        match space {
            Space::Meta => &self.meta,
            Space::Docs => &self.docs,
            Space::Index => &self.index,
            Space::Dedupe => &self.dedupe,
        }
    }
}

/// Reads see the latest writes.
impl View for Engine {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StateFault> {
        let value = self.keyspace(space).get(key).map_err(engine_fault)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, space: Space, span: Span<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault> {
        walk(self.keyspace(space).range(bounds(span)), span, visit)
    }
}

/// The state of all spaces at one moment.
pub(super) struct EngineImage<'a> {
    engine: &'a Engine,
    snapshot: Snapshot,
}

impl View for EngineImage<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StateFault> {
        let value = self.snapshot.get(self.engine.keyspace(space), key).map_err(engine_fault)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, space: Space, span: Span<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault> {
        walk(self.snapshot.range(self.engine.keyspace(space), bounds(span)), span, visit)
    }
}

fn bounds(span: Span<'_>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
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

fn walk(iter: fjall::Iter, span: Span<'_>, visit: &mut Visit<'_>) -> Result<(), StateFault> {
    for entry in iter {
        let (key, value) = entry.into_inner().map_err(engine_fault)?;
        if !key.starts_with(span.prefix) || visit(&key, &value)?.is_break() {
            break;
        }
    }
    Ok(())
}

fn engine_fault(error: fjall::Error) -> StateFault {
    StateFault::Engine(error.to_string())
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
