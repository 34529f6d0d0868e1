//! Behaviour of the log, on a simulated disk and in real processes.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and its helpers with it"
)]

mod suite;
