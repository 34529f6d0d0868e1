//! The state of a key, or of a whole collection, at any time.
//!
//! | module | holds |
//! | --- | --- |
//! | `key_state` | the state of a key at a time, from the nearest snapshot on |
//! | `key_history` | the events of a key, from the newest back to where its state begins |
//! | `reducer` | how state follows from events |
//! | [`feed`] | collections, from their changefeed |
//! | `feed_row` | where the history of a collection begins in its changefeed |
//!
//! Invariants:
//! - **T1** State at T is the fold, in offset order, of the key's events with `ts` at or before T. `ts` may
//!   go back and forth, so an event with a late `ts` never hides the events after it.
//! - **T2** An answer never depends on events that are gone: where it would, it is `history_gone`. Whether a
//!   topic is compacted is read from its settings: holes from before compaction was switched off are not
//!   noticed.
//! - **T3** The number of reads depends on the events and snapshots of the key, not on the topic.

pub mod feed;
mod feed_row;
mod key_history;
mod key_state;
mod reducer;

pub(crate) use self::feed_row::FeedRow;
pub use self::key_history::{FOLDED_BYTES_MAX, FOLDED_EVENTS_MAX};
pub(crate) use self::key_history::{FoldInput, KeyHistory, fold_input};
pub use self::key_state::{StateAt, state_at};
pub use self::reducer::Reducer;
pub(crate) use self::reducer::{event_json, payload};
