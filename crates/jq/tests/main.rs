//! The crate from outside.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod suite;
