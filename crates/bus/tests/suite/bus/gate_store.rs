//! A store whose commits a test can hold, measure and refuse, and whose reads of schemas it can hold and count.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use promethean_model::TopicSettings;
use promethean_model::{CollectionName, Durability, EventId, GroupName, Offset, OffsetRange, TopicName};
use promethean_store::port::*;
use tokio::sync::Semaphore;

use super::harness::soon;

type Which = Box<dyn Fn(&Batch) -> bool + Send + Sync>;

/// Passes everything on.
pub(crate) struct GateStore {
    inner: Arc<dyn Store>,
    held: Mutex<Option<(Which, When, Arc<Gate>)>>,
    largest: AtomicUsize,
    left: AtomicUsize,
    refused: Semaphore,
    held_schema: Mutex<Option<Arc<Gate>>>,
    schemas_read: AtomicUsize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Nothing is written until it is released.
    Before,
    /// It is written, and nobody has heard of that until it is released.
    After,
}

/// A commit or read that is held.
pub(crate) struct Gate {
    reached: Semaphore,
    released: Semaphore,
}

impl Gate {
    pub(crate) async fn reached(&self) {
        soon("the commit", self.reached.acquire()).await.unwrap().forget();
    }

    pub(crate) fn release(&self) {
        self.released.add_permits(1);
    }

    fn new() -> Arc<Self> {
        Arc::new(Self { reached: Semaphore::new(0), released: Semaphore::new(0) })
    }

    async fn pass(&self) {
        self.reached.add_permits(1);
        self.released.acquire().await.unwrap().forget();
    }
}

impl GateStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        let left = AtomicUsize::new(usize::MAX);
        Self {
            inner,
            held: Mutex::default(),
            largest: AtomicUsize::new(0),
            left,
            refused: Semaphore::new(0),
            held_schema: Mutex::default(),
            schemas_read: AtomicUsize::new(0),
        }
    }

    /// The store behind it.
    pub(crate) fn inner(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner)
    }

    /// Holds the next commit that is meant.
    pub(crate) fn hold(
        &self,
        when: When,
        which: impl Fn(&Batch) -> bool + Send + Sync + 'static,
    ) -> Arc<Gate> {
        let gate = Gate::new();
        *self.held.lock().unwrap() = Some((Box::new(which), when, Arc::clone(&gate)));
        gate
    }

    /// Holds the next read of a schema's text.
    pub(crate) fn hold_schema(&self) -> Arc<Gate> {
        let gate = Gate::new();
        *self.held_schema.lock().unwrap() = Some(Arc::clone(&gate));
        gate
    }

    /// How many texts of schemas were read.
    pub(crate) fn schemas_read(&self) -> usize {
        self.schemas_read.load(Ordering::SeqCst)
    }

    /// Lets so many more commits through and refuses the rest.
    pub(crate) fn refuse_after(&self, commits: usize) {
        self.left.store(commits, Ordering::SeqCst);
    }

    /// Waits until a commit is refused.
    pub(crate) async fn refused(&self) {
        self.refused.acquire().await.unwrap().forget();
    }

    /// Whether one was that nobody has waited for.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused.available_permits() > 0
    }

    /// The most changes of one commit since the last look.
    pub(crate) fn largest(&self) -> usize {
        self.largest.swap(0, Ordering::SeqCst)
    }

    fn gate(&self, batch: &Batch) -> Option<(When, Arc<Gate>)> {
        let mut held = self.held.lock().unwrap();
        let (_, when, gate) = held.take_if(|(which, ..)| which(batch))?;
        Some((when, gate))
    }
}

#[async_trait]
impl Store for GateStore {
    async fn check_derived(&self, batch: &Batch) -> Result<(), CommitError> {
        self.inner.check_derived(batch).await
    }

