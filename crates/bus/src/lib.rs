//! Publishing, consumer groups and delivery, as a library: no network.

pub mod delivery;
pub mod error;
pub mod publish;

pub use error::BusError;
