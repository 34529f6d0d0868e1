//! The operations and their handlers, by subject. Each file begins with its part of the table.

pub(super) mod admin;
pub(super) mod backups;
pub(super) mod batch;
pub(super) mod collections;
pub(super) mod dashboard;
pub(super) mod dead_letters;
pub(super) mod dedupe;
pub(super) mod export;
pub(super) mod groups;
pub(super) mod identity;
pub(super) mod lookup;
pub(super) mod params;
pub(super) mod projectors;
pub(super) mod publish;
pub(super) mod replay;
pub(super) mod schemas;
pub(super) mod server;
pub(super) mod state;
pub(super) mod stream;
pub(super) mod topics;
mod views;
