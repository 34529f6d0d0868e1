//! The crate from outside.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops where it fails")]

mod suite;
