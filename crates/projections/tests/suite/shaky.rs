//! A store that fails, and takes its time, where a test wants it to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use promethean_model::{
    CollectionName, Durability, EventId, GroupName, Offset, OffsetRange, TopicName, TopicSettings,
};
use promethean_store::port::*;
use tokio::sync::Semaphore;

/// What is asked of the store.
pub(crate) enum Asked<'a> {
    /// Events of a topic.
    Events(&'a TopicName),
    /// The latest events of keys.
    Latest(&'a TopicName),
    /// A page of a collection.
    Docs,
    /// Events that are published.
    Append,
    /// A commit.
    Commit(&'a Batch),
    /// Where a group is.
    Cursor(&'a GroupName),
}

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Works,
    Fails,
    /// Works when it is let through.
    Held,
    /// Fails when it is let through.
    HeldFails,
}

type Rule = Box<dyn Fn(&Asked<'_>) -> Answer + Send + Sync>;

/// Passes everything on that its rule lets through.
pub(crate) struct Shaky {
    inner: Arc<dyn Store>,
    rule: Mutex<Option<Rule>>,
    failed: AtomicUsize,
    reached: Semaphore,
    let_through: Semaphore,
}

impl Shaky {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            rule: Mutex::default(),
            failed: AtomicUsize::new(0),
            reached: Semaphore::new(0),
            let_through: Semaphore::new(0),
        })
    }

    pub(crate) fn rule(&self, rule: impl Fn(&Asked<'_>) -> Answer + Send + Sync + 'static) {
        *self.rule.lock().unwrap() = Some(Box::new(rule));
    }

    /// From now on it works.
    pub(crate) fn heal(&self) {
        *self.rule.lock().unwrap() = None;
    }

    /// Waits until the next one is held.
    pub(crate) async fn reached(&self) {
        self.reached.acquire().await.unwrap().forget();
    }

    /// Lets one that is held through.
    pub(crate) fn let_through(&self) {
        self.let_through.add_permits(1);
    }

    /// How often it failed.
    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::SeqCst)
    }

    async fn ask(&self, asked: Asked<'_>) -> Result<(), String> {
        let answer = self.rule.lock().unwrap().as_ref().map_or(Answer::Works, |rule| rule(&asked));
        if matches!(answer, Answer::Held | Answer::HeldFails) {
            self.reached.add_permits(1);
            self.let_through.acquire().await.unwrap().forget();
        }
        if matches!(answer, Answer::Works | Answer::Held) {
            return Ok(());
        }
        self.failed.fetch_add(1, Ordering::SeqCst);
        Err("as the test wants it".to_owned())
    }

    async fn read(&self, asked: Asked<'_>) -> Result<(), ReadError> {
        self.ask(asked).await.map_err(|reason| ReadError::Storage { reason })
    }
}

#[async_trait]
impl Store for Shaky {
    async fn check_derived(&self, batch: &Batch) -> Result<(), CommitError> {
        self.inner.check_derived(batch).await
    }

    async fn commit(&self, batch: Batch) -> Result<Receipt, CommitError> {
        self.ask(Asked::Commit(&batch)).await.map_err(|reason| CommitError::Storage { reason })?;
        self.inner.commit(batch).await
    }

    async fn append_each(
        &self,
        events: Vec<AppendEvent>,
        durability: Option<Durability>,
        turn: Option<Turn>,
    ) -> Vec<Result<Appended, CommitError>> {
        match self.ask(Asked::Append).await {
            Ok(()) => self.inner.append_each(events, durability, turn).await,
            Err(reason) => vec![Err(CommitError::Storage { reason }); events.len()],
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

    async fn close(&self) {
        self.inner.close().await;
    }
}

impl Watch for Shaky {
    fn watch(&self, topic: &TopicName) -> EndWatch {
        self.inner.watch(topic)
    }

    fn durable_end(&self, topic: &TopicName) -> Offset {
        self.inner.durable_end(topic)
    }
}

/// Passes reads on; `as` says what they ask for, where a rule may stop them.
macro_rules! pass_on {
    ($port:ident { $($name:ident($($arg:ident: $type:ty),*) -> $result:ty $(as $asked:expr)?;)* }) => {
        #[async_trait]
        impl $port for Shaky {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$result, ReadError> {
                $(self.read($asked).await?;)?
                self.inner.$name($($arg),*).await
            })*
        }
    };
}

pass_on!(RowReads {
    row(table: Table, key: &[u8]) -> Option<Vec<u8>>;
    rows(table: Table, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Vec<Row>;
});
pass_on!(EventReads {
    topic_info(topic: &TopicName) -> Option<TopicInfo>;
    topics(after: Option<&TopicName>, limit: usize) -> TopicPage;
    read(topic: &TopicName, from: Offset, limit: PageLimit) -> EventPage as Asked::Events(topic);
    by_id(topic: &TopicName, id: EventId) -> Option<StoredEvent>;
    latest_by_keys(topic: &TopicName, keys: &[String]) -> Vec<Option<StoredEvent>> as Asked::Latest(topic);
    key_history(topic: &TopicName, key: &str, range: OffsetRange, limit: usize) -> Vec<StoredEvent>;
    offset_at(topic: &TopicName, ts_ms: i64) -> Option<Offset>;
});
pass_on!(CursorReads {
    cursor(group: &GroupName, topic: &TopicName) -> Option<Cursor> as Asked::Cursor(group);
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
    docs_by_key(collection: &CollectionName, after: Option<&str>, limit: usize) -> Vec<Doc> as Asked::Docs;
    query(query: &DocQuery) -> DocPage;
});
