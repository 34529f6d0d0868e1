//! Schemas: versions, the check of payloads, lifting, old forms, and files.

mod any_schema_is_answered;
mod dual_write_publishes_old_forms;
mod events_fit_their_version_under_races;
mod folder_sets_schemas_and_programs;
mod old_events_are_lifted;
mod power_cut_keeps_schemas_whole;
mod publish_checks_payloads;
mod schemas_are_compiled_once;
mod versions_are_registered_and_deleted;

use std::collections::BTreeMap;

use promethean_bus::publish::{Publish, Published};
use promethean_bus::schemas::{RegisterOptions, Registered};
use promethean_bus::{Bus, BusError, StoredEvent};
use promethean_model::{Compat, EventMeta, TopicSettings};
use promethean_schema::{SchemaText, VERSION_HEADER};

use super::bus::harness::*;

/// An object with a number `n`.
pub(super) const V1: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#;
/// An object with a number `count`.
pub(super) const V2: &str = r#"{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"],"additionalProperties":false}"#;
/// An object with a number `count` and a text `unit`.
pub(super) const V3: &str = r#"{"type":"object","properties":{"count":{"type":"integer"},"unit":{"type":"string"}},"required":["count","unit"],"additionalProperties":false}"#;

pub(super) async fn register(bus: &Bus, on: &str, schema: &str) -> Result<Registered, BusError> {
    register_with(bus, on, schema, RegisterOptions::default()).await
}

pub(super) async fn register_with(
    bus: &Bus,
    on: &str,
    schema: &str,
    options: RegisterOptions,
) -> Result<Registered, BusError> {
    soon("register", bus.register_schema(&topic(on), SchemaText::parse(schema)?, options)).await
}

/// Sets the topic to compare no versions.
pub(super) async fn without_compat(bus: &Bus, on: &str) {
    let settings = TopicSettings { compat: Compat::None, ..bus.topic_settings(&topic(on)) };
    bus.set_topic(&topic(on), settings).await.unwrap();
}

pub(super) async fn versions(bus: &Bus, on: &str, schemas: &[&str]) {
    without_compat(bus, on).await;
    for schema in schemas {
        register(bus, on, schema).await.unwrap();
    }
}

pub(super) async fn publish(bus: &Bus, to: &str, payload: &str) -> Result<Published, BusError> {
    soon("publish", bus.publish(Publish::new(topic(to), payload))).await
}

pub(super) async fn publish_as(
    bus: &Bus,
    to: &str,
    payload: &str,
    version: &str,
) -> Result<Published, BusError> {
    let event = Publish::new(topic(to), payload).header(VERSION_HEADER, version);
    soon("publish", bus.publish(event)).await
}

pub(super) fn headers(event: &StoredEvent) -> BTreeMap<String, String> {
    EventMeta::decode(event.meta()).unwrap().headers.unwrap_or_default()
}

pub(super) fn version(event: &StoredEvent) -> Option<String> {
    headers(event).get(VERSION_HEADER).cloned()
}

pub(super) fn payload(event: &StoredEvent) -> &str {
    str::from_utf8(event.payload()).unwrap()
}

pub(super) fn code<T: std::fmt::Debug>(result: Result<T, BusError>) -> &'static str {
    result.unwrap_err().code()
}
