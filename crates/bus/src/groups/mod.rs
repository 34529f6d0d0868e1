//! Consumer groups: their owners, members, progress and rows.
//!
//! One task per group and topic, the *owner*, holds the delivery machine of that claim and carries out the
//! effects that the machine asks for. All other code sends it messages.
//!
//! | module | holds |
//! | --- | --- |
//! | `owner` | the handle of an owner, and the table of all owners |
//! | `task`, `wakeups` | the task of an owner: its actions, and the events that wake it |
//! | `message`, `mailbox` | the messages to an owner, and the queue that holds them |
//! | `page_budget` | the memory that pages of events may take, for all owners together |
//! | `load`, `progress`, `closed_letters` | reads a machine's state from the store; writes its progress as one batch; closes letters |
//! | `committer` | joins the batches of many owners into one commit |
//! | `member_names` | the names of members: a second member of a name fences the first |
//! | `membership` | one member of a group, as its leases and its owners see it |
//! | `inbox`, `backlog`, `lifter` | the events that wait for a member, the bound on their bytes, and their lifting |
//! | `shared_credit` | the credit that the topics of one member share |
//! | `partitions` | which member of a partitioned group owns which partition |
//! | `entries` | how many subscriptions each group has |
//! | `lookup`, `list` | finds the rows of groups; lists groups with their progress |
//! | `idle_lag` | the lag of groups without an owner, for the metrics |
//! | `seek` | seeking, pausing and resuming |
//! | `deletion`, `unfinished` | deletes groups; finishes deletions that an earlier process began |
//! | `followers` | groups whose consumer is the server itself: projectors and compactors |

mod backlog;
mod closed_letters;
mod committer;
mod deletion;
mod entries;
mod followers;
mod idle_lag;
mod inbox;
mod lifter;
mod list;
mod load;
mod lookup;
mod mailbox;
mod member_names;
mod membership;
mod message;
mod owner;
mod page_budget;
mod partitions;
mod progress;
mod seek;
mod shared_credit;
mod task;
mod unfinished;
mod wakeups;

use std::sync::Arc;

pub use self::backlog::Backlog;
use self::committer::ProgressCommitter;
pub(crate) use self::deletion::{clear_notes, topics_alone};
use self::entries::GroupEntries;
pub(crate) use self::entries::GroupEntry;
pub use self::followers::{Follower, FollowerFailure, GivenUp};
pub(crate) use self::followers::{Followers, hold_stored};
use self::idle_lag::IdleLag;
pub(crate) use self::inbox::{Inbox, InboxItem};
pub(crate) use self::lifter::Lifter;
pub use self::list::{GroupInfo, GroupPage, GroupProgress, GroupQuery};
pub(crate) use self::lookup::{group_on, group_rows, require_group, stored_row, stored_rows};
use self::member_names::MemberNames;
pub use self::membership::Settled;
pub(crate) use self::membership::{Leased, Membership, by_owner};
pub(crate) use self::message::{GivenBack, NewMember, OwnerMessage, OwnerRequest};
pub use self::message::{MemberStatus, OwnerView};
use self::owner::ClaimOwners;
pub(crate) use self::owner::{ClaimOwner, WantedOwner};
use self::page_budget::PageBudget;
pub use self::page_budget::PageMemory;
use self::partitions::Coordinators;
pub(crate) use self::partitions::PartitionMember;
pub use self::seek::SeekReport;
use self::unfinished::Unfinished;
pub use self::unfinished::UnfinishedDeletion;
pub(crate) use self::unfinished::{finish_all as finish_deletions, finish_named};
use crate::base::Base;
use crate::dead_letters::DeadLetters;
use crate::locks::StripedLock;
use crate::schemas::Schemas;
use crate::topics::Topics;

/// The group layer of one bus. It sees all layers below it.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) base: Arc<Base>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) schemas: Arc<Schemas>,
    pub(crate) dead_letters: Arc<DeadLetters>,
    pub(crate) owners: ClaimOwners,
    pub(crate) committer: ProgressCommitter,
    pub(crate) pages: PageBudget,
    pub(crate) coordinators: Coordinators,
    pub(crate) entries: GroupEntries,
    /// Held while the row of a group is read and then written, and while a member enters the group.
    pub(crate) locks: StripedLock,
    /// The names of members.
    pub(crate) names: MemberNames,
    pub(crate) followers: Followers,
    pub(crate) unfinished: Unfinished,
    idle_lag: IdleLag,
}

impl Groups {
    pub(crate) fn new(dead_letters: Arc<DeadLetters>) -> Self {
        let base = Arc::clone(&dead_letters.base);
        Self {
            topics: Arc::clone(&dead_letters.topics),
            schemas: Arc::clone(&dead_letters.schemas),
            dead_letters,
            owners: ClaimOwners::default(),
            committer: ProgressCommitter::new(Arc::clone(&base.store)),
            pages: PageBudget::new(base.options.group_page_bytes_max),
            coordinators: Coordinators::default(),
            entries: GroupEntries::default(),
            locks: StripedLock::default(),
            names: MemberNames::default(),
            followers: Followers::default(),
            unfinished: Unfinished::default(),
            idle_lag: IdleLag::default(),
            base,
        }
    }
}
