//! The bus as its users see it, on the store in memory and on the embedded one.

mod dead;
mod harness;
mod shared;
mod starts;
