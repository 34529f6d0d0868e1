//! The client of Promethean: publishing, subscribing and reading, over a network that fails.
//!
//! ```no_run
//! use promethean_client::{Client, ClientError, StartFrom};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order {
//!     order: u64,
//! }
//!
//! # async fn example() -> Result<(), ClientError> {
//! let client = Client::new("ws://127.0.0.1:8090")?;
//! // Returns when the event is durable.
//! let receipt = client.publish("orders.placed", &Order { order: 7 }).key("customer-1").await?;
//! // Acked when the handler is done, delivered again when it fails.
//! client
//!     .subscribe::<Order>("orders.placed", "billing")
//!     .from(StartFrom::Earliest)
//!     .handle(|lease| async move {
//!         charge(lease.payload.order).await?;
//!         Ok(())
//!     })
//!     .await?;
//! // When the service ends: waits for publishes and handlers, and gives the other events back.
//! client.close().await
//! # }
//! # async fn charge(_: u64) -> std::io::Result<()> { Ok(()) }
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `client`, `builder` | the handle and its options |
//! | `connection`, `socket`, `dial`, `trust`, `token` | the task of the connection: opening, AUTH, reconnecting |
//! | `shared`, `core`, `effects`, `answers` | the state behind one lock, and what follows from its changes |
//! | `publish`, `outbox` | publishes, until they are answered |
//! | `subscribe`, `consume`, `lease`, `member` | subscriptions, handlers and leases |
//! | `exactly_once`, `warm_up` | marks of handled events, derived ids; snapshots |
//! | `http` | reading, state and administration over HTTP |
//! | `frames`, `event`, `start_from` | frames as text, events, positions |
//! | `error`, `advice`, `address`, `backoff` | errors and what to do with them; addresses; waits |

mod address;
mod advice;
mod answers;
mod backoff;
mod builder;
mod client;
mod connection;
mod consume;
mod core;
mod dial;
mod effects;
mod error;
mod event;
mod exactly_once;
mod frames;
mod http;
mod lease;
mod member;
mod outbox;
mod publish;
mod shared;
mod socket;
mod start_from;
mod subscribe;
mod token;
mod trust;
mod warm_up;

pub use crate::address::ServerAddress;
pub use crate::builder::ClientBuilder;
pub use crate::client::{Client, TypedTopic};
pub use crate::consume::{ConsumerHandle, HandlerError, Leases, SeekOutcome};
pub use crate::core::ConnectionState;
pub use crate::error::ClientError;
pub use crate::event::TypedEvent;
pub use crate::exactly_once::{
    MarkName, MarkStore as DedupeStore, MemoryMarks as MemoryDedupe, ServerMarks as ServerDedupe, produced_id,
};
pub use crate::http::admin::{
    Admin, ChosenLetters, GroupDescription, GroupLag, LetterOutcome, LetterTarget, OpenLetter, PathTicket,
    SchemaRegistration, TokenOwner, TopicDescription, TopicProgress,
};
pub use crate::http::backups::{BackupFile, BackupPiece, BackupPoint, BackupReader, BackupTopic};
pub use crate::http::pages::Listing;
pub use crate::http::reader::{EventStream, ExportRange, TopicReader};
pub use crate::http::state::{DocumentThen, StateOfKey, StateReader, TaggedDocument};
pub use crate::lease::{SettleAnswer, TypedLease as Lease};
pub use crate::member::PartitionChange;
pub use crate::publish::{
    AckDurability, BatchReceipt, EventToPublish, PendingPublish, PublishBuilder, PublishReceipt,
};
pub use crate::start_from::StartFrom;
pub use crate::subscribe::{DeliveryOrder, EventFilter, SubscribeBuilder};
pub use crate::token::{BoxError, TokenSource};
pub use crate::warm_up::{LoadedSnapshots, LoadedState};
pub use promethean_model::{EventId, TopicName, TopicSettings};

/// The code in `docs/clients.md`, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/clients.md")]
struct ClientsGuide;
