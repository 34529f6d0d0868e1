//! Integration tests of the stores.

mod conformance;
