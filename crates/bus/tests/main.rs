//! The crate from outside.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test stops where it fails, and a failed run prints its seed"
)]

mod suite;
