//! The delivery of one claim as a pure state machine. See `docs/adr/0002-claims.md`.
//!
//! - [`machine`]: the machine itself; `step` is its only door. Its parts: `leases`, `failing`, `scanning`, `reading`,
//!   `committing`, `seeking`, `explain`.
//! - [`types`]: what goes in and comes out. [`config`]: what it is built from. [`credit`]: what members share.
//! - [`codec`]: the persistent form of finished ranges.
//! - `table`, `ranges`, `keys`, `facts`, `members`: the collections it is made of.

pub mod codec;
pub mod config;
pub mod credit;
pub mod machine;
pub mod status;
pub mod types;

mod backoff;
mod committing;
mod explain;
mod facts;
mod failing;
mod keys;
mod leases;
mod members;
mod ranges;
mod reading;
mod scanning;
mod seeking;
mod table;
mod turns;

pub use config::{Bounds, Config, Start};
pub use credit::{Allowance, Credit, Rate};
pub use machine::Machine;
pub use status::{BlockedKey, Counts, Status};
