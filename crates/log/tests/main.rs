//! Behaviour of the log on a simulated disk.

mod suite;
