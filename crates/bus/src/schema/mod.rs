//! JSON Schemas of topics: versions, the check of payloads, and how old events become new ones.
//!
//! | module | holds |
//! | --- | --- |
//! | `text` | a schema as it is given, and its limits |
//! | [`validator`] | compiling one |
//! | [`compat`] | whether a new one fits an old one |
//! | `book`, `cache`, `flight` | which versions there are; compiled ones; those being compiled |
//! | `registry`, `compare` | registering, listing, deleting; the comparison with the versions before |
//! | `gate` | the check of payloads that are published |
//! | `reject` | what a payload is refused for |
//! | `evolution`, `lift`, `dual` | upcasters and downcasters; old events lifted on read; new events published in their old form too |
//! | `migrate` | what lifting all events of a topic would give |
//! | `folder` | schemas and programs from files |
//!
//! A tombstone is a deletion and no payload: it is accepted whatever the schema says, and gets no version.

mod book;
mod cache;
mod compare;
pub mod compat;
mod dual;
mod evolution;
mod flight;
pub mod folder;
mod gate;
mod lift;
mod migrate;
mod registry;
mod reject;
mod text;
pub mod validator;

pub(crate) use self::book::Book;
pub use self::compare::{Compared, Incompatible};
pub(crate) use self::dual::copies;
pub use self::evolution::{DualWrite, Upcaster};
pub use self::gate::Stamp;
pub(crate) use self::gate::{finish, stamp};
pub(crate) use self::lift::lift_events;
pub use self::lift::{LiftOutcome, Lifted};
pub use self::migrate::{LiftFailure, Migration};
pub use self::registry::{
    RegisterOptions, Registered, SchemaInfo, SchemaTopic, SchemaTopics, StoredSchema, WhichSchema,
};
pub use self::reject::{SchemaRejected, VIOLATIONS_MAX, Violation};
pub use self::text::{SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX, SchemaText};

/// The header that says which version a payload fits. The server's; a publisher that names a version is held to it.
pub const VERSION_HEADER: &str = "x-schema-version";
/// The header of an event that could not be lifted, with the reason.
pub const ERROR_HEADER: &str = "x-normalize-error";
/// Versions of a topic, at most.
pub const VERSIONS_MAX: usize = 1_000;
