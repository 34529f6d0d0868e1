//! Dual-write: new events published in their old form too, for readers of the old version.

use promethean_jq::{Caps, Lane, PoolError, RunError};
use promethean_model::limits::EventParts;
use promethean_model::{EventId, EventMeta, TopicName, partition_of};
use promethean_schema::VERSION_HEADER;
use promethean_store::port::{AppendEvent, EventIdSource};

use super::evolution::DualWrite;
use super::info::WhichSchema;
use super::registry::find;
use super::{Schemas, compiler, gate};
use crate::error::BusError;

impl Schemas {
    /// Makes the old forms of events whose topic has dual-write, in their order. They go into the same
    /// commit.
    pub(crate) async fn old_forms(&self, events: &[AppendEvent]) -> Result<Vec<AppendEvent>, BusError> {
        let mut old_forms = Vec::new();
        for event in events {
            if let Some(dual) = self.catalog.dual(&event.topic) {
                old_forms.push(old_form(self, event, dual).await?);
            }
        }
        Ok(old_forms)
    }
}

async fn old_form(schemas: &Schemas, event: &AppendEvent, dual: DualWrite) -> Result<AppendEvent, BusError> {
    let version = dual.version;
    let failed = |reason: String| BusError::DowncastFailed { topic: event.topic.clone(), version, reason };
    let topic = event.topic.versioned(version)?;
    let mut meta = EventMeta::decode(&event.meta).map_err(|error| failed(error.to_string()))?;
    let stamp = meta.headers.as_ref().and_then(|headers| headers.get(VERSION_HEADER)).map(String::as_str);
    let payload = if event.payload == gate::TOMBSTONE || stamp == Some(&version.to_string()) {
        event.payload.clone()
    } else if let Some(stamp) = stamp.filter(|stamp| *stamp != dual.from.to_string()) {
        let from = dual.from;
        return Err(failed(format!("it has version {stamp}, but the downcaster needs version {from}")));
    } else {
        let info = find(schemas, &event.topic, WhichSchema::Version(version))?;
        let compiled = compiler::compiled(schemas, &event.topic, &info).await?;
        let payload = event.payload.clone();
        let done = schemas.jq_pool.work(Lane::Publish, Caps::default().time, move |watch| {
            let old = dual.program.call_one(watch, &payload).map_err(|error| error.to_string())?;
            compiled
                .check(&old)
                .map_err(|error| format!("the output of the downcaster is refused: {error}"))?;
            Ok::<String, String>(old)
        });
        let not_run = |error| match error {
            PoolError::Busy | PoolError::NoThread => BusError::Busy { what: "programs" },
            PoolError::Time { .. } => failed(RunError::Time.to_string()),
        };
        done.await.map_err(not_run)?.map_err(failed)?
    };
    let none = EventMeta::default();
    schemas.base.options.limits.check_event(&EventParts {
        key: None,
        payload_bytes: payload.len(),
        meta: &none,
    })?;
    let id = match event.id {
        // The id of the old form counts as new where the id of the event does.
        EventIdSource::Minted(id) => EventIdSource::Minted(old_form_id(&event.topic, version, &id)),
        EventIdSource::Given(id) => EventIdSource::Given(old_form_id(&event.topic, version, &id)),
    };
    if payload != gate::TOMBSTONE {
        meta.headers.get_or_insert_default().insert(VERSION_HEADER.to_owned(), version.to_string());
    }
    meta.caused_by = Some(vec![event.id.id()]);
    let partitions = schemas.topics.settings.get(&topic).partitions;
    meta.partition = partitions.map(|count| partition_of(event.key.as_deref(), &id.id(), count));
    let mut encoded = Vec::new();
    meta.encode(&mut encoded);
    Ok(AppendEvent { topic, id, ts: event.ts, key: event.key.clone(), meta: encoded, payload })
}

/// The id of an old form: the same however often the event is published.
fn old_form_id(topic: &TopicName, version: u32, id: &EventId) -> EventId {
    let name = [topic.as_str().as_bytes(), &[0], &version.to_be_bytes(), id.as_bytes()].concat();
    EventId::derive(b"dual-write", &name)
}
