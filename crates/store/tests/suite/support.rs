//! An embedded store in a directory of its own, and short ways to fill it.

use std::path::Path;
use std::sync::Arc;

use promethean_model::{EventId, Offset};
use promethean_store::embedded::{EmbeddedStore, OpenError};
use promethean_store::port::{
    AppendEvent, Batch, Collection, CollectionOp, Cursor, CursorOp, Direction, DocPut, EventIdSource, Expect,
    Field, Index, Keeping, Replaces, RowOp, Store, Table,
};
use promethean_store::value::FieldType;
use promethean_testkit::ManualClock;
use tempfile::TempDir;

pub(crate) use promethean_testkit::topic;
pub(crate) use promethean_testkit::world::small_files as small;

pub(crate) struct Embedded {
    pub(crate) store: Arc<EmbeddedStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) dir: TempDir,
}

impl Embedded {
    pub(crate) async fn new() -> Self {
        Self::open(tempfile::tempdir().unwrap(), clock()).await
    }

    pub(crate) async fn open(dir: TempDir, clock: Arc<ManualClock>) -> Self {
        let store = try_open(dir.path(), &clock).await.unwrap();
        Self { store: Arc::new(store), clock, dir }
    }

    /// A copy of the directory: what a crash of the process would leave.
    pub(crate) fn image(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(self.dir.path(), copy.path());
        copy
    }
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(promethean_testkit::world::WALL_MS))
}

pub(crate) async fn try_open(dir: &Path, clock: &Arc<ManualClock>) -> Result<EmbeddedStore, OpenError> {
    let opened = EmbeddedStore::open(dir, Arc::<ManualClock>::clone(clock), small()).await;
    opened.map(|(store, _)| store)
}

pub(crate) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            match std::fs::copy(entry.path(), target) {
                // A thread of the log has renamed or removed it since the folder was listed.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => {
                    copied.unwrap();
                }
            }
        }
    }
}

/// Puts the state folder of one directory in place of another's.
pub(crate) fn replace_state(of: &Path, with: &Path) {
    std::fs::remove_dir_all(of.join("state")).unwrap();
    copy_dir(&with.join("state"), &of.join("state"));
}

pub(crate) fn event(to: &str, name: &str) -> AppendEvent {
    AppendEvent {
        topic: topic(to),
        id: EventIdSource::Given(EventId::derive(b"test", name.as_bytes())),
        ts: None,
        key: Some(format!("key {name}")),
        meta: Vec::new(),
        payload: format!("\"{name}\""),
    }
}

pub(crate) fn row(table: Table, key: &str, value: &str) -> RowOp {
    RowOp::Put { table, key: key.into(), value: value.into(), must_be_new: false }
}

pub(crate) fn cursor(group: &str, on: &str, floor: u64) -> CursorOp {
    CursorOp::Put {
        group: group.parse().unwrap(),
        topic: topic(on),
        cursor: Cursor { floor: Offset(floor), epoch: 0, data: Vec::new() },
        expected_epoch: 0,
    }
}

pub(crate) fn declare(name: &str, keeping: Keeping) -> CollectionOp {
    CollectionOp::Declare(Collection {
        name: name.parse().unwrap(),
        keeping,
        fields: vec![Field { name: "n".to_owned(), kind: FieldType::Number }],
        indexes: vec![Index { fields: vec![("n".to_owned(), Direction::Ascending)], unique: false }],
    })
}

pub(crate) fn doc(collection: &str, key: &str, n: u64) -> DocPut {
    DocPut {
        collection: collection.parse().unwrap(),
        key: key.to_owned(),
        ts: 0,
        version: None,
        body: format!("{{\"n\":{n}}}"),
        expect: Expect::Any,
        replaces: Replaces::Unknown,
    }
}

pub(crate) async fn commit(store: &dyn Store, batch: Batch) {
    store.commit(batch).await.unwrap();
}

pub(crate) async fn row_text(store: &dyn Store, table: Table, key: &str) -> Option<String> {
    store.row(table, key.as_bytes()).await.unwrap().map(|value| String::from_utf8(value).unwrap())
}
