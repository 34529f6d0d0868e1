//! The gateway from outside.

mod suite;
