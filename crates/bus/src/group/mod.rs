//! Groups at work: one task per group and topic, which owns the delivery machine and does what it wants done.
//!
//! | module | holds |
//! | --- | --- |
//! | `task`, `serving`, `timer`, `sharing`, `showing` | the task of an owner, and its alarm |
//! | `page` | reading a page of events |
//! | `command`, `mailbox` | what an owner is told |
//! | `inbox`, `backlog` | what a subscription is given, and how much may wait for it |
//! | `page` | events, from the store to the machine |
//! | `load`, `progress`, `letters` | from the store to the machine, and back in one batch, with the letters it closes |
//! | `committer` | many of those batches in one commit |
//! | `owners` | which owners there are |

mod backlog;
mod command;
mod committer;
mod inbox;
mod letters;
mod load;
mod mailbox;
mod owners;
mod page;
mod progress;
mod serving;
mod sharing;
mod showing;
mod task;
mod timer;

use std::sync::atomic::AtomicBool;

use promethean_model::{GroupName, TopicName};

pub use self::backlog::Backlog;
pub use self::command::Seen;
pub(crate) use self::command::{Ask, Command, Joiner};
pub(crate) use self::committer::Committer;
pub(crate) use self::inbox::{Inbox, Item};
use self::mailbox::Mailbox;
pub(crate) use self::owners::{Owners, Wanted};
use crate::metrics::GroupMetrics;

/// The delivery of a topic to a group, as everyone but its task sees it.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) mailbox: Mailbox<Command>,
    pub(crate) metrics: GroupMetrics,
    /// Its number, which no other owner has had; from 1.
    pub(crate) number: u64,
    /// Whether it waits to be told of credit that another topic's owner holds now.
    pub(crate) starved: AtomicBool,
}
