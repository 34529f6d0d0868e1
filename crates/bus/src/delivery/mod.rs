//! The delivery of one claim as a pure state machine. See `docs/adr/0002-claims.md`.

pub mod types;
