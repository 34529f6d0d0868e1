//! Proves that everything one schema accepts is accepted by another.
//!
//! The schema that writes is split into shapes, and each shape is checked against the keywords of the schema that reads,
//! one by one. A pair of places that is met again further down in an instance while it is being proved is taken to hold:
//! instances are finite, so the proof is an induction over their size.
//!
//! | module | holds |
//! | --- | --- |
//! | `proof` | pairs of places, and the checks that every schema needs |
//! | `scalar`, `array`, `object`, `union` | the checks of the keywords |
//! | `emptiness` | whether a shape has no value at all |
//! | `findings` | what does not hold, with an instance that shows it |

mod array;
mod emptiness;
mod findings;
mod object;
mod proof;
mod scalar;
mod union;

pub(super) use proof::Prover;
