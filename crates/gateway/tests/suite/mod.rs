//! One module per subject.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops where its set-up does")]

mod auth;
mod auth_claims;
mod auth_fetch;
mod auth_grants;
mod auth_jwt;
mod auth_matrix;
mod auth_secrets;
mod auth_tls;
mod auth_tokens;
mod authz;
mod corpus;
mod http;
mod ws;
