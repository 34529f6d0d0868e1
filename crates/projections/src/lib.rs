//! State beside the log: projectors, collections, snapshots, and the state of a key at any time.
//!
//! | module | holds |
//! | --- | --- |
//! | [`change`] | what a projector makes of an event |
//! | [`error`] | every refusal |

pub mod change;
pub mod error;

pub use change::{Change, Emit, Upsert};
pub use error::ProjectionError;
