//! The words of the domain.
