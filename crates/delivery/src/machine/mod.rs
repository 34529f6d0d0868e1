//! The machine and its one door.
//!
//! - Its parts: `leases`, `failing`, `scanning`, `reading`, `committing`, `seeking`, `explain`.
//! - The collections it is made of: `table`, `ranges`, `keys`, `facts`, `members`.

mod backoff;
mod committing;
mod explain;
mod facts;
mod failing;
mod keys;
mod leases;
mod members;
mod ranges;
mod reading;
mod scanning;
mod seeking;
mod status;
mod table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use promethean_model::{Offset, StoredEvent};

use self::committing::Commits;
use self::facts::Facts;
use self::keys::Keys;
use self::members::Members;
use self::ranges::Finished;
use self::reading::Reads;
use self::table::Table;
use crate::config::{Config, Start};
use crate::types::{Attempts, Effect, Input, MemberNo, Now};

pub use self::status::{BlockedKey, Counts, Status};

/// Delivers one claim. Between `floor` and `scan` every offset is either finished or in the table; nothing is known
/// about offsets from `scan` on, except ranges that were finished before the machine was built.
pub struct Machine {
    config: Config,
    finished: Finished,
    table: Table,
    keys: Keys,
    /// The rows of failed attempts of events that are not finished, durable or on their way.
    failures: BTreeMap<Offset, Attempts>,
    /// The durable end, or the end of the scope.
    end: Offset,
    scan: Offset,
    /// What was read beyond `scan` and not looked at yet, and where that page ended.
    buffer: VecDeque<StoredEvent>,
    buffer_end: Offset,
    members: Members,
    /// By partition, where the group is partitioned.
    owners: Vec<Option<MemberNo>>,
    /// Those among `owners`.
    owning: BTreeSet<MemberNo>,
    paused: bool,
    reads: Reads,
    facts: Facts,
    commits: Commits,
    /// No lease ends before.
    earliest_deadline: u64,
    next_serial: u64,
    expired: u64,
    counts: Counts,
}

impl Machine {
    /// A machine that goes on from what was persisted. It knows no end, so it does nothing until it is told.
    pub fn new(config: Config, start: Start, now: Now) -> Self {
        let floor = start.floor.max(config.scope.range.start);
        let mut finished = Finished::below(floor);
        for range in start.finished {
            finished.add_range(range);
        }
        let mut machine = Self {
            scan: finished.floor(),
            end: config.scope.range.start,
            commits: Commits::new(finished.floor()),
            finished,
            table: Table::default(),
            keys: Keys::default(),
            failures: start.attempts.into_iter().map(|attempts| (attempts.offset, attempts)).collect(),
            buffer: VecDeque::new(),
            buffer_end: Offset::ZERO,
            members: Members::default(),
            owners: Vec::new(),
            owning: BTreeSet::new(),
            paused: start.paused,
            reads: Reads::default(),
            facts: Facts::default(),
            earliest_deadline: u64::MAX,
            next_serial: start.first_serial,
            expired: 0,
            counts: Counts::default(),
            config,
        };
        machine.redrive(&start.redriven, now);
        start.reopened.iter().for_each(|offset| machine.facts.note_reopened(*offset));
        machine.drop_orphans();
        machine
    }

    /// Takes one input; what is to be done goes to the end of `effects`.
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
            Input::Nack { member, leases, delay_ms, reply } => {
                self.nack(member, &leases, delay_ms, now, reply, effects);
            }
            Input::Extend { member, leases, by_ms, reply } => {
                self.extend(member, &leases, by_ms, now, reply, effects);
            }
            Input::Pause(member) => self.pause(member, true),
            Input::Resume(member) => self.pause(member, false),
            Input::Assign(owners) => self.assign(owners, effects),
            Input::Seek { to, reply } => self.seek(to, reply, effects),
            Input::Redrive(offsets) => self.redrive(&offsets, now),
            Input::Committed(token) => self.committed(token, now, effects),
            Input::CommitFailed { token, retry_at_ms } => self.commit_failed(token, retry_at_ms),
            Input::Unclosed { letters, retry_at_ms } => self.unclosed(&letters, retry_at_ms),
            Input::Credit | Input::Tick => {}
        }
        self.expire(now, effects);
        self.table.wake(now.monotonic_ms);
        self.go_on(now, effects);
    }

    /// The monotonic time at which a `Tick` is wanted, unless something else happens before; `None` when only
    /// something else can make a difference.
    pub fn next_deadline(&self, now: Now) -> Option<u64> {
        let lease =
            (self.table.leased > 0 && self.earliest_deadline < u64::MAX).then_some(self.earliest_deadline);
        [lease, self.table.first_due(), self.commit_due(), self.read_retry(now), self.rate_ready(now)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Delivers what can be delivered and asks for what is needed to go on.
    fn go_on(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.may_deliver() {
            self.scan_buffer(now, effects);
            self.read(now, effects);
        }
        self.members.flush(effects);
        self.commit(now, effects);
    }

    /// Whether anything may be delivered at all: not while a seek is not durable, since a crash would undo it.
    fn may_deliver(&self) -> bool {
        !self.paused && self.facts.seek.is_none() && !self.commits.seeking()
    }

    fn pause(&mut self, member: Option<MemberNo>, paused: bool) {
        match member {
            Some(member) => self.members.pause(member, paused),
            None => self.paused = paused,
        }
    }
}
