//! From requests to what is in the log.
//!
//! - `telling`: what is counted, and who hears of topics that are born

mod telling;

use std::collections::BTreeMap;
use std::sync::Arc;

use promethean_model::{Durability, TopicName, TopicSettings};
use promethean_store::port::{AppendEvent, Batch, Class, StateOp, Turn};

pub(crate) use self::telling::Counts;
use self::telling::Unheard;
use crate::changing::Passes;
use crate::core::Core;
use crate::error::BusError;
use crate::publish::{Checked, Pending, Prepared, Publish, Published, Writer, check};
use crate::schemas::{self, SchemaVersion};

/// Publishes events in their order, each by itself.
pub(crate) async fn publish_each(core: &Core, events: Vec<Publish<'_>>) -> Vec<Result<Published, BusError>> {
    let mut settings = LastSettings::new(core);
    let ready = events.into_iter().map(|event| prepare(core, event, &mut settings, true)).collect();
    commit_each(core, ready, None).await
}

/// Publishes what the server itself derives: to topics of the system too, and whatever their rate.
pub(crate) async fn publish_derived(
    core: &Core,
    events: Vec<Publish<'_>>,
) -> Vec<Result<Published, BusError>> {
    let mut settings = LastSettings::new(core);
    let mut ready = Vec::with_capacity(events.len());
    for event in events {
        let writer = if event.topic().is_system() { Writer::System } else { Writer::User };
        ready.push(prepare_as(core, event, &mut settings, writer));
    }
    commit_each(core, ready, None).await
}

/// Commits events that were prepared, and answers for those that were not.
pub(crate) async fn commit_each(
    core: &Core,
    events: Vec<Result<Prepared, BusError>>,
    turn: Option<Turn>,
) -> Vec<Result<Published, BusError>> {
    let mut results = Vec::with_capacity(events.len());
    let mut run = Run::of(core, events.len());
    let mut settings = LastSettings::new(core);
    for event in events {
        match check_topic(core, event, &mut run.passes).await {
            Ok(prepared) if prepared.expects_nothing() && !core.schemas.is_dual(&prepared.event.topic) => {
                let durability = settings.get(&prepared.event.topic).durability;
                if run.durability != durability || run.is_full() {
                    run.flush(core, &mut results, None).await;
                    run.durability = durability;
                }
                run.add(results.len(), prepared);
                // Its place, until the run is flushed.
                results.push(Err(BusError::Closed));
            }
            Ok(prepared) => {
                run.flush(core, &mut results, None).await;
                results.push(publish_expecting(core, prepared).await);
            }
            Err(error) => {
                core.metrics.rejected(&error);
                results.push(Err(error));
            }
        }
    }
    run.flush(core, &mut results, turn).await;
    results
}

/// Neighbours that go to the store in one call.
struct Run<'a> {
    durability: Option<Durability>,
    /// With their places in the results.
    pending: Vec<(usize, Pending)>,
    events: Vec<AppendEvent>,
    /// Held until it is known what became of the events.
    stamps: Vec<SchemaVersion>,
    passes: Passes<'a>,
    bytes: usize,
}

/// What goes to the store in one call, so that it fits a frame of the journal.
const RUN_EVENTS_MAX: usize = 1_000;
const RUN_BYTES_MAX: usize = 4 << 20;

impl<'a> Run<'a> {
    fn is_full(&self) -> bool {
        self.events.len() >= RUN_EVENTS_MAX || self.bytes >= RUN_BYTES_MAX
    }

    fn of(core: &'a Core, events: usize) -> Self {
        let room = events.min(RUN_EVENTS_MAX);
        Self {
            durability: None,
            pending: Vec::with_capacity(room),
            events: Vec::with_capacity(room),
            stamps: Vec::new(),
            passes: Passes::new(&core.changing),
            bytes: 0,
        }
    }

    fn add(&mut self, place: usize, prepared: Prepared) {
        let id = prepared.event.id.id();
        let topic = prepared.event.topic.clone();
        self.pending.push((place, Pending { id, topic, partition: prepared.partition }));
        self.bytes += prepared.event.bytes();
        self.stamps.extend(prepared.stamp);
        self.events.push(prepared.event);
    }

