//! The schemas of topics: their versions, the check of payloads, and how old events become new ones.
//!
//! | module | holds |
//! | --- | --- |
//! | `catalog` | the versions of every topic, in memory |
//! | `cache`, `compiler` | compiled schemas; compiling them off the threads that publishers wait for |
//! | `info`, `registry` | what users see of versions; registering, listing and deleting them |
//! | `gate`, `check` | the check of payloads that are published; how long one may take |
//! | `evolution`, `lift`, `dual` | upcasters and downcasters; lifting; dual-write |
//! | [`folder`] | schemas and programs from files |
//!
//! A tombstone is a deletion and has no payload: it is accepted whatever the schema says, and gets no
//! version.

mod cache;
mod catalog;
mod check;
mod compiler;
mod dual;
mod evolution;
pub mod folder;
mod gate;
mod info;
mod lift;
mod registry;

pub(crate) use self::catalog::SchemaCatalog;
pub use self::evolution::{DualWrite, Upcaster};
pub use self::gate::SchemaVersion;
pub use self::info::{
    RegisterOptions, Registered, SchemaInfo, SchemaTopic, SchemaTopics, StoredSchema, WhichSchema,
};
pub use self::lift::{LiftOutcome, Lifted};
pub(crate) use self::lift::{lift, lift_events, version_of};

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
/// The most versions of a topic.
pub const VERSIONS_MAX: usize = 1_000;
