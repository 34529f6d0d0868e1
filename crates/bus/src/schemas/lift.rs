//! Lifting: old events become events of the latest version when they are read.

use std::ops::Range;
use std::sync::Arc;

use promethean_jq::{Caps, JobWatch, Lane, PoolError, Program, RunError};
use promethean_model::{EventMeta, TopicName};
use promethean_schema::VERSION_HEADER;
use promethean_store::port::{EventBody, StoredEvent};
use serde::Serialize;

use super::cache::CompiledSchema;
use super::catalog::TopicVersions;
use super::evolution::{LiftPath, lift_path};
use super::{ERROR_HEADER, Schemas, compiler};
use crate::error::BusError;

/// Events of one job of the pool.
const CHUNK: usize = 64;
/// Bytes of a reason in a header, at most.
const REASON_BYTES_MAX: usize = 300;

/// An event in the form of its topic's latest version, or as it is stored if it could not be lifted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifted {
    /// The event. If it could not be lifted, the header `x-normalize-error` has the reason.
    pub event: StoredEvent,
    /// Whether it was lifted.
    pub outcome: LiftOutcome,
}

/// Whether an event was lifted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LiftOutcome {
    /// It stays as it is: it is of the latest version, a tombstone, or from before the first schema.
    Same,
    /// It was lifted.
    Lifted {
        /// From this version.
        from: u32,
        /// To this one.
        to: u32,
    },
    /// It could not be lifted.
    Failed {
        /// Its version.
        from: u32,
        /// Why.
        reason: String,
    },
}

impl Schemas {
    /// Lifts an event to the latest version of its topic.
    pub(crate) async fn lift(&self, event: StoredEvent) -> Lifted {
        let lifted = lift(self, vec![event.clone()], Lane::Read).await.pop();
        lifted.unwrap_or(Lifted { event, outcome: LiftOutcome::Same })
    }

    /// Lifts events and keeps their order.
    pub(crate) async fn lift_all(&self, events: Vec<StoredEvent>) -> Vec<StoredEvent> {
        lift_events(self, events).await
    }
}

/// Lifts events for a reader and keeps their order.
pub(crate) async fn lift_events(schemas: &Schemas, events: Vec<StoredEvent>) -> Vec<StoredEvent> {
    lift(schemas, events, Lane::Read).await.into_iter().map(|lifted| lifted.event).collect()
}

/// One event to lift, as the pool sees it.
struct LiftJob {
    place: usize,
    from: u32,
    payload: String,
    programs: Vec<Program>,
    target: Arc<CompiledSchema>,
}

/// Lifts events and keeps their order. Every event is returned, also one that could not be lifted.
pub(crate) async fn lift(schemas: &Schemas, events: Vec<StoredEvent>, lane: Lane) -> Vec<Lifted> {
    let mut lifted: Vec<Lifted> = Vec::with_capacity(events.len());
    let mut jobs: Vec<LiftJob> = Vec::new();
    let mut topic: Option<LiftTarget> = None;
    for (place, event) in events.into_iter().enumerate() {
        if topic.as_ref().is_none_or(|topic| topic.name != event.topic) {
            topic = Some(LiftTarget::find(schemas, &event.topic).await);
        }
        let outcome = match topic.as_ref().map(|topic| topic.plan(schemas, &event)) {
            Some(LiftPlan::Lift { from, programs, target }) => {
                let payload = String::from_utf8_lossy(event.payload()).into_owned();
                jobs.push(LiftJob { place, from, payload, programs, target });
                LiftOutcome::Same
            }
            Some(LiftPlan::Fail { from, reason }) => LiftOutcome::Failed { from, reason },
            Some(LiftPlan::Same) | None => LiftOutcome::Same,
        };
        lifted.push(Lifted { event, outcome });
    }
    while !jobs.is_empty() {
        let chunk: Arc<[LiftJob]> = jobs.drain(..jobs.len().min(CHUNK)).collect();
        let places: Vec<(usize, u32, u32)> =
            chunk.iter().map(|job| (job.place, job.from, job.target.version)).collect();
        let mut done = Vec::new();
        match run(schemas, lane, &chunk, 0..chunk.len()).await {
            Ok(results) => done = results,
            // One of the events took too long, and the job cannot say which: each gets a job of its own.
            Err(PoolError::Time { .. }) if chunk.len() > 1 => {
                for at in 0..chunk.len() {
                    done.push(match run(schemas, lane, &chunk, at..at + 1).await {
                        Ok(results) => results.into_iter().next().unwrap_or_else(|| Err(String::new())),
                        Err(lost) => Err(RunError::from(lost).to_string()),
                    });
                }
            }
            Err(lost) => done.resize(chunk.len(), Err(RunError::from(lost).to_string())),
        }
        for ((place, from, to), result) in places.into_iter().zip(done) {
            let Some(lifted) = lifted.get_mut(place) else { continue };
            match result {
                Ok(payload) => {
                    lifted.event =
                        changed(&lifted.event, &[(VERSION_HEADER, to.to_string())], payload.as_bytes());
                    lifted.outcome = LiftOutcome::Lifted { from, to };
                }
                Err(reason) => lifted.outcome = LiftOutcome::Failed { from, reason },
            }
        }
    }
    for lifted in &mut lifted {
        if let LiftOutcome::Failed { reason, .. } = &lifted.outcome {
            schemas.base.metrics.topic(&lifted.event.topic).lift_failures.inc();
            let payload = lifted.event.payload().to_vec();
            lifted.event = changed(&lifted.event, &[(ERROR_HEADER, header_text(reason))], &payload);
        }
    }
    let lost = schemas.jq_pool.status().lost;
    schemas.base.metrics.server().jq_lost.set(i64::try_from(lost).unwrap_or(i64::MAX));
    lifted
}

