//! Publishing, consumer groups and delivery, as a library: no network.

pub mod delivery;
