//! The store that keeps everything in memory: for `promethean dev`, for tests, and as the reference for the others.
//!
//! It behaves as the embedded store does, except that its content ends with the process; its receipts say so.

mod append;
mod events;
mod kv;
mod topic;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use promethean_log::Holds;
use promethean_model::{Clock, GroupName, IgnorePoison, Offset, SteadyClock, TopicName, TopicSettings};

use self::kv::Kv;
use self::topic::MemoryTopic;
use crate::port::{
    Backups, Batch, Class, CommitError, EndWatch, Health, ReadError, Receipt, SettingsOp, StateOp, Store,
    TopicOp, TopicRoom, Watch,
};
use crate::state::{StateFault, View, impl_state_reads, plan, read};
use crate::watch::WatchHub;

const EVENT_BYTES_MAX_DEFAULT: u64 = 512 << 20;
/// The least time between two looks for events to remove that refused batches cause: each look takes a lock and walks
/// through all events.
const LOOKS_EVERY_MS: u64 = 1_000;

/// Bounds of a memory store.
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// Bytes of keys, metas and payloads kept; publishing is refused beyond (`memory_bytes` of the configuration).
    /// Default: 512 MiB.
    pub event_bytes_max: u64,
    /// The most topics. Default: 100,000.
    pub topics_max: usize,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            event_bytes_max: EVENT_BYTES_MAX_DEFAULT,
            topics_max: promethean_model::limits::TOPICS_MAX_DEFAULT,
        }
    }
}

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    options: MemoryOptions,
    clock: Arc<dyn Clock>,
    hub: Arc<WatchHub>,
    /// Held for whole commits and reads, never across an await; a commit changes it only once nothing can fail.
    inner: Mutex<MemoryInner>,
}

#[derive(Debug, Default)]
struct MemoryInner {
    topics: BTreeMap<TopicName, MemoryTopic>,
    /// Bytes of the events of all topics.
    event_bytes: u64,
    kv: Kv,
    holds: Holds,
    closed: bool,
    /// The bytes of a batch that was refused for lack of room, until there is room for it or another batch was taken.
    refused_bytes: Option<u64>,
    /// Monotonic time of the last look for events to remove that a refused batch caused.
    looked_ms: Option<u64>,
}

impl MemoryInner {
    fn settings_of(&self, topic: &TopicName) -> Result<TopicSettings, StateFault> {
        match self.topics.get(topic) {
            Some(topic) => Ok(topic.settings.clone()),
            None => Ok(read::settings(&self.kv, topic)?.unwrap_or_default()),
        }
    }

    /// The topic, created with its settings if it does not exist.
    fn topic_mut(&mut self, name: &TopicName) -> &mut MemoryTopic {
        let Self { topics, kv, .. } = self;
        topics.entry(name.clone()).or_insert_with(|| {
            // `settings_of` has refused settings that do not decode.
            MemoryTopic::new(read::settings(kv, name).ok().flatten().unwrap_or_default())
        })
    }

    /// Applies retention and compaction. Holds do not count while the store is full.
    fn maintain(&mut self, now_ms: i64, bytes_max: u64) {
        let full = self.refused_bytes.is_some() || self.event_bytes >= bytes_max;
        for (name, topic) in &mut self.topics {
            let hold = if full { None } else { self.holds.lowest(name) };
            topic.maintain(now_ms, hold);
        }
        self.recount(bytes_max);
    }

    fn recount(&mut self, bytes_max: u64) {
        self.event_bytes = self.topics.values().map(|topic| topic.bytes).sum();
        // A server that is not ready gets no publishes that could show that there is room again.
        self.refused_bytes = self.refused_bytes.filter(|bytes| self.event_bytes + bytes > bytes_max);
    }

    fn apply_topic_changes(&mut self, ops: &[StateOp], bytes_max: u64) -> BTreeSet<TopicName> {
        let mut deleted = BTreeSet::new();
        for op in ops {
            match op {
                StateOp::Topic(TopicOp::Create(name)) => {
                    self.topic_mut(name);
                }
                StateOp::Topic(TopicOp::Delete(name)) => {
                    self.topics.remove(name);
                    deleted.insert(name.clone());
                }
                StateOp::Settings(SettingsOp::Put(name, settings)) => {
                    if let Some(topic) = self.topics.get_mut(name) {
                        topic.settings = settings.clone();
                    }
                }
                StateOp::Settings(SettingsOp::Delete(name)) => {
                    if let Some(topic) = self.topics.get_mut(name) {
                        topic.settings = TopicSettings::default();
                    }
                }
                _ => {}
            }
        }
        if !deleted.is_empty() {
            self.recount(bytes_max);
        }
        deleted
    }
}

/// Refuses the durabilities that the embedded store refuses: a topic set up in memory must work with files too.
fn check_offered(batch: &Batch) -> Result<(), CommitError> {
    let of_batch = match batch.class {
        Class::Durable(asked) => asked,
        Class::Derived => None,
    };
    let of_settings = batch.state.iter().filter_map(|op| match op {
        StateOp::Settings(SettingsOp::Put(_, settings)) => settings.durability,
        _ => None,
    });
    match of_batch.into_iter().chain(of_settings).find(|asked| !asked.is_embedded()) {
        Some(asked) => Err(CommitError::NotOffered { asked: asked.as_str(), offered: "`fsync`, `os`" }),
        None => Ok(()),
    }
}

impl plan::TopicLookup for BTreeMap<TopicName, MemoryTopic> {
    fn end(&self, topic: &TopicName) -> Offset {
        Offset(self.get(topic).map_or(0, |topic| topic.next))
    }