    async fn commit(&self, batch: Batch) -> Result<Receipt, CommitError> {
        self.largest.fetch_max(batch.state.len(), Ordering::SeqCst);
        let some = |left: usize| if left == usize::MAX { Some(left) } else { left.checked_sub(1) };
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, some).is_err() {
            self.refused.add_permits(1);
            return Err(CommitError::Storage { reason: "as the test wants it".to_owned() });
        }
        let Some((when, gate)) = self.gate(&batch) else { return self.inner.commit(batch).await };
        if when == When::Before {
            gate.pass().await;
        }
        let result = self.inner.commit(batch).await;
        if when == When::After {
            gate.pass().await;
        }
        result
    }

    async fn append_each(
        &self,
        events: Vec<AppendEvent>,
        durability: Option<Durability>,
        turn: Option<Turn>,
    ) -> Vec<Result<Appended, CommitError>> {
        self.inner.append_each(events, durability, turn).await
    }

    async fn sweep(&self, now_ms: i64) -> Result<bool, CommitError> {
        self.inner.sweep(now_ms).await
    }

    fn hold(&self, topic: &TopicName, holder: &GroupName, from: Option<Offset>) {
        self.inner.hold(topic, holder, from);
    }

    fn holds_are_set(&self) {
        self.inner.holds_are_set();
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

impl Watch for GateStore {
    fn watch(&self, topic: &TopicName) -> EndWatch {
        self.inner.watch(topic)
    }

    fn durable_end(&self, topic: &TopicName) -> Offset {
        self.inner.durable_end(topic)
    }
}

#[async_trait]
impl RowReads for GateStore {
    async fn row(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        if table == Table::Schemas {
            self.schemas_read.fetch_add(1, Ordering::SeqCst);
            let gate = self.held_schema.lock().unwrap().take();
            if let Some(gate) = gate {
                gate.pass().await;
            }
        }
        self.inner.row(table, key).await
    }

    async fn rows(
        &self,
        table: Table,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, ReadError> {
        self.inner.rows(table, prefix, after, limit).await
    }
}

/// Passes reads on.
macro_rules! pass_on {
    ($port:ident { $($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)* }) => {
        #[async_trait]
        impl $port for GateStore {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$result, ReadError> {
                self.inner.$name($($arg),*).await
            })*
        }
    };
}

pass_on!(EventReads {
    topic_info(topic: &TopicName) -> Option<TopicInfo>;
    topics(after: Option<&TopicName>, limit: usize) -> TopicPage;
    read(topic: &TopicName, from: Offset, limit: PageLimit) -> EventPage;
    by_id(topic: &TopicName, id: EventId) -> Option<StoredEvent>;
    latest_by_keys(topic: &TopicName, keys: &[String]) -> Vec<Option<StoredEvent>>;
    key_history(topic: &TopicName, key: &str, range: OffsetRange, limit: usize) -> Vec<StoredEvent>;
    offset_at(topic: &TopicName, ts_ms: i64) -> Option<Offset>;
});
pass_on!(CursorReads {
    cursor(group: &GroupName, topic: &TopicName) -> Option<Cursor>;
    cursors_of_topic(topic: &TopicName) -> Vec<GroupCursor>;
    cursors_of_group(group: &GroupName) -> Vec<GroupCursor>;
});
pass_on!(CatalogReads {
    settings(topic: &TopicName) -> Option<TopicSettings>;
    settings_page(after: Option<&TopicName>, limit: usize) -> Vec<TopicConfig>;
});
pass_on!(DedupeReads {
    seen(scope: &str, id: &str, now_ms: i64) -> bool;
    marks(scope: &str, limit: usize) -> Vec<String>;
});
pass_on!(OutboxReads {
    outbox(status: OutboxStatus, after: Option<u64>, limit: usize) -> Vec<OutboxRow>;
    outbox_row(id: EventId) -> Option<OutboxRow>;
});
pass_on!(DocReads {
    collection(name: &CollectionName) -> Option<CollectionInfo>;
    collections(after: Option<&CollectionName>, limit: usize) -> Vec<CollectionInfo>;
    doc(collection: &CollectionName, key: &str) -> Option<Doc>;
    docs_by_key(collection: &CollectionName, after: Option<&str>, limit: usize) -> Vec<Doc>;
    query(query: &DocQuery) -> DocPage;
});
