//! From prepared events to the log.

use promethean_model::Durability;
use promethean_store::port::{AppendEvent, Batch, Class, StateOp, Turn};
use tokio::time::Instant;

use super::prepare::{PendingReply, Prepared};
use super::reply::Published;
use crate::error::BusError;
use crate::schemas::{SchemaVersion, Schemas};
use crate::topics::{LastSettings, PendingBirths, PublishCounts, TopicEntries};

/// Events that go to the store in one call, so that they fit a frame of the journal.
const RUN_EVENTS_MAX: usize = 1_000;
/// Bytes that go to the store in one call, but for the last event.
const RUN_BYTES_MAX: usize = 4 << 20;

/// Events for one commit, and how durable it must be.
#[derive(Debug)]
pub(crate) struct PreparedBatch {
    pub(crate) durability: Option<Durability>,
    pub(crate) events: Vec<Prepared>,
}

/// Commits prepared events in their order, each by itself. An event that was refused before keeps its refusal, at its
/// place.
pub(crate) async fn commit_each(
    schemas: &Schemas,
    events: Vec<Result<Prepared, BusError>>,
    turn: Option<Turn>,
) -> Vec<Result<Published, BusError>> {
    let mut replies = Vec::with_capacity(events.len());
    let mut run = AppendRun::new(schemas, events.len());
    let mut settings = LastSettings::new(&schemas.topics);
    for event in events {
        match check_topic(schemas, event, &mut run.entries).await {
            Ok(prepared) if prepared.expects_nothing() && !schemas.is_dual(&prepared.event.topic) => {
                let durability = settings.get(&prepared.event.topic).durability;
                if run.durability != durability || run.is_full() {
                    run.append(&mut replies, None).await;
                    run.durability = durability;
                }
                run.add(replies.len(), prepared);
                // Holds the place of the reply until the run is appended.
                replies.push(Err(BusError::Closed));
            }
            Ok(prepared) => {
                run.append(&mut replies, None).await;
                let durability = settings.get(&prepared.event.topic).durability;
                let batch = PreparedBatch { durability, events: vec![prepared] };
                let published = commit_batch(schemas, Ok(batch), None).await;
                replies.push(published.and_then(|all| all.into_iter().next().ok_or(BusError::Closed)));
            }
            Err(error) => {
                schemas.base.metrics.rejected(&error);
                replies.push(Err(error));
            }
        }
    }
    run.append(&mut replies, turn).await;
    replies
}

/// Commits a prepared batch, and counts the refusal if it is refused.
pub(crate) async fn commit_batch(
    schemas: &Schemas,
    prepared: Result<PreparedBatch, BusError>,
    turn: Option<Turn>,
) -> Result<Vec<Published>, BusError> {
    let committed = match prepared {
        Ok(batch) => commit(schemas, batch, Vec::new(), turn).await,
        Err(error) => Err(error),
    };
    committed.inspect_err(|error| schemas.base.metrics.rejected(error))
}

/// Commits events, and changes of state with them, as one batch.
pub(crate) async fn commit(
    schemas: &Schemas,
    batch: PreparedBatch,
    state: Vec<StateOp>,
    turn: Option<Turn>,
) -> Result<Vec<Published>, BusError> {
    let PreparedBatch { mut durability, events: mut prepared } = batch;
    for event in &prepared {
        require_topic(schemas, event).await?;
    }
    let many = prepared.len() > 1;
    let mut entries = TopicEntries::new(&schemas.topics.gates);
    for (index, event) in prepared.iter_mut().enumerate() {
        let finished = finish_version(schemas, event, &mut entries).await;
        finished.map_err(|error| if many { error.in_batch(index) } else { error })?;
    }
    let mut batch = Batch { state, ..Batch::new() };
    // The versions are held until the outcome is known, so that none of them is deleted before.
    let versions: Vec<SchemaVersion> = prepared.iter_mut().filter_map(|event| event.version.take()).collect();
    let pending: Vec<PendingReply> = prepared.into_iter().map(|event| event.add_to(&mut batch)).collect();
    let old_forms = schemas.old_forms(&batch.events).await?;
    for old_form in &old_forms {
        let of_topic = schemas.topics.settings.get(&old_form.topic).durability;
        durability = Durability::stronger(durability, of_topic);
    }
    batch.events.extend(old_forms);
    batch.class = Class::Durable(durability);
    let topics: Vec<_> = batch.events.iter().map(|event| event.topic.clone()).collect();
    let births = PendingBirths::new(&schemas.topics, &topics);
    let began = Instant::now();
    let receipt = schemas.base.store.commit_in_turn(batch, turn).await;
    schemas.base.metrics.committed(began);
    births.settle();
    drop((versions, entries));
    let receipt = receipt?;
    let mut counts = PublishCounts::new(&schemas.topics);
    for (topic, placed) in topics.iter().zip(&receipt.events) {
        counts.add(topic, *placed);
    }
    Ok(Published::all(pending, &receipt))
}