/// Lifts a part of these events, in one job.
async fn run(
    schemas: &Schemas,
    lane: Lane,
    jobs: &Arc<[LiftJob]>,
    part: Range<usize>,
) -> Result<Vec<Result<String, String>>, PoolError> {
    let payload_bytes_max = schemas.base.options.limits.payload_bytes_max;
    let jobs = Arc::clone(jobs);
    let work = move |watch: &JobWatch| {
        let jobs = jobs.get(part).unwrap_or_default();
        jobs.iter().map(|job| job.run(watch, payload_bytes_max)).collect()
    };
    schemas.jq_pool.work(lane, Caps::default().time, work).await
}

impl LiftJob {
    fn run(&self, watch: &JobWatch, payload_bytes_max: usize) -> Result<String, String> {
        let mut payload = self.payload.clone();
        for program in &self.programs {
            payload = program.call_one(watch, &payload).map_err(|error| error.to_string())?;
        }
        // A stored payload that no program changed may be longer: the limit can have been lowered since.
        if !self.programs.is_empty() && payload.len() > payload_bytes_max {
            let bytes = payload.len();
            return Err(format!(
                "the output of the upcasters has {bytes} bytes; the limit is {payload_bytes_max}"
            ));
        }
        self.target.check(&payload).map_err(|error| match error {
            BusError::SchemaRejected(rejected) => {
                let first = rejected.violations.first();
                let what = first
                    .map(|first| format!(": at `{}`, {}", first.path, first.message))
                    .unwrap_or_default();
                let how = if self.programs.is_empty() {
                    "without an upcaster it"
                } else {
                    "what the upcasters give"
                };
                format!("{how} does not fit version {}{what}", self.target.version)
            }
            error => error.to_string(),
        })?;
        Ok(payload)
    }
}

/// The versions of a topic, and its latest schema, while its events are lifted.
struct LiftTarget {
    name: TopicName,
    versions: Option<Arc<TopicVersions>>,
    target: Option<Result<Arc<CompiledSchema>, BusError>>,
}

/// What to do with an event.
enum LiftPlan {
    Same,
    Lift { from: u32, programs: Vec<Program>, target: Arc<CompiledSchema> },
    Fail { from: u32, reason: String },
}

impl LiftTarget {
    async fn find(schemas: &Schemas, name: &TopicName) -> Self {
        let versions = schemas.catalog.get(name);
        let latest = versions.as_ref().and_then(|versions| versions.latest()).map(|known| known.info.clone());
        let target = match latest {
            Some(info) => Some(compiler::compiled(schemas, name, &info).await),
            None => None,
        };
        Self { name: name.clone(), versions, target }
    }

    fn plan(&self, schemas: &Schemas, event: &StoredEvent) -> LiftPlan {
        let (Some(versions), Some(target)) = (&self.versions, &self.target) else { return LiftPlan::Same };
        if event.is_tombstone() {
            return LiftPlan::Same;
        }
        let from = match version_of(event) {
            Ok(from) => from,
            Err(reason) => return LiftPlan::Fail { from: 0, reason },
        };
        let evolution = schemas.catalog.evolution(&self.name);
        match (lift_path(versions, evolution.as_deref(), from), target) {
            (LiftPath::Same, _) => LiftPlan::Same,
            (LiftPath::Through(programs), Ok(target)) => {
                LiftPlan::Lift { from, programs, target: Arc::clone(target) }
            }
            (LiftPath::Through(_), Err(error)) => LiftPlan::Fail { from, reason: error.to_string() },
            (LiftPath::None(reason), _) => LiftPlan::Fail { from, reason },
        }
    }
}

/// The version that an event names in its header; 0 if it names none.
pub(crate) fn version_of(event: &StoredEvent) -> Result<u32, String> {
    let name = VERSION_HEADER.as_bytes();
    // Most events without a version are told without decoding their meta.
    if !event.meta().windows(name.len()).any(|part| part == name) {
        return Ok(0);
    }
    let meta = EventMeta::decode(event.meta()).map_err(|error| error.to_string())?;
    let Some(version) = meta.headers.as_ref().and_then(|headers| headers.get(VERSION_HEADER)) else {
        return Ok(0);
    };
    version
        .parse()
        .map_err(|_| format!("the header `{VERSION_HEADER}` is `{version}`, which is not a version"))
}

/// The event with other headers and another payload.
fn changed(event: &StoredEvent, headers: &[(&str, String)], payload: &[u8]) -> StoredEvent {
    // Meta that cannot be decoded is passed on as it is.
    let mut meta = event.meta().to_vec();
    if let Ok(mut decoded) = EventMeta::decode(&meta) {
        let all = decoded.headers.get_or_insert_default();
        all.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        meta.clear();
        decoded.encode(&mut meta);
    }
    let body = EventBody { key: event.key_bytes(), meta: &meta, payload };
    event.clone().with_body(body)
}

/// Makes a reason fit for a header: one line, and not too long.
fn header_text(reason: &str) -> String {
    let plain = reason.chars().map(|char| if char.is_control() { ' ' } else { char });
    plain
        .scan(0, |bytes, char| {
            *bytes += char.len_utf8();
            (*bytes <= REASON_BYTES_MAX).then_some(char)
        })
        .collect()
}
