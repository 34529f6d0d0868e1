//! Integration tests of the stores, one module per subject.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what fails in a test must fail it"
)]

mod conformance;
mod embedded;
mod support;
