//! The state as ordered bytes: the catalogue of keys, the plan that makes puts and deletes of a batch, and the reads.
//! Shared by the adapters; each has a [`View`] of its own engine.

mod check;
pub(crate) mod codec;
pub(crate) mod keys;
mod mend;
pub(crate) mod plan;
mod ports;
pub(crate) mod read;
pub(crate) mod value_bytes;
mod view;
mod writes;

pub(crate) use check::check;
pub(crate) use mend::mend;
pub(crate) use ports::impl_state_reads;
pub(crate) use view::{Flow, RowSpan, StateFault, StateSpace, View, Visit};
pub(crate) use writes::{StagedState, Writes, merge_scan};
