//! The stores from outside.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what fails in a test must fail it"
)]

mod suite;
