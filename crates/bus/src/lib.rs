//! Publishing, consumer groups and delivery, as a library: no network.
//!
//! | module | holds |
//! | --- | --- |
//! | [`bus`], `core`, [`options`] | the handle that users hold, and what its parts share |
//! | [`admin`] | looking at groups and topics, changing them, replay |
//! | [`publish`], `publishing` | from what a publisher asks for to what is committed |
//! | [`subscribe`], [`subscription`] | becoming a member of a group, and being one |
//! | `group`, `coordinators` | the owners that deliver, and who owns which partition |
//! | `topics`, `settings` | topics and what is set for them |
//! | [`delivery`] | the delivery of one claim |
//! | [`coordinator`] | which member owns which partition |
//! | [`pattern`], [`filter`] | which topics and events a group is given |
//! | [`rows`], [`dead_letter`] | what groups keep, and what they give up |
//! | [`limits`] | token buckets |
//! | [`metrics`] | what is counted, and its page |
//! | `small_map` | a map for few entries |
//! | [`error`] | every refusal |

pub mod admin;
pub mod bus;
pub mod coordinator;
mod coordinators;
mod core;
pub mod dead_letter;
pub mod delivery;
pub mod error;
pub mod filter;
mod group;
pub mod limits;
pub mod metrics;
pub mod options;
pub mod pattern;
pub mod publish;
mod publishing;
pub mod rows;
mod settings;
mod small_map;
pub mod subscribe;
pub mod subscription;
mod topics;

pub use bus::Bus;
pub use error::BusError;
pub use group::Seen;
pub use options::BusOptions;
pub use subscription::{Given, Lease, Settled, Subscription};
