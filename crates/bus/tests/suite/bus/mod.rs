//! The bus as its users see it, on the store in memory and on the embedded one.

mod credit;
mod dead;
mod harness;
mod ordered;
mod patterns;
mod shared;
mod starts;
