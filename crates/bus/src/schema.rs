//! JSON Schemas of topics: what compiles one, and whether a new one fits the old.

pub mod compat;
pub mod validator;
