//! From a publisher's request to events in the log.
//!
//! ```text
//! Publish --prepare--> Prepared --commit--> store --> Published
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `request` | what a publisher asks for |
//! | `prepare` | the checks of a request, and the event to append |
//! | `commit` | prepared events on their way to the store |
//! | `publisher` | a publisher with a rate and an order of its own, such as a connection |
//! | `reply` | the reply to a publish |

mod commit;
mod prepare;
mod publisher;
mod reply;
mod request;

use std::collections::BTreeMap;

use promethean_model::{Durability, TopicName};

pub(crate) use self::commit::{PreparedBatch, commit, commit_batch, commit_each};
pub(crate) use self::prepare::checked_payload;
use self::prepare::{Prepared, PublishedBy, prepare};
pub use self::publisher::{Publisher, Ready};
pub use self::reply::Published;
pub use self::request::{Payload, Publish};
use crate::error::{BusError, RateOwner};
use crate::schemas::Schemas;
use crate::topics::LastSettings;

/// Publishes events in their order, each by itself.
pub(crate) async fn publish_each(
    schemas: &Schemas,
    events: Vec<Publish<'_>>,
) -> Vec<Result<Published, BusError>> {
    let mut settings = LastSettings::new(&schemas.topics);
    let ready = events.into_iter().map(|event| prepare_rated(schemas, event, &mut settings)).collect();
    commit_each(schemas, ready, None).await
}

/// Publishes events that the server derives: also to topics of the system, and without rate limits.
pub(crate) async fn publish_derived(
    schemas: &Schemas,
    events: Vec<Publish<'_>>,
) -> Vec<Result<Published, BusError>> {
    let mut settings = LastSettings::new(&schemas.topics);
    let mut ready = Vec::with_capacity(events.len());
    for event in events {
        let writer = if event.topic().is_system() { PublishedBy::System } else { PublishedBy::User };
        let settings = settings.get(event.topic());
        ready.push(prepare(schemas, event, settings, writer));
    }
    commit_each(schemas, ready, None).await
}

/// Publishes events in one commit: all of them or none.
pub(crate) async fn publish_batch(
    schemas: &Schemas,
    events: Vec<Publish<'_>>,
) -> Result<Vec<Published>, BusError> {
    let prepared = prepare_batch(schemas, events);
    commit_batch(schemas, prepared, None).await
}

/// Takes one event off the rate of its topic, and prepares it.
fn prepare_rated(
    schemas: &Schemas,
    event: Publish<'_>,
    settings: &mut LastSettings<'_>,
) -> Result<Prepared, BusError> {
    take_rates(schemas, std::slice::from_ref(&event))?;
    let settings = settings.get(event.topic());
    prepare(schemas, event, settings, PublishedBy::User)
}

/// Prepares events for one commit. It is as durable as the most demanding of its topics.
pub(crate) fn prepare_batch(schemas: &Schemas, events: Vec<Publish<'_>>) -> Result<PreparedBatch, BusError> {
    if schemas.base.is_closed() {
        return Err(BusError::Closed);
    }
    schemas.base.options.limits.check_batch(events.len())?;
    take_rates(schemas, &events)?;
    let mut prepared = Vec::with_capacity(events.len());
    let mut durability = None;
    let mut last = LastSettings::new(&schemas.topics);
    for (index, event) in events.into_iter().enumerate() {
        let settings = last.get(event.topic());
        durability = match index {
            0 => settings.durability,
            _ => Durability::stronger(durability, settings.durability),
        };
        let event = prepare(schemas, event, settings, PublishedBy::User);
        prepared.push(event.map_err(|error| error.in_batch(index))?);
    }
    Ok(PreparedBatch { durability, events: prepared })
}

/// Takes the rate tokens of all events or, if one topic has too few, of none.
fn take_rates(schemas: &Schemas, events: &[Publish<'_>]) -> Result<(), BusError> {
    let Some(rates) = &schemas.topics.rates else { return Ok(()) };
    let mut wanted: BTreeMap<&TopicName, u32> = BTreeMap::new();
    for event in events {
        *wanted.entry(event.topic()).or_default() += 1;
    }
    let now_ms = schemas.base.clock.monotonic_ms();
    let mut taken: Vec<(&TopicName, u32)> = Vec::new();
    for (topic, count) in wanted {
        if let Err(refused) = rates.take(topic, count, now_ms) {
            schemas.base.metrics.topic(topic).rate_limited.add(u64::from(count));
            taken.into_iter().for_each(|(topic, count)| rates.put_back(topic, count, now_ms));
            return Err(refused.of(RateOwner::Topic));
        }
        taken.push((topic, count));
    }
    Ok(())
}
