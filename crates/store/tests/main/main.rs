//! Integration tests of the stores, one module per subject.
#![expect(clippy::unwrap_used, reason = "what fails in a test must fail it")]

mod conformance;
mod embedded;
mod support;
