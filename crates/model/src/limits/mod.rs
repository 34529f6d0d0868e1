//! Every cap.

mod caps;

pub use caps::*;
