//! State beside the log: projectors, collections, snapshots, and the state of a key at any time.
//!
//! A projector is a pure function from an event to changes. Its documents and its cursor are one commit, so
//! each event counts once, whatever crashes:
//!
//! ```
//! use std::sync::Arc;
//!
//! use promethean_bus::publish::Publish;
//! use promethean_bus::{Bus, BusOptions};
//! use promethean_model::{Event, SystemClock};
//! use promethean_projections::{Change, CollectionDeclared, Declared, Logic, Projections, Projector};
//! use promethean_store::memory::{MemoryOptions, MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Arc::new(SystemClock::new());
//! let store = Arc::new(MemoryStore::new(clock.clone(), MemoryOptions::default()));
//! let bus = Bus::open(store.clone(), clock.clone(), BusOptions::default()).await?;
//!
//! let count = |event: &Event| {
//!     let Some(key) = &event.key else { return Ok(Vec::new()) };
//!     let collection = "orders".parse().map_err(|_| "no name")?;
//!     Ok(vec![Change::upsert(collection, key).inc("seen", 1)])
//! };
//! let projector = Projector::new("order-count".parse()?, "orders.placed".parse()?, Logic::rust(count))
//!     .writes(["orders".parse()?]);
//! let declared = Declared {
//!     collections: vec![CollectionDeclared::new("orders".parse()?)],
//!     projectors: vec![projector],
//!     ..Declared::default()
//! };
//! let projections = Projections::open(bus.clone(), store, clock, declared).await?;
//!
//! bus.publish(Publish::new("orders.placed".parse()?, "{}").key("7")).await?;
//! let orders = "orders".parse()?;
//! let order = loop {
//!     match projections.document(&orders, "7").await {
//!         Ok(order) => break order,
//!         Err(_) => tokio::task::yield_now().await,
//!     }
//! };
//! assert!(order.body.contains(r#""seen":1"#));
//! projections.close().await;
//! bus.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | [`projections`] | the handle on all that is declared |
//! | [`definition`] | the declarations, and their checks |
//! | [`change`], [`logic`], [`changelog`] | what a projector makes of an event, in Rust or jq |
//! | `runner`, `status` | a projector at work, and its status |
//! | `commit`, `fold` | a page of events: folded into documents, published, committed with the cursor |
//! | `publish_literals` | the topics that a program names as targets of its publishes |
//! | `rebuild` | a projector's state made anew beside the served one, from events or snapshots |
//! | [`collections`] | the collections that projectors write, and how they are read |
//! | [`compactor`], [`snapshot`] | the latest state of each key as a topic, and how to begin with it |
//! | [`time_travel`] | state at any time |
//! | `retention_alarm` | says when retention waits for projectors or compactors |
//! | [`error`] | every error, and why a projector fails at an event |

pub mod change;
pub mod changelog;
pub mod collections;
mod commit;
pub mod compactor;
pub mod definition;
pub mod error;
mod fold;
pub mod logic;
pub mod projections;
mod publish_literals;
mod rebuild;
mod retention_alarm;
mod runner;
pub mod snapshot;
mod status;
pub mod time_travel;

pub use change::{Change, Emit, Removal, Upsert};
pub use changelog::{Changelog, ChangelogPrograms};
pub use compactor::CompactorOptions;
pub use definition::{CollectionDeclared, Declared, OnFailure, Projector, StartAt, Timer};
pub use error::ProjectionError;
pub use logic::{Logic, Project};
pub use projections::Projections;
pub use promethean_store::port::{CollectionInfo, Direction, Doc, DocPage, Field, Index, ReadError};
pub use promethean_store::value::FieldType;
pub use status::{Activity, CompactorStatus, CompactorView, ProjectorStatus, RebuildStatus};
pub use time_travel::Reducer;
