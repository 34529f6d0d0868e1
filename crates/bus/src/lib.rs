//! Publishing, consumer groups and delivery, as a library: no network.
//!
//! ```
//! use std::sync::Arc;
//!
//! use promethean_bus::publish::Publish;
//! use promethean_bus::rows::{AskedOptions, Start};
//! use promethean_bus::subscribe::Subscribe;
//! use promethean_bus::{Bus, BusOptions, Given};
//! use promethean_model::SystemClock;
//! use promethean_store::memory::{MemoryStore, Options};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Arc::new(SystemClock::new());
//! let store = Arc::new(MemoryStore::new(clock.clone(), Options::default()));
//! let bus = Bus::open(store, clock, BusOptions::default()).await?;
//!
//! let published = bus.publish(Publish::new("orders.placed".parse()?, r#"{"order":7}"#).key("7")).await?;
//! assert_eq!(published.offset.get(), 0);
//!
//! let options = AskedOptions { from: Some(Start::Earliest), ..AskedOptions::default() };
//! let request = Subscribe { options, ..Subscribe::new("orders.*".parse()?, "billing".parse()?) };
//! let mut subscription = bus.subscribe(request).await?;
//! if let Given::Leases(leases) = subscription.next(10).await? {
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
//! | [`bus`], `core`, [`options`] | the handle that users hold, and what its parts share |
//! | [`admin`] | looking at groups and topics, changing them, replay |
//! | [`publish`], [`publisher`], `publishing` | from what a publisher asks for to what is committed |
//! | [`subscribe`], [`subscription`] | becoming a member of a group, and being one |
//! | [`consumer`], [`exactly_once`] | running a handler for every event, and for each event once |
//! | `group`, `coordinators`, `members` | the owners that deliver, who owns which partition, who is in which group |
//! | `letter_book` | how many dead letters are open, and who may change them now |
//! | `topics`, `settings` | topics and what is set for them |
//! | `changing` | one change of a name at a time, done to the end |
//! | [`follower`] | groups that the server itself works for |
//! | [`rows`], [`dead_letter`] | what groups keep, and what they give up |
//! | [`limits`] | token buckets |
//! | [`schema`] | JSON Schemas: compiling one, comparing two |
//! | [`metrics`] | what is counted, and its page |
//! | [`error`] | every refusal |

pub mod admin;
pub mod bus;
mod changing;
pub mod consumer;
mod coordinators;
mod core;
pub mod dead_letter;
pub mod error;
pub mod exactly_once;
pub mod follower;
mod group;
pub mod jq;
mod letter_book;
pub mod limits;
mod members;
pub mod metrics;
pub mod options;
pub mod publish;
pub mod publisher;
mod publishing;
pub mod rows;
pub mod schema;
mod settings;
pub mod subscribe;
pub mod subscription;
mod topics;

pub use bus::Bus;
pub use consumer::{Consumer, ConsumerOptions, Nack};
pub use error::BusError;
pub use exactly_once::{DedupeStore, Effects, ExactlyOnce};
pub use group::{Backlog, Seen};
pub use options::BusOptions;
pub use promethean_store::port::{Damage, EventBody, EventRef, Health, Render, StoredEvent, TopicInfo};
pub use publisher::Publisher;
pub use subscription::{Given, Held, Lease, Over, Settled, Subscription};

/// The guide is compiled and run like the examples here.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/groups.md")]
struct Guide;
