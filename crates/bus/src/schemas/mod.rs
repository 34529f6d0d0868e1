//! The schemas of topics: their versions, the check of payloads, and how old events become new ones.
//!
//! | module | holds |
//! | --- | --- |
//! | `catalog` | the versions of every topic, in memory |
//! | `cache`, `compiler` | compiled schemas; compiling them off the threads that publishers wait for |
//! | `info`, `registry` | what users see of versions; registering, listing and deleting them |
//! | `gate` | the check of payloads that are published |
//! | `evolution`, `lift`, `dual` | upcasters and downcasters; lifting; dual-write |
//! | `migration` | the dry run of a migration |
//! | [`folder`] | schemas and programs from files |
//!
//! A tombstone is a deletion and has no payload: it is accepted whatever the schema says, and gets no version.

mod cache;
mod catalog;
mod compiler;
mod dual;
mod evolution;
pub mod folder;
mod gate;
mod info;
mod lift;
mod migration;
mod registry;

pub(crate) use self::catalog::SchemaCatalog;
pub(crate) use self::dual::copies;
pub use self::evolution::{DualWrite, Upcaster};
pub use self::gate::SchemaVersion;
pub(crate) use self::gate::{finish, stamp};
pub use self::info::{
    RegisterOptions, Registered, SchemaInfo, SchemaTopic, SchemaTopics, StoredSchema, WhichSchema,
};
pub(crate) use self::lift::lift_events;
pub use self::lift::{LiftOutcome, Lifted};
pub use self::migration::{LiftFailure, Migration};

/// The header of an event that could not be lifted, with the reason.
pub const ERROR_HEADER: &str = "x-normalize-error";
/// The most versions of a topic.
pub const VERSIONS_MAX: usize = 1_000;