    async fn flush(&mut self, core: &Core, results: &mut [Result<Published, BusError>], turn: Option<Turn>) {
        if self.events.is_empty() {
            self.passes.clear();
            return;
        }
        self.bytes = 0;
        let unheard = Unheard::new(core, self.pending.iter().map(|(_, pending)| &pending.topic));
        let outcomes = core.store.append_each(std::mem::take(&mut self.events), self.durability, turn).await;
        unheard.heard();
        self.stamps.clear();
        self.passes.clear();
        let mut counts = Counts::new(core);
        for ((place, pending), outcome) in self.pending.drain(..).zip(outcomes) {
            let result = match outcome {
                Ok(appended) => {
                    counts.add(&pending.topic, appended.placed);
                    let word = appended.durability.map_or("memory", Durability::as_str);
                    Ok(Published::new(pending, appended.placed, word))
                }
                Err(error) => {
                    let error = BusError::from(error);
                    core.metrics.rejected(&error);
                    Err(error)
                }
            };
            if let Some(slot) = results.get_mut(place) {
                *slot = result;
            }
        }
    }
}

async fn publish_expecting(core: &Core, prepared: Prepared) -> Result<Published, BusError> {
    let durability = core.settings.get(&prepared.event.topic).durability;
    let published = commit(core, durability, vec![prepared], Vec::new(), None).await;
    let published = published.inspect_err(|error| core.metrics.rejected(error))?;
    published.into_iter().next().ok_or(BusError::Closed)
}

/// Publishes events in one commit. It is as durable as the most demanding of its topics.
pub(crate) async fn publish_batch(core: &Core, events: Vec<Publish<'_>>) -> Result<Vec<Published>, BusError> {
    let prepared = prepare_batch(core, events);
    commit_batch(core, prepared, None).await
}

/// Commits a batch that was prepared, or answers for one that was not.
pub(crate) async fn commit_batch(
    core: &Core,
    prepared: Result<PreparedBatch, BusError>,
    turn: Option<Turn>,
) -> Result<Vec<Published>, BusError> {
    let refuse = |error: &BusError| core.metrics.rejected(error);
    let PreparedBatch { durability, events } = prepared.inspect_err(refuse)?;
    commit(core, durability, events, Vec::new(), turn).await.inspect_err(refuse)
}

/// Events for one commit, and how durable it must be.
#[derive(Debug)]
pub(crate) struct PreparedBatch {
    pub(crate) durability: Option<Durability>,
    pub(crate) events: Vec<Prepared>,
}

/// Checks events for one commit.
pub(crate) fn prepare_batch(core: &Core, events: Vec<Publish<'_>>) -> Result<PreparedBatch, BusError> {
    if core.is_closed() {
        return Err(BusError::Closed);
    }
    core.options.limits.check_batch(events.len())?;
    take_rates(core, &events)?;
    let mut prepared = Vec::with_capacity(events.len());
    let mut durability = Some(Durability::Os);
    let mut settings = LastSettings::new(core);
    for (index, event) in events.into_iter().enumerate() {
        let event = prepare(core, event, &mut settings, false).map_err(|error| error.in_batch(index))?;
        if settings.get(&event.event.topic).durability != Some(Durability::Os) {
            durability = None;
        }
        prepared.push(event);
    }
    Ok(PreparedBatch { durability: durability.filter(|_| !prepared.is_empty()), events: prepared })
}

/// Commits events, and state with them.
pub(crate) async fn commit(
    core: &Core,
    mut durability: Option<Durability>,
    mut prepared: Vec<Prepared>,
    state: Vec<StateOp>,
    turn: Option<Turn>,
) -> Result<Vec<Published>, BusError> {
    check_topics(core, &prepared).await?;
    let many = prepared.len() > 1;
    let mut passes = Passes::new(&core.changing);
    for (index, event) in prepared.iter_mut().enumerate() {
        let finished = finish(core, event, &mut passes).await;
        finished.map_err(|error| if many { error.in_batch(index) } else { error })?;
    }
    let asked = prepared.len();
    let events: Vec<&AppendEvent> = prepared.iter().map(|prepared| &prepared.event).collect();
    for copy in schemas::copies(core, &events).await? {
        if core.settings.get(&copy.event.topic).durability != Some(Durability::Os) {
            durability = None;
        }
        prepared.push(copy);
    }
    // Held until it is known what became of the events.
    let stamps: Vec<SchemaVersion> = prepared.iter_mut().filter_map(|event| event.stamp.take()).collect();
    let mut batch = Batch { state, ..Batch::of(Class::Durable(durability)) };
    let pending: Vec<Pending> = prepared.into_iter().map(|event| event.add_to(&mut batch)).collect();
    let unheard = Unheard::new(core, pending.iter().map(|pending| &pending.topic));
    let receipt = core.store.commit_in_turn(batch, turn).await;
    unheard.heard();
    drop((stamps, passes));
    let receipt = receipt?;
    let mut counts = Counts::new(core);
    for (pending, placed) in pending.iter().zip(&receipt.events) {
        counts.add(&pending.topic, *placed);
    }
    let mut published = Published::all(pending, &receipt);
    published.truncate(asked);
    Ok(published)
}

