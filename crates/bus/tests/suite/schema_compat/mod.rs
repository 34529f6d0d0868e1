//! Whether a new schema fits an old one.

mod make;
mod nonsense;
mod only_declared;
mod property;
mod table;
