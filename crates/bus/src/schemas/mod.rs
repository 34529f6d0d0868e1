//! JSON Schemas of topics: versions, the check of payloads, and how old events become new ones.
//!
//! | module | holds |
//! | --- | --- |
//! | `catalog`, `cache`, `flight` | which versions there are; compiled ones; those being compiled |
//! | `registry`, `compare` | registering, listing, deleting; the comparison with the versions before |
//! | `gate` | the check of payloads that are published |
//! | `evolution`, `lift`, `dual` | upcasters and downcasters; old events lifted on read; new events published in their old form too |
//! | `folder` | schemas and programs from files |
//!
//! A tombstone is a deletion and no payload: it is accepted whatever the schema says, and gets no version.

mod cache;
mod catalog;
mod compare;
mod dual;
mod evolution;
mod flight;
pub mod folder;
mod gate;
mod lift;
mod registry;

pub(crate) use self::catalog::SchemaCatalog;
pub use self::evolution::{DualWrite, Upcaster};
pub use self::gate::SchemaVersion;
pub use self::lift::{LiftOutcome, Lifted};
pub(crate) use self::lift::{lift, lift_events, version_of};
pub use self::registry::{
    RegisterOptions, Registered, SchemaInfo, SchemaTopic, SchemaTopics, StoredSchema, WhichSchema,
};

use std::sync::Arc;

use promethean_jq::Pool;
use promethean_model::TopicName;

use crate::base::Base;
use crate::error::BusError;
use crate::topics::Topics;

/// The schema layer of one bus.
#[derive(Debug)]
pub(crate) struct Schemas {
    pub(crate) base: Arc<Base>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) catalog: SchemaCatalog,
    /// The threads that jq programs of this bus run on.
    pub(crate) jq_pool: Pool,
}

impl Schemas {
    /// Reads the stored versions.
    pub(crate) async fn load(topics: Arc<Topics>) -> Result<Self, BusError> {
        let catalog = SchemaCatalog::load(&*topics.base.store).await?;
        Ok(Self { base: Arc::clone(&topics.base), topics, catalog, jq_pool: Pool::new() })
    }

    /// Whether events of this topic are published in an old form too.
    pub(crate) fn is_dual(&self, topic: &TopicName) -> bool {
        self.catalog.is_dual(topic)
    }
}

/// The header of an event that could not be lifted, with the reason.
pub const ERROR_HEADER: &str = "x-normalize-error";
/// Versions of a topic, at most.
pub const VERSIONS_MAX: usize = 1_000;