/// A batch takes the tokens of all its events or of none.
fn take_rates(core: &Core, events: &[Publish<'_>]) -> Result<(), BusError> {
    let Some(rates) = &core.topic_rates else { return Ok(()) };
    let mut wanted: BTreeMap<&TopicName, u32> = BTreeMap::new();
    for event in events {
        *wanted.entry(event.topic()).or_default() += 1;
    }
    let now_ms = core.clock.monotonic_ms();
    let mut taken: Vec<(&TopicName, u32)> = Vec::new();
    for (topic, count) in wanted {
        if let Err(refused) = rates.take(topic, count, now_ms) {
            core.metrics.topic(topic).rate_limited.add(u64::from(count));
            taken.into_iter().for_each(|(topic, count)| rates.put_back(topic, count, now_ms));
            return Err(refused.into());
        }
        taken.push((topic, count));
    }
    Ok(())
}

/// What can be said of an event before its settings are looked at.
fn check_event(core: &Core, event: Publish<'_>, writer: Writer) -> Result<Checked, BusError> {
    if core.is_closed() {
        return Err(BusError::Closed);
    }
    check(event, writer, &core.options.limits)
}

/// Checks an event as far as that can be done at once.
pub(crate) fn prepare(
    core: &Core,
    event: Publish<'_>,
    settings: &mut LastSettings<'_>,
    rated: bool,
) -> Result<Prepared, BusError> {
    if rated && core.topic_rates.is_some() {
        take_rates(core, std::slice::from_ref(&event))?;
    }
    prepare_as(core, event, settings, Writer::User)
}

fn prepare_as(
    core: &Core,
    event: Publish<'_>,
    settings: &mut LastSettings<'_>,
    writer: Writer,
) -> Result<Prepared, BusError> {
    let mut checked = check_event(core, event, writer)?;
    let settings = settings.get(checked.topic());
    let stamp = schemas::stamp(core, &mut checked, settings)?;
    let prepared = checked.prepare(settings, &core.mint, core.clock.wall_ms())?;
    Ok(Prepared { stamp, ..prepared })
}

/// Sees to it that what an event is stamped with is true, and stays so until the passes are given back: with its topic,
/// the schema would be gone, and the event the first of another topic.
async fn finish(core: &Core, event: &mut Prepared, passes: &mut Passes<'_>) -> Result<(), BusError> {
    if event.stamp.is_some() {
        passes.add(&event.event.topic)?;
    }
    schemas::finish(core, event).await
}

/// Refuses a topic that does not exist where publishing does not create topics.
async fn check_topic(
    core: &Core,
    event: Result<Prepared, BusError>,
    passes: &mut Passes<'_>,
) -> Result<Prepared, BusError> {
    let mut event = event?;
    finish(core, &mut event, passes).await?;
    if !core.options.auto_create {
        check_topics(core, std::slice::from_ref(&event)).await?;
    }
    Ok(event)
}

async fn check_topics(core: &Core, events: &[Prepared]) -> Result<(), BusError> {
    if core.options.auto_create {
        return Ok(());
    }
    for Prepared { event, .. } in events {
        // Those of the system come with what they are about.
        if !event.topic.is_system() && core.store.topic_info(&event.topic).await?.is_none() {
            return Err(BusError::AutoCreateOff { topic: event.topic.clone() });
        }
    }
    Ok(())
}

/// The settings of a topic, looked up once for neighbours of one topic.
pub(crate) struct LastSettings<'a> {
    core: &'a Core,
    last: Option<(TopicName, Arc<TopicSettings>)>,
}

impl<'a> LastSettings<'a> {
    pub(crate) const fn new(core: &'a Core) -> Self {
        Self { core, last: None }
    }

    fn get(&mut self, topic: &TopicName) -> &TopicSettings {
        let last = self.last.take().filter(|(last, _)| last == topic);
        &self.last.insert(last.unwrap_or_else(|| (topic.clone(), self.core.settings.get(topic)))).1
    }
}
