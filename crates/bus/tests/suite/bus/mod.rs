//! The bus as its users see it, on the store in memory and on the embedded one.

mod admin;
mod backlog;
mod changing;
mod credit;
mod dead;
pub(crate) mod gate_store;
pub(crate) mod harness;
mod ordered;
mod partitioned;
mod patterns;
mod publishing;
mod reading;
mod reasons;
mod refusals;
mod seeking;
mod shared;
mod shutdown;
mod sought;
mod starts;
mod steps;
mod topics;
