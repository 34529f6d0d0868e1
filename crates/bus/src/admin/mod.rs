//! Looking at groups and topics, and changing them.
//!
//! | module | does |
//! | --- | --- |
//! | `groups` | lists groups with their progress |
//! | `change` | pauses, resumes, seeks and deletes them |
//! | `topics` | lists, creates, sets and deletes topics |
//! | `replay` | reads events without a group |

mod change;
mod find;
mod groups;
mod replay;
mod topics;

pub use self::change::SeekReport;
pub(crate) use self::find::group_on;
pub use self::groups::{GroupInfo, GroupProgress};
pub use self::replay::{Replay, ReplayPage};
