//! Looking at groups and topics, and changing them.
//!
//! | module | does |
//! | --- | --- |
//! | `groups` | lists groups with their progress |
//! | `change` | pauses, resumes and seeks them |
//! | `delete`, `unfinished` | deletes groups and topics; what an earlier process did not end |
//! | `letters` | lists, redrives and drops dead letters |
//! | `topics` | lists, creates and sets topics |
//! | `replay`, `scan`, `tail` | read events without a group: of many topics, a part of one, and what comes |
//! | `lookup` | finds single events |

mod change;
mod delete;
mod find;
mod groups;
mod letters;
mod lookup;
mod replay;
mod scan;
mod tail;
mod topics;
mod unfinished;

pub use self::change::SeekReport;
pub(crate) use self::find::group_on;
pub(crate) use self::find::{group_rows, stored_rows};
pub use self::groups::{GroupInfo, GroupProgress};
pub(crate) use self::letters::Originals;
pub use self::letters::{LetterChoice, LetterInfo, LetterPage, LetterReport, RedriveTo};
pub use self::replay::{Replay, ReplayPage};
pub use self::scan::Scan;
pub use self::tail::Tail;
pub use self::unfinished::UnfinishedDeletion;
pub(crate) use self::unfinished::{Unfinished, finish_all as finish_deletions, finish_named};
