//! Publishing, consumer groups and delivery as a library, without a network.
//!
//! ```
//! use std::sync::Arc;
//!
//! use promethean_bus::publish::Publish;
//! use promethean_bus::rows::{AskedOptions, StartPosition};
//! use promethean_bus::subscription::Subscribe;
//! use promethean_bus::{Bus, BusOptions, SubscriptionItem};
//! use promethean_model::SystemClock;
//! use promethean_store::memory::{MemoryOptions, MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Arc::new(SystemClock::new());
//! let store = Arc::new(MemoryStore::new(clock.clone(), MemoryOptions::default()));
//! let bus = Bus::open(store, clock, BusOptions::default()).await?;
//!
//! let published = bus.publish(Publish::new("orders.placed".parse()?, r#"{"order":7}"#).key("7")).await?;
//! assert_eq!(published.offset.get(), 0);
//!
//! let options = AskedOptions { from: Some(StartPosition::Earliest), ..AskedOptions::default() };
//! let request = Subscribe { options, ..Subscribe::new("orders.*".parse()?, "billing".parse()?) };
//! let mut subscription = bus.subscribe(request).await?;
//! if let SubscriptionItem::Leases(leases) = subscription.next(10).await? {
//!     for lease in &leases {
//!         assert_eq!(lease.event.payload(), br#"{"order":7}"#);
//!     }
//!     // Returns when the cursor is durable: these events are not delivered to the group again.
//!     subscription.ack(&leases).await?;
//! }
//! subscription.unsubscribe();
//! bus.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | [`bus`], [`options`] | the handle that users hold, and how it is opened |
//! | `base` | the parts that every layer needs: store, clock, metrics, tasks |
//! | `topics` | settings, gates and births of topics |
//! | [`schemas`] | versions of schemas, the check of payloads, lifting |
//! | [`publish`] | turns a publisher's request into events in the log |
//! | [`dead_letters`] | events that a group gave up, and their redrive |
//! | [`groups`] | consumer groups: owners, members, progress |
//! | [`subscription`] | joining a group, taking leases and acking them |
//! | [`consumer`], [`exactly_once`] | running a handler for every event, and for each event once |
//! | [`read`] | reading events without a group |
//! | [`backups`] | a point of the whole store, read while the bus works |
//! | `topic_deletion` | deleting a topic with its groups and schemas |
//! | [`rows`] | the bytes of rows in the store's small tables |
//! | [`limits`], [`metrics`] | token buckets; counters and the metrics page |
//! | `pulse` | notices time that the process itself missed |
//! | `sweep`, `tasks`, `locks` | removing expired data; the tasks of a bus; locks by name |
//! | [`user_event`](mod@user_event) | a stored event as users see it |
//! | [`error`] | the errors of the bus |
//!
//! Each module uses only modules that come before it in this order: `error`, `rows`, `limits`, `metrics`,
//! `base`, `topics`, `schemas`, `publish` and `dead_letters`, `groups`, `bus`, then `subscription`, `read`
//! and `topic_deletion`, then `consumer` and `exactly_once`. `cargo xtask edges` refuses a cycle.

pub mod backups;
mod base;
pub mod bus;
pub mod consumer;
pub mod dead_letters;
pub mod error;
pub mod exactly_once;
pub mod groups;
pub mod limits;
mod locks;
pub mod metrics;
pub mod options;
pub mod publish;
mod pulse;
pub mod read;
pub mod rows;
pub mod schemas;
pub mod subscription;
mod sweep;
mod tasks;
mod topic_deletion;
mod topics;
pub mod user_event;

pub use bus::Bus;
pub use consumer::{Consumer, ConsumerOptions, Nack};
pub use error::{BusError, RateOwner};
pub use exactly_once::{DedupeStore, Effects, ExactlyOnce};
pub use groups::{Backlog, OwnerView, Settled};
pub use options::BusOptions;
pub use promethean_store::port::{
    BackupError, Damage, EventBody, EventRef, Health, LogBackup, LogBackupFile, LogBackupTopic, Render,
    StatePage, StoredEvent, TopicInfo, TopicPage, TopicRoom,
};
pub use publish::Publisher;
pub use subscription::{Held, Lease, Over, Subscription, SubscriptionItem};
pub use user_event::user_event;

/// The guide is compiled and run like the examples here.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/groups.md")]
struct Guide;
