//! Time: the clock, a clock without leaps, lengths of time, and moments as people write them.

mod clock;
mod duration;
mod moment;
mod steady;

pub use clock::{Clock, SystemClock};
pub use duration::{Millis, MillisError};
pub use moment::{Moment, MomentError, MomentTextError};
pub use steady::{SteadyClock, SteadyTime};
