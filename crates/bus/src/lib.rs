//! Publishing, consumer groups and delivery, as a library: no network.
//!
//! | module | holds |
//! | --- | --- |
//! | [`publish`] | from what a publisher asks for to what is committed |
//! | [`delivery`] | the delivery of one claim |
//! | [`coordinator`] | which member owns which partition |
//! | [`pattern`], [`filter`] | which topics and events a group is given |
//! | [`rows`], [`dead_letter`] | what groups keep, and what they give up |
//! | [`limits`] | token buckets |
//! | [`metrics`] | what is counted, and its page |
//! | [`error`] | every refusal |

pub mod coordinator;
pub mod dead_letter;
pub mod delivery;
pub mod error;
pub mod filter;
pub mod limits;
pub mod metrics;
pub mod pattern;
pub mod publish;
pub mod rows;

pub use error::BusError;
