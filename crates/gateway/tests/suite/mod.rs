//! One folder per subject, one file per behaviour.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops where its set-up does")]

mod attacks;
mod auth;
mod authz;
mod corpus;
mod fuzz;
mod http;
mod tls_serves_and_takes_new_certificates;
mod world;
mod ws;
