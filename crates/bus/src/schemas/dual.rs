//! Dual-write: new events published in their old form too, for readers of the old version.

use promethean_jq::{Caps, Lane, PoolError, RunError};
use promethean_model::limits::EventParts;
use promethean_model::{EventId, EventMeta, TopicName, partition_of};
use promethean_schema::VERSION_HEADER;
use promethean_store::port::{AppendEvent, EventIdSource};

use super::evolution::DualWrite;
use super::info::WhichSchema;
use super::registry::find;
use super::{compiler, gate};
use crate::core::Core;
use crate::error::BusError;
use crate::publish::Prepared;

/// Makes the old forms of events whose topic has dual-write, in their order. They go into the same commit.
pub(crate) async fn copies(core: &Core, events: &[&AppendEvent]) -> Result<Vec<Prepared>, BusError> {
    let mut copies = Vec::new();
    for event in events {
        if let Some(dual) = core.schemas.dual(&event.topic) {
            copies.push(copy(core, event, dual).await?);
        }
    }
    Ok(copies)
}

async fn copy(core: &Core, event: &AppendEvent, dual: DualWrite) -> Result<Prepared, BusError> {
    let version = dual.version;
    let failed = |reason: String| BusError::DowncastFailed { topic: event.topic.clone(), version, reason };
    let topic = event.topic.versioned(version)?;
    let mut meta = EventMeta::decode(&event.meta).map_err(|error| failed(error.to_string()))?;
    let stamp = meta.headers.as_ref().and_then(|headers| headers.get(VERSION_HEADER)).map(String::as_str);
    let payload = if event.payload == gate::TOMBSTONE || stamp == Some(&version.to_string()) {
        event.payload.clone()
    } else if let Some(stamp) = stamp.filter(|stamp| *stamp != dual.from.to_string()) {
        let from = dual.from;
        return Err(failed(format!("it is of version {stamp}, and the downcaster takes version {from}")));
    } else {
        let info = find(core, &event.topic, WhichSchema::Version(version))?;
        let compiled = compiler::compiled(core, &event.topic, &info).await?;
        let payload = event.payload.clone();
        let done = core.jq_pool.work(Lane::Publish, Caps::default().time, move |watch| {
            let old = dual.program.call_one(watch, &payload).map_err(|error| error.to_string())?;
            compiled.check(&old).map_err(|error| format!("what the downcaster gives is refused: {error}"))?;
            Ok::<String, String>(old)
        });
        let not_run = |error| match error {
            PoolError::Busy | PoolError::NoThread => BusError::Busy { what: "programs" },
            PoolError::Stuck => failed(RunError::Stuck.to_string()),
        };
        done.await.map_err(not_run)?.map_err(failed)?
    };
    let none = EventMeta::default();
    core.options.limits.check_event(&EventParts { key: None, payload_bytes: payload.len(), meta: &none })?;
    let id = match event.id {
        // The copy's id counts as new where the id of the event does.
        EventIdSource::Minted(id) => EventIdSource::Minted(copy_id(&event.topic, version, &id)),
        EventIdSource::Given(id) => EventIdSource::Given(copy_id(&event.topic, version, &id)),
    };
    if payload != gate::TOMBSTONE {
        meta.headers.get_or_insert_default().insert(VERSION_HEADER.to_owned(), version.to_string());
    }
    meta.caused_by = Some(vec![event.id.id()]);
    let partitions = core.settings.get(&topic).partitions;
    meta.partition = partitions.map(|count| partition_of(event.key.as_deref(), &id.id(), count));
    let partition = meta.partition;
    let mut encoded = Vec::new();
    meta.encode(&mut encoded);
    let event = AppendEvent { topic, id, ts: event.ts, key: event.key.clone(), meta: encoded, payload };
    Ok(Prepared { event, partition, expected_end: None, expected_key: None, stamp: None })
}

/// The id of a copy: the same however often the event is published.
fn copy_id(topic: &TopicName, version: u32, id: &EventId) -> EventId {
    let name = [topic.as_str().as_bytes(), &[0], &version.to_be_bytes(), id.as_bytes()].concat();
    EventId::derive(b"dual-write", &name)
}
