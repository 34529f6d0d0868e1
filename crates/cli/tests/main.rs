//! The binary from outside.

mod suite;
