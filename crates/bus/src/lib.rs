//! Publishing, consumer groups and delivery, as a library: no network.

pub mod coordinator;
pub mod delivery;
pub mod error;
pub mod filter;
pub mod limits;
pub mod pattern;
pub mod publish;

pub use error::BusError;
