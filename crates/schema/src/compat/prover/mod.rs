//! Proves that everything one schema accepts is accepted by another.
//!
//! `writes` is split into shapes; each is checked against the keywords of `reads` one by one. A pair of places that is
//! under way already is taken to hold when it is met again further down in an instance: instances are finite, so
//! the proof is an induction over their size.

mod array;
mod emptiness;
mod findings;
mod object;
mod proof;
mod scalar;
mod union;

pub(super) use proof::Prover;
