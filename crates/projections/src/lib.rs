//! State beside the log: projectors, collections, snapshots, and the state of a key at any time.
//!
//! | module | holds |
//! | --- | --- |
//! | [`change`] | what a projector makes of an event |
//! | [`error`] | every refusal |
//! | [`compactor`], [`snapshot`] | the latest state of each key as a topic, and how to begin with it |
//! | [`time_travel`], [`moment`] | state at any time, and how times are written |

pub mod change;
pub mod compactor;
pub mod error;
pub mod moment;
pub mod snapshot;
pub mod time_travel;

pub use change::{Change, Emit, Upsert};
pub use error::ProjectionError;
