//! Event ids, and the mint that makes them.

mod event_id;
mod mint;

pub use event_id::{EventId, IdError};
pub use mint::{EntropyError, IdMint};
