//! The words of the domain, shared by server and clients. No I/O beyond reading the clock and seeding ids, no async.
//!
//! | module | holds |
//! | --- | --- |
//! | `name` | names of topics, groups, members and collections, parsed once at the edge |
//! | `offset` | positions in a topic and ranges of them |
//! | `time`, `millis` | the clock, and lengths of time in settings |
//! | `limits` | every cap, and the checks of a publish against them |

pub mod limits;
pub mod name;
pub mod offset;
pub mod time;

pub use name::{CollectionName, GroupName, MemberId, NameError, SystemSuffix, TopicName};
pub use offset::{Offset, OffsetRange};
pub use time::{Clock, SystemClock};
