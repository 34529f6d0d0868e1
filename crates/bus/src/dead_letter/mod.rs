//! The letter an event becomes when a group gives it up. Which letters are open is a table, see [`crate::rows`].

mod event;
mod letter;

pub use event::user_event;
pub(crate) use letter::post_because;
pub use letter::{Letter, letter_id, post, reason_word, redrive_id};