    fn change_in_two_steps(&self) -> bool {
        false
    }

    fn number(&self, _topic: &TopicName) -> Option<u32> {
        None
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new(clock: Arc<dyn Clock>, options: MemoryOptions) -> Self {
        let clock = Arc::new(SteadyClock::new(clock));
        Self { options, clock, hub: Arc::default(), inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryInner> {
        // Changes under this lock cannot fail half-way, so a panic elsewhere leaves the content whole.
        self.inner.lock().ignore_poison()
    }

    /// Refuses a batch, or decides what happens to its events. If there is no room for it, retention and compaction are
    /// applied first.
    fn decide(
        &self,
        inner: &mut MemoryInner,
        batch: &Batch,
        now_ms: i64,
    ) -> Result<Vec<append::EventOutcome>, CommitError> {
        let decided = append::decide(inner, &self.options, batch);
        if !matches!(decided, Err(CommitError::StorageFull { .. })) {
            return decided;
        }
        inner.refused_bytes = Some(batch.bytes() as u64);
        let now = self.clock.monotonic_ms();
        if inner.looked_ms.is_some_and(|looked| now.saturating_sub(looked) < LOOKS_EVERY_MS) {
            return decided;
        }
        inner.looked_ms = Some(now);
        inner.maintain(now_ms, self.options.event_bytes_max);
        append::decide(inner, &self.options, batch)
    }

    fn point<T>(&self, read: impl FnOnce(&dyn View) -> Result<T, StateFault>) -> Result<T, ReadError> {
        Ok(read(&self.lock().kv)?)
    }

    /// Reads on the caller's thread: memory is fast enough.
    async fn long<T>(&self, read: impl FnOnce(&dyn View) -> Result<T, ReadError>) -> Result<T, ReadError> {
        read(&self.lock().kv)
    }
}

/// Why a full store refuses events, and what helps.
fn full(inner: &MemoryInner, options: &MemoryOptions) -> String {
    format!(
        "the events in memory take {} of {} bytes (`memory_bytes`); set a retention, delete topics, or set more bytes",
        inner.event_bytes, options.event_bytes_max
    )
}

impl_state_reads!(MemoryStore);

impl Backups for MemoryStore {}

impl Watch for MemoryStore {
    fn watch(&self, topic: &TopicName) -> EndWatch {
        self.hub.follow(topic, || self.durable_end(topic))
    }

    fn durable_end(&self, topic: &TopicName) -> Offset {
        Offset(self.lock().topics.get(topic).map_or(0, |topic| topic.next))
    }

    fn has_topic(&self, topic: &TopicName) -> bool {
        self.lock().topics.contains_key(topic)
    }

    fn topic_room(&self) -> TopicRoom {
        TopicRoom { topics: self.lock().topics.len(), max: self.options.topics_max }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn check_derived(&self, batch: &Batch) -> Result<(), CommitError> {
        plan::check(batch)?;
        let inner = self.lock();
        if inner.closed {
            return Err(CommitError::Closed);
        }
        let context = plan::PlanContext { view: &inner.kv, topics: &inner.topics };
        plan::plan(batch.class, &batch.state, &context).map(drop)
    }

    async fn commit(&self, batch: Batch) -> Result<Receipt, CommitError> {
        plan::check(&batch)?;
        let now_ms = self.clock.wall_ms();
        check_offered(&batch)?;
        let Batch { class, events, state, .. } = &batch;
        let touched: BTreeSet<TopicName> = events.iter().map(|event| event.topic.clone()).collect();
        let mut inner = self.lock();
        if inner.closed {
            return Err(CommitError::Closed);
        }
        let outcomes = self.decide(&mut inner, &batch, now_ms)?;
        let context = plan::PlanContext { view: &inner.kv, topics: &inner.topics };
        let writes = plan::plan(*class, state, &context)?;
        // No step below can fail.
        if !batch.events.is_empty() {
            inner.refused_bytes = None;
        }
        let events = append::place(&mut inner, batch.events, &outcomes, now_ms);
        inner.kv.apply(writes);
        let deleted = inner.apply_topic_changes(&batch.state, self.options.event_bytes_max);
        let ends: Vec<_> = touched
            .into_iter()
            .filter_map(|name| inner.topics.get(&name).map(|topic| (Offset(topic.next), name.clone())))
            .collect();
        drop(inner);
        ends.into_iter().for_each(|(end, name)| self.hub.moved(&name, end));
        deleted.iter().for_each(|name| self.hub.reset(name));
        Ok(Receipt { events, durability: None })
    }

    /// Also applies retention and compaction, which in the embedded store the log does by itself.
    async fn sweep(&self, now_ms: i64) -> Result<bool, CommitError> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(CommitError::Closed);
        }
        inner.maintain(now_ms, self.options.event_bytes_max);
        let piece = plan::sweep::piece(&inner.kv, now_ms)?;
        inner.kv.apply(piece.writes);
        Ok(piece.more)
    }

    fn hold(&self, topic: &TopicName, holder: &GroupName, from: Option<Offset>) {
        self.lock().holds.set(topic, holder.as_str(), from.map(Offset::get));
    }

    fn holds_are_set(&self) {}

    fn health(&self) -> Health {
        let inner = self.lock();
        let full = || inner.refused_bytes.map(|_| full(&inner, &self.options));
        let refusing = inner.closed.then(|| "closed".to_owned()).or_else(full);
        Health { refusing, ..Health::default() }
    }

    async fn close(&self) {
        self.lock().closed = true;
        self.hub.close();
    }
}
