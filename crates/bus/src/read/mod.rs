//! Reading events without a group.
//!
//! | module | holds |
//! | --- | --- |
//! | `scan` | the events of one topic up to its end |
//! | `replay` | the events of a topic, or of all topics of a pattern |
//! | `tail` | the events of a topic as they come |
//! | `lookup` | single events |
//! | `migration` | what lifting all events of a topic would give |

mod lookup;
mod migration;
mod replay;
mod scan;
mod tail;

pub use self::migration::{LiftFailure, Migration};
pub use self::replay::{Replay, ReplayPage};
pub use self::scan::Scan;
pub use self::tail::Tail;
