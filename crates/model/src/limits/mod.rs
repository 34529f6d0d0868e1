//! Every cap, and the checks of a publish against them.

mod caps;
mod check;

pub use caps::*;
pub use check::{EventParts, LimitError, Limited, Limits, LimitsError};
