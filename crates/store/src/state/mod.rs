//! State as ordered bytes: which keys there are, how a batch becomes puts and deletes of them, and how reads find them
//! again. Shared by the adapters; each brings a [`View`] of its own engine.

mod check;
pub(crate) mod codec;
pub(crate) mod keys;
pub(crate) mod ordered;
pub(crate) mod plan;
mod ports;
pub(crate) mod read;
mod staged;
mod view;

pub(crate) use check::check;
pub(crate) use ports::impl_state_reads;
pub(crate) use staged::{Staged, Writes, merge_scan};
pub(crate) use view::{Flow, Space, Span, StateFault, View, Visit};
