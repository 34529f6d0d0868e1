//! Time: the clock, lengths of time, and moments as people write them.

mod clock;
mod duration;
mod moment;

pub use clock::{Clock, SystemClock};
pub use duration::{Millis, MillisError};
pub use moment::{Moment, MomentError, MomentTextError};
