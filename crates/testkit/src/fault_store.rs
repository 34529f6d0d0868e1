//! A store whose calls a test can hold back, fail and count.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use promethean_model::{
    CollectionName, Durability, EventId, GroupName, IgnorePoison, Offset, OffsetRange, TopicName,
    TopicSettings,
};
use promethean_store::port::*;
use tokio::sync::Semaphore;

use crate::patience::soon;

/// The reason that refused calls give.
const REASON: &str = "as the test wants it";

/// A call of the store that a test can hold back or fail.
#[derive(Debug, Clone, Copy)]
pub enum StoreCall<'a> {
    /// A commit of this batch.
    Commit(&'a Batch),
    /// Events published by `append_each`.
    Append,
    /// A read of one row of this table.
    Row(Table),
    /// A read of the events of this topic, in their order.
    Read(&'a TopicName),
    /// A read of the latest events of keys of this topic.
    LatestByKeys(&'a TopicName),
    /// A read of a cursor of this group.
    Cursor(&'a GroupName),
    /// A read of a page of documents, by key.
    DocsByKey,
    /// A read of a page of at most this many topics.
    Topics(usize),
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call is passed on.
    None,
    /// The call is refused.
    Fail,
    /// A write is refused as on a full disk; a read is refused.
    Full,
    /// A write is refused because earlier work is not done; a read is refused.
    Busy,
    /// The call is passed on once the test lets it through.
    Hold,
    /// The call is refused once the test lets it through.
    HoldThenFail,
}

/// When a call is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Before the call is passed on: nothing is written yet.
    Before,
    /// After the call was passed on: it is written, and the caller has no answer yet.
    After,
}

/// The place where one call is held.
#[derive(Debug)]
pub struct StoreGate {
    reached: Semaphore,
    released: Semaphore,
}

type Rule = Box<dyn Fn(&StoreCall<'_>) -> Fault + Send + Sync>;
type Matcher = Box<dyn Fn(&StoreCall<'_>) -> bool + Send + Sync>;

/// A store that passes all calls on to another store, except calls that the test holds back or fails.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    rule: Mutex<Option<Rule>>,
    /// Holds the calls for which the rule says so.
    rule_gate: StoreGate,
    /// Gates of one call each.
    gates: Mutex<Vec<(Matcher, When, Arc<StoreGate>)>>,
    /// Commits that are still passed on; `usize::MAX`: all.
    commits_left: AtomicUsize,
    failed: AtomicUsize,
    /// A permit per failed call that no test has waited for.
    refused: Semaphore,
    largest: AtomicUsize,
    schemas_read: AtomicUsize,
}

impl StoreGate {
    /// Waits until a call is held here.
    ///
    /// # Panics
    /// If no call comes within two minutes.
    pub async fn reached(&self) {
        if let Ok(permit) = soon("a call reaches its gate", self.reached.acquire()).await {
            permit.forget();
        }
    }

    /// Lets one call through, which may come later.
    pub fn release(&self) {
        self.released.add_permits(1);
    }

    fn new() -> Self {
        Self { reached: Semaphore::new(0), released: Semaphore::new(0) }
    }

    async fn pass(&self) {
        self.reached.add_permits(1);
        if let Ok(permit) = self.released.acquire().await {
            permit.forget();
        }
    }
}

impl FaultStore {
    /// A store that passes every call on, until it is told otherwise.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            rule: Mutex::default(),
            rule_gate: StoreGate::new(),
            gates: Mutex::default(),
            commits_left: AtomicUsize::new(usize::MAX),
            failed: AtomicUsize::new(0),
            refused: Semaphore::new(0),
            largest: AtomicUsize::new(0),
            schemas_read: AtomicUsize::new(0),
        }
    }

    /// The store that calls are passed on to.
    #[must_use]
    pub fn inner(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner)
    }

    /// Decides by this rule what happens to each call from now on.
    pub fn rule(&self, rule: impl Fn(&StoreCall<'_>) -> Fault + Send + Sync + 'static) {
        *self.rule.lock().ignore_poison() = Some(Box::new(rule));
    }

    /// Takes the rule away: every later call is passed on.
    pub fn heal(&self) {
        *self.rule.lock().ignore_poison() = None;
    }

    /// Waits until a call is held by the rule.
    ///
    /// # Panics
    /// If no call comes within two minutes.
    pub async fn reached(&self) {
        self.rule_gate.reached().await;
    }

    /// Lets one call through that is held by the rule.
    pub fn let_through(&self) {
        self.rule_gate.release();
    }

    /// Holds the next commit of a batch that matches.
    pub fn hold(
        &self,
        when: When,
        matches: impl Fn(&Batch) -> bool + Send + Sync + 'static,
    ) -> Arc<StoreGate> {
        let commit = move |call: &StoreCall<'_>| matches!(call, StoreCall::Commit(batch) if matches(batch));
        self.hold_call(when, commit)
    }

    /// Holds the next read of a schema's text.
    pub fn hold_schema(&self) -> Arc<StoreGate> {
        self.hold_call(When::Before, |call| matches!(call, StoreCall::Row(Table::Schemas)))
    }

    /// Passes this many more commits on and refuses those after them.
    pub fn refuse_after(&self, commits: usize) {
        self.commits_left.store(commits, Ordering::SeqCst);
    }

    /// Waits until a call fails that was not waited for before.
    pub async fn refused(&self) {
        if let Ok(permit) = self.refused.acquire().await {
            permit.forget();
        }
    }

    /// Whether a call has failed that was not waited for.
    pub fn has_refused(&self) -> bool {
        self.refused.available_permits() > 0
    }

    /// How many calls have failed.
    pub fn failed(&self) -> usize {
        self.failed.load(Ordering::SeqCst)
    }

    /// The most state changes of one commit since the last call of this function.
    pub fn largest(&self) -> usize {
        self.largest.swap(0, Ordering::SeqCst)
    }

    /// How many texts of schemas were read.
    pub fn schemas_read(&self) -> usize {
        self.schemas_read.load(Ordering::SeqCst)
    }

    fn hold_call(
        &self,
        when: When,
        matches: impl Fn(&StoreCall<'_>) -> bool + Send + Sync + 'static,
    ) -> Arc<StoreGate> {
        let gate = Arc::new(StoreGate::new());
        self.gates.lock().ignore_poison().push((Box::new(matches), when, Arc::clone(&gate)));
        gate
    }

    /// Takes out the gate that holds this call.
    fn gate_of(&self, call: &StoreCall<'_>) -> Option<(When, Arc<StoreGate>)> {
        let mut gates = self.gates.lock().ignore_poison();
        let at = gates.iter().position(|(matches, ..)| matches(call))?;
        let (_, when, gate) = gates.swap_remove(at);
        Some((when, gate))
    }

    /// Counts a commit, and refuses it if no more commits are passed on.
    fn count_commit(&self) -> Result<(), String> {
        let next = |left: usize| if left == usize::MAX { Some(left) } else { left.checked_sub(1) };
        let counted = self.commits_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        counted.map(drop).map_err(|_| self.fail())
    }

    fn fail(&self) -> String {
        self.failed.fetch_add(1, Ordering::SeqCst);
        self.refused.add_permits(1);
        REASON.to_owned()
    }

    /// Holds or fails a call as the rule says.
    async fn apply_rule(&self, call: StoreCall<'_>) -> Result<(), CommitError> {
        let fault = self.rule.lock().ignore_poison().as_ref().map_or(Fault::None, |rule| rule(&call));
        if matches!(fault, Fault::Hold | Fault::HoldThenFail) {
            self.rule_gate.pass().await;
        }
        match fault {
            Fault::None | Fault::Hold => Ok(()),
            Fault::Fail | Fault::HoldThenFail => Err(CommitError::Storage { reason: self.fail() }),
            Fault::Full => Err(CommitError::StorageFull { reason: self.fail() }),
            Fault::Busy => {
                self.fail();
                Err(CommitError::Busy { what: REASON })
            }
        }
    }

    /// Does to a read what rule and gates say.
    async fn before_read(&self, call: StoreCall<'_>) -> Result<(), ReadError> {
        let refusal = |error: CommitError| ReadError::Storage { reason: error.to_string() };
        self.apply_rule(call).await.map_err(refusal)?;
        let gate = self.gate_of(&call);
        if let Some((_, gate)) = gate {
            gate.pass().await;
        }
        Ok(())
    }
}

#[async_trait]
impl Store for FaultStore {
    async fn check_derived(&self, batch: &Batch) -> Result<(), CommitError> {
        self.inner.check_derived(batch).await
    }

    async fn commit(&self, batch: Batch) -> Result<Receipt, CommitError> {
        self.largest.fetch_max(batch.state.len(), Ordering::SeqCst);
        let refusal = |reason| CommitError::Storage { reason };
        self.count_commit().map_err(refusal)?;
        self.apply_rule(StoreCall::Commit(&batch)).await?;
        let gate = self.gate_of(&StoreCall::Commit(&batch));
        let Some((when, gate)) = gate else { return self.inner.commit(batch).await };
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
        match self.apply_rule(StoreCall::Append).await {
            Ok(()) => self.inner.append_each(events, durability, turn).await,
            Err(error) => vec![Err(error); events.len()],
        }
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

    fn figures(&self) -> Option<LogFigures> {
        self.inner.figures()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[async_trait]
impl Backups for FaultStore {
    async fn begin_backup(&self) -> Result<Arc<LogBackup>, BackupError> {
        self.inner.begin_backup().await
    }

    async fn read_backup(&self, path: &str, at: u64, len: usize) -> Result<Vec<u8>, BackupError> {
        self.inner.read_backup(path, at, len).await
    }

    async fn read_backup_state(&self, after: Option<Vec<u8>>) -> Result<StatePage, BackupError> {
        self.inner.read_backup_state(after).await
    }

    async fn end_backup(&self) -> Result<(), BackupError> {
        self.inner.end_backup().await
    }
}

impl Watch for FaultStore {
    fn watch(&self, topic: &TopicName) -> EndWatch {
        self.inner.watch(topic)
    }

    fn durable_end(&self, topic: &TopicName) -> Offset {
        self.inner.durable_end(topic)
    }

    fn has_topic(&self, topic: &TopicName) -> bool {
        self.inner.has_topic(topic)
    }

    fn topic_room(&self) -> TopicRoom {
        self.inner.topic_room()
    }
}

#[async_trait]
impl RowReads for FaultStore {
    async fn row(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        if table == Table::Schemas {
            self.schemas_read.fetch_add(1, Ordering::SeqCst);
        }
        self.before_read(StoreCall::Row(table)).await?;
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

/// Passes the reads of a port on. `as` names the call of a read that a test can hold back or fail.
macro_rules! pass_on {
    ($port:ident { $($name:ident($($arg:ident: $type:ty),*) -> $result:ty $(as $call:expr)?;)* }) => {
        #[async_trait]
        impl $port for FaultStore {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$result, ReadError> {
                $(self.before_read($call).await?;)?
                self.inner.$name($($arg),*).await
            })*
        }
    };
}

pass_on!(EventReads {
    topic_info(topic: &TopicName) -> Option<TopicInfo>;
    topics(after: Option<&TopicName>, limit: usize) -> TopicPage as StoreCall::Topics(limit);
    read(topic: &TopicName, from: Offset, limit: PageLimit) -> EventPage as StoreCall::Read(topic);
    by_id(topic: &TopicName, id: EventId) -> Option<StoredEvent>;
    latest_by_keys(topic: &TopicName, keys: &[String]) -> Vec<Option<StoredEvent>>
        as StoreCall::LatestByKeys(topic);
    key_history(topic: &TopicName, key: &str, range: OffsetRange, limit: usize) -> Vec<StoredEvent>;
    offset_at(topic: &TopicName, ts_ms: i64) -> Option<Offset>;
});
pass_on!(CursorReads {
    cursor(group: &GroupName, topic: &TopicName) -> Option<Cursor> as StoreCall::Cursor(group);
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
    docs_by_key(collection: &CollectionName, after: Option<&str>, limit: usize) -> Vec<Doc>
        as StoreCall::DocsByKey;
    query(query: &DocQuery) -> DocPage;
});