/// Neighbouring events that go to the store in one call.
struct AppendRun<'a> {
    schemas: &'a Schemas,
    durability: Option<Durability>,
    /// With the places of their replies.
    pending: Vec<(usize, PendingReply)>,
    events: Vec<AppendEvent>,
    /// Held until the outcome is known, so that none of these versions is deleted before.
    versions: Vec<SchemaVersion>,
    entries: TopicEntries<'a>,
    bytes: usize,
}

impl<'a> AppendRun<'a> {
    fn new(schemas: &'a Schemas, events: usize) -> Self {
        let room = events.min(RUN_EVENTS_MAX);
        Self {
            schemas,
            durability: None,
            pending: Vec::with_capacity(room),
            events: Vec::with_capacity(room),
            versions: Vec::new(),
            entries: TopicEntries::new(&schemas.topics.gates),
            bytes: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.events.len() >= RUN_EVENTS_MAX || self.bytes >= RUN_BYTES_MAX
    }

    fn add(&mut self, place: usize, prepared: Prepared) {
        let id = prepared.event.id.id();
        let topic = prepared.event.topic.clone();
        self.pending.push((place, PendingReply { id, topic, partition: prepared.partition }));
        self.bytes += prepared.event.bytes();
        self.versions.extend(prepared.version);
        self.events.push(prepared.event);
    }

    /// Appends what was added, and puts the replies at their places.
    async fn append(&mut self, replies: &mut [Result<Published, BusError>], turn: Option<Turn>) {
        if self.events.is_empty() {
            self.entries.clear();
            return;
        }
        let (base, topics) = (&self.schemas.base, &self.schemas.topics);
        self.bytes = 0;
        let births = PendingBirths::new(topics, self.pending.iter().map(|(_, pending)| &pending.topic));
        let began = Instant::now();
        let outcomes = base.store.append_each(std::mem::take(&mut self.events), self.durability, turn).await;
        base.metrics.committed(began);
        births.settle();
        self.versions.clear();
        self.entries.clear();
        let mut counts = PublishCounts::new(topics);
        for ((place, pending), outcome) in self.pending.drain(..).zip(outcomes) {
            let reply = match outcome {
                Ok(appended) => {
                    counts.add(&pending.topic, appended.placed);
                    let word = appended.durability.map_or("memory", Durability::as_str);
                    Ok(Published::new(pending, appended.placed, word))
                }
                Err(error) => {
                    let error = BusError::from(error);
                    base.metrics.rejected(&error);
                    Err(error)
                }
            };
            if let Some(slot) = replies.get_mut(place) {
                *slot = reply;
            }
        }
    }
}

/// Checks the payload against the version it is stamped with, if that is not done yet. The version stays true until the
/// entries are given back: the topic, and its schemas with it, is not deleted before.
async fn finish_version(
    schemas: &Schemas,
    event: &mut Prepared,
    entries: &mut TopicEntries<'_>,
) -> Result<(), BusError> {
    let Prepared { event, version: Some(version), .. } = event else { return Ok(()) };
    entries.add(&event.topic)?;
    schemas.finish_gate(&event.topic, &event.payload, version).await
}

async fn check_topic(
    schemas: &Schemas,
    event: Result<Prepared, BusError>,
    entries: &mut TopicEntries<'_>,
) -> Result<Prepared, BusError> {
    let mut event = event?;
    finish_version(schemas, &mut event, entries).await?;
    require_topic(schemas, &event).await?;
    Ok(event)
}

/// Refuses a topic that does not exist where publishing does not create topics.
async fn require_topic(schemas: &Schemas, Prepared { event, .. }: &Prepared) -> Result<(), BusError> {
    let base = &schemas.base;
    // Topics of the system are created together with the topic they are about.
    if base.options.auto_create || event.topic.is_system() {
        return Ok(());
    }
    match base.store.topic_info(&event.topic).await? {
        Some(_) => Ok(()),
        None => Err(BusError::AutoCreateOff { topic: event.topic.clone() }),
    }
}
