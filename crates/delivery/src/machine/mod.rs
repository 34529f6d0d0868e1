//! The machine: one claim's delivery, advanced by [`Machine::step`].
//!
//! | module | holds |
//! | --- | --- |
//! | `finished`, `unfinished` | the finished offsets, and the known events that are not finished |
//! | `key_queues`, `members` | the order of events within a key, and the members that receive events |
//! | `reads`, `page_size`, `scan` | asking for events, how many, and deciding on each new event |
//! | `leases`, `outcomes`, `backoff` | leases and their ends, finished events, failed attempts and their waits |
//! | `uncommitted`, `commits` | the changes that are not durable yet, and the commit that makes them durable |
//! | `seek` | seek and redrive: deliveries that a user asked for again |
//! | `status`, `reason` | what operators see of a machine, and why it delivers nothing |

mod backoff;
mod commits;
mod finished;
mod key_queues;
mod leases;
mod members;
mod outcomes;
mod page_size;
mod reads;
mod reason;
mod scan;
mod seek;
mod status;
mod uncommitted;
mod unfinished;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use promethean_model::Offset;

use self::commits::Commits;
use self::finished::FinishedRanges;
use self::key_queues::KeyQueues;
use self::members::MachineMembers;
use self::reads::Reads;
use self::uncommitted::Uncommitted;
use self::unfinished::UnfinishedEvents;
use crate::config::{MachineConfig, SavedProgress};
use crate::effect::{Attempts, Effect};
use crate::input::{FailureNote, Input, MemberNo, Now};

pub use self::reason::Reason;
pub use self::status::{BlockedKey, DeliveryCounts, DeliveryStatus};

/// The machine that delivers one claim.
///
/// Invariant: every offset between the floor and `scan` is either finished or in `unfinished`. From `scan` on
/// nothing is known, except the ranges that were finished before the machine was built.
///
/// Invariant: between two steps it keeps no events, only their offsets. An event that no member can take is read
/// again when one can.
pub struct Machine {
    config: MachineConfig,
    finished: FinishedRanges,
    unfinished: UnfinishedEvents,
    key_queues: KeyQueues,
    /// The failed attempts of events that are not finished, durable or about to be.
    failures: BTreeMap<Offset, Attempts>,
    /// The last reason that was given for events in `failures`; in memory only, and bounded.
    notes: BTreeMap<Offset, Arc<FailureNote>>,
    /// The durable end of the topic, at most the end of the scope.
    end: Offset,
    /// The next offset to scan.
    scan: Offset,
    members: MachineMembers,
    /// The owner of each partition, where the group is partitioned.
    owners: Vec<Option<MemberNo>>,
    /// The members in `owners`.
    owning: BTreeSet<MemberNo>,
    paused: bool,
    reads: Reads,
    uncommitted: Uncommitted,
    commits: Commits,
    /// A lower bound of all lease deadlines.
    earliest_deadline: u64,
    /// Whether no lease may expire.
    in_grace: bool,
    next_serial: u64,
    /// Offsets that retention dropped before they were finished.
    expired: u64,
    counts: DeliveryCounts,
}

impl Machine {
    /// Makes a machine that goes on from its saved progress. It does nothing until `Input::End` tells it the
    /// durable end.
    pub fn new(config: MachineConfig, saved: SavedProgress, now: Now) -> Self {
        let floor = saved.floor.max(config.scope.range.start);
        let mut finished = FinishedRanges::below(floor);
        for range in saved.finished {
            finished.add_range(range);
        }
        let mut machine = Self {
            scan: finished.floor(),
            end: config.scope.range.start,
            commits: Commits::new(finished.floor()),
            finished,
            unfinished: UnfinishedEvents::default(),
            key_queues: KeyQueues::default(),
            failures: saved.attempts.into_iter().map(|attempts| (attempts.offset, attempts)).collect(),
            notes: BTreeMap::new(),
            members: MachineMembers::default(),
            owners: Vec::new(),
            owning: BTreeSet::new(),
            paused: saved.paused,
            reads: Reads::default(),
            uncommitted: Uncommitted::default(),
            earliest_deadline: u64::MAX,
            in_grace: false,
            next_serial: saved.first_serial,
            expired: 0,
            counts: DeliveryCounts::default(),
            config,
        };
        machine.redrive(&saved.redriven, now);
        saved.unclosed.iter().for_each(|letter| machine.uncommitted.note_closing(*letter));
        saved.reopened.iter().for_each(|letter| machine.uncommitted.note_reopened(*letter));
        machine.drop_orphans();
        machine
    }

