//! JSON Schemas of topics: versions, the check of payloads, and how old events become new ones.
//!
//! | module | holds |
//! | --- | --- |
//! | `catalog`, `cache`, `flight` | which versions there are; compiled ones; those being compiled |
//! | `registry`, `compare` | registering, listing, deleting; the comparison with the versions before |
//! | `gate` | the check of payloads that are published |
//! | `evolution`, `lift`, `dual` | upcasters and downcasters; old events lifted on read; new events published in their old form too |
//! | `migrate` | what lifting all events of a topic would give |
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
mod migration;
mod registry;

pub(crate) use self::catalog::SchemaCatalog;
pub(crate) use self::dual::copies;
pub use self::evolution::{DualWrite, Upcaster};
pub use self::gate::SchemaVersion;
pub(crate) use self::gate::{finish, stamp};
pub(crate) use self::lift::lift_events;
pub use self::lift::{LiftOutcome, Lifted};
pub use self::migration::{LiftFailure, Migration};
pub use self::registry::{
    RegisterOptions, Registered, SchemaInfo, SchemaTopic, SchemaTopics, StoredSchema, WhichSchema,
};

/// The header of an event that could not be lifted, with the reason.
pub const ERROR_HEADER: &str = "x-normalize-error";
/// TopicVersions of a topic, at most.
pub const VERSIONS_MAX: usize = 1_000;