    /// Takes one input and appends the effects it has to `effects`.
    pub fn step(&mut self, input: Input, now: Now, effects: &mut Vec<Effect>) {
        match input {
            Input::End(end) => self.end = self.end.max(end.min(self.config.scope.range.end)),
            Input::Page { request, events, next, expired } => {
                self.page(request, events, next, expired, now, effects)
            }
            Input::ReadFailed { request, retry_at_ms } => self.reads.fail(request, retry_at_ms),
            Input::Join { member, limits, allowance } => self.members.join(member, limits, allowance),
            Input::Leave { member, how } => self.leave(member, how, now),
            Input::Written { member, leases } => self.written(member, &leases, now),
            Input::Ack { member, leases, reply } => self.ack(member, &leases, reply, effects),
            Input::Nack { member, leases, delay_ms, note, reply } => {
                self.nack(member, &leases, (delay_ms, note.as_ref()), now, reply, effects);
            }
            Input::Extend { member, leases, by_ms, reply } => {
                self.extend(member, &leases, by_ms, now, reply, effects);
            }
            Input::Pause(member) => self.pause(member, true),
            Input::Resume(member) => self.pause(member, false),
            Input::Assign { owners, lost } => self.assign(owners, &lost, now, effects),
            Input::Seek { to, reply } => self.seek(to, reply, now, effects),
            Input::Redrive(letters) => self.redrive(&letters, now),
            Input::Committed(token) => self.committed(token, now, effects),
            Input::CommitSplit { token, letters } => self.commit_split(token, letters, now),
            Input::CommitFailed { token, retry_at_ms } => self.commit_failed(token, retry_at_ms, now),
            Input::Unclosed { letters, retry_at_ms } => self.unclosed(&letters, retry_at_ms),
            Input::CommitNow => self.commits.retry_now(),
            Input::Grace(in_grace) => self.in_grace = in_grace,
            Input::Credit | Input::Tick => {}
        }
        self.expire(now, effects);
        self.unfinished.wake(now.monotonic_ms);
        self.advance(now, effects);
    }

    /// The monotonic time at which the machine needs a `Tick`; `None` when only another input can change
    /// anything.
    pub fn next_deadline(&self, now: Now) -> Option<u64> {
        let may_expire = self.unfinished.leased > 0 && !self.in_grace;
        let lease = (may_expire && self.earliest_deadline < u64::MAX).then_some(self.earliest_deadline);
        [lease, self.unfinished.first_due(), self.commit_due(), self.read_retry(now), self.rate_ready(now)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Delivers the events that can be delivered, and asks for the next read and commit.
    fn advance(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.may_deliver() {
            self.scan = self.finished.first_unfinished_from(self.scan);
            self.read(now, effects);
        }
        self.members.flush(effects);
        self.commit(now, effects);
    }

    /// Whether deliveries are allowed: not while paused, and not before a seek is durable, since a crash
    /// would undo it.
    fn may_deliver(&self) -> bool {
        !self.paused && self.uncommitted.seek.is_none() && !self.commits.has_seek()
    }

    fn pause(&mut self, member: Option<MemberNo>, paused: bool) {
        match member {
            Some(member) => self.members.pause(member, paused),
            None => self.paused = paused,
        }
    }
}
