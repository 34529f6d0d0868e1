//! What an owner's task knows and does: it feeds the machine and does what the machine wants done.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use promethean_delivery::{
    Allowance, DeliveryCounts, Effect, Input, Leaving, Machine, MemberNo, Now, ReplyNo, SmallMap,
};
use promethean_model::Offset;
use promethean_store::port::EndWatch;

use super::command::{Answer, Command, Joiner};
use super::inbox::{Inbox, Item};
use super::page::{Unread, read};
use super::progress::{self, Committing, Outcome};
use super::serving::Run;
use super::sharing::Shared;
use super::timer::Timer;
use super::{Owner, load};
use crate::core::Core;
use crate::error::BusError;
use crate::rows::GroupRow;

/// How long after the store failed to try again.
const RETRY_MS: u64 = 1_000;

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Takes the group over and serves it.
pub(super) fn run(core: &Arc<Core>, owner: &Arc<Owner>, row: &GroupRow) -> Run {
    Run::Starting(Box::pin(take_over(Arc::clone(core), Arc::clone(owner), row.clone())))
}

/// `None` if that failed, which everyone has been told.
async fn take_over(core: Arc<Core>, owner: Arc<Owner>, row: GroupRow) -> Option<Box<Task>> {
    let watch = core.store.watch(&owner.topic);
    let loaded = match load::load(&core, &owner, &row).await {
        Ok(loaded) => loaded,
        Err(error) => {
            core.owners.remove(&owner, error, || false);
            return None;
        }
    };
    Some(Box::new(Task {
        now: core.now(),
        core,
        owner,
        machine: loaded.machine,
        epoch: loaded.epoch,
        watch,
        end: Offset::ZERO,
        members: SmallMap::default(),
        answers: BTreeMap::new(),
        next_reply: 0,
        read: None,
        commit: None,
        effects: Vec::new(),
        letters: VecDeque::new(),
        failure: None,
        ending: None,
        enders: Vec::new(),
        paused: loaded.paused,
        closing: false,
        waiting: false,
        shown_ms: 0,
        counted: DeliveryCounts::default(),
        expired: 0,
        timer: Timer::default(),
    }))
}

pub(super) struct Task {
    pub(super) core: Arc<Core>,
    pub(super) owner: Arc<Owner>,
    pub(super) machine: Machine,
    pub(super) epoch: u64,
    pub(super) watch: EndWatch,
    /// What the machine was told last.
    pub(super) end: Offset,
    pub(super) members: SmallMap<MemberNo, Seat>,
    pub(super) answers: BTreeMap<ReplyNo, Answer<usize>>,
    pub(super) next_reply: u64,
    pub(super) read: Option<Boxed<Result<Input, Unread>>>,
    pub(super) commit: Option<Committing>,
    /// Empty between steps; kept for its memory while there is much to do.
    pub(super) effects: Vec<Effect>,
    pub(super) letters: VecDeque<Command>,
    pub(super) failure: Option<Box<BusError>>,
    /// Why to end as soon as no commit is on its way.
    pub(super) ending: Option<Box<BusError>>,
    /// Dropped when the task ends.
    pub(super) enders: Vec<Answer<()>>,
    pub(super) paused: bool,
    pub(super) closing: bool,
    /// Whether all was done that there was to do.
    pub(super) waiting: bool,
    pub(super) shown_ms: u64,
    /// What the metrics know already.
    pub(super) counted: DeliveryCounts,
    pub(super) expired: u64,
    pub(super) timer: Timer,
    /// When the task last woke up. What it does until it waits again takes no time worth counting.
    pub(super) now: Now,
}

/// A member.
pub(super) struct Seat {
    inbox: Arc<Inbox>,
    pub(super) shared: Option<Shared>,
}

impl Task {
    pub(super) fn look_at_end(&mut self) -> Result<(), BusError> {
        // Marks it as seen: only what moves it further is to wake us.
        let end = self.watch.end();
        if end < self.end {
            // A store that is closed knows no topics.
            if self.core.store.health().refusing.as_deref() == Some("closed") {
                return Err(BusError::Closed);
            }
            return Err(BusError::TopicDeleted { topic: self.owner.topic.clone() });
        }
        if end > self.end {
            self.end = end;
            self.step(Input::End(end));
        }
        Ok(())
    }

    pub(super) fn obey(&mut self, command: Command) -> Result<(), BusError> {
        match command {
            Command::Tell(input) => {
                match &input {
                    Input::Pause(None) => self.paused = true,
                    Input::Resume(None) => self.paused = false,
                    _ => {}
                }
                self.step(input);
            }
            Command::Ask(ask, answer) => {
                let reply = ReplyNo(self.next_reply);
                self.next_reply += 1;
                self.answers.insert(reply, answer);
                self.step(ask.input(reply));
            }
            Command::Join(joiner, answer) => self.join(joiner, answer),
            Command::Leave(member, how) => self.leave(member, how),
            Command::Look(answer) => drop(answer.send(Ok(self.seen()))),
            Command::Retire(answer) => self.retire(answer),
            Command::AwaitEnd(answer) if self.members.is_empty() => self.enders.push(answer),
            Command::AwaitEnd(answer) => {
                let _ = answer.send(Err(self.busy()));
            }
            Command::TopicDeleted(answer) => {
                self.enders.push(answer);
                self.ending = Some(Box::new(BusError::TopicDeleted { topic: self.owner.topic.clone() }));
            }
            Command::Close => {
                self.closing = true;
                for member in self.members.keys().collect::<Vec<_>>() {
                    self.leave(member, Leaving::Released);
                }
            }
        }
        Ok(())
    }

    fn join(&mut self, joiner: Joiner, answer: Answer<()>) {
        let Joiner { member, limits, allowance, inbox, shared } = joiner;
        // Whoever no longer waits for the answer will not know that it must leave.
        if answer.send(Ok(())).is_err() {
            return;
        }
        let credit = allowance.credit.of_user(self.owner.number);
        let allowance = Allowance { credit: credit.clone(), ..allowance };
        let shared = shared.map(|link| Shared { link, credit });
        self.members.insert(member, Seat { inbox, shared });
        for waiting in std::mem::take(&mut self.enders) {
            let _ = waiting.send(Err(self.busy()));
        }
        self.step(Input::Join { member, limits, allowance });
    }

    fn leave(&mut self, member: MemberNo, how: Leaving) {
        if let Some(seat) = self.members.remove(member) {
            self.step(Input::Leave { member, how });
            if self.closing {
                seat.inbox.end(BusError::Closed);
            }
        }
    }

    fn retire(&mut self, answer: Answer<()>) {
        if !self.members.is_empty() {
            // Whoever asked may have gone away.
            let _ = answer.send(Err(self.busy()));
            return;
        }
        let group = self.owner.group.clone();
        let subject = self.owner.topic.to_string();
        self.ending = Some(Box::new(BusError::UnknownGroup { group, subject }));
        self.enders.push(answer);
    }

    fn busy(&self) -> BusError {
        BusError::GroupBusy { group: self.owner.group.clone(), members: self.members.len() }
    }

    pub(super) fn answered(&mut self, answer: Result<Input, Unread>) {
        match answer {
            Ok(input) => self.step(input),
            Err(Unread { request, error }) => {
                self.failure = Some(Box::new(error));
                let retry_at_ms = self.now.monotonic_ms.saturating_add(RETRY_MS);
                self.step(Input::ReadFailed { request, retry_at_ms });
            }
        }
    }

    pub(super) fn committed(&mut self, outcome: Outcome) -> Result<(), BusError> {
        match outcome.result {
            Ok(unclosed) => {
                self.failure = None;
                if !unclosed.is_empty() {
                    // Before the next commit can go out.
                    let retry_at_ms = self.now.monotonic_ms.saturating_add(RETRY_MS);
                    self.step(Input::Unclosed { letters: unclosed, retry_at_ms });
                }
                self.step(Input::Committed(outcome.token));
                Ok(())
            }
            // Whoever shuts down cannot wait for the store to recover; what is not committed is delivered again.
            Err(error) if self.is_the_end(&error) => Err(error),
            Err(error) => {
                self.failure = Some(Box::new(error));
                let retry_at_ms = self.now.monotonic_ms.saturating_add(RETRY_MS);
                self.step(Input::CommitFailed { token: outcome.token, retry_at_ms });
                Ok(())
            }
        }
    }

    fn is_the_end(&self, error: &BusError) -> bool {
        match error {
            // A dead-letter topic that goes at this moment comes again with the next try.
            BusError::TopicDeleted { topic } => *topic == self.owner.topic,
            error => error.is_final() || self.closing || *self.core.shutdown.borrow(),
        }
    }

    pub(super) fn step(&mut self, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.step(input, self.now, &mut effects);
        for effect in effects.drain(..) {
            self.perform(effect);
        }
        self.effects = effects;
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Read { request, from, limit } => {
                let (core, owner) = (Arc::clone(&self.core), Arc::clone(&self.owner));
                self.read = Some(Box::pin(read(core, owner, request, from, limit)));
            }
            Effect::Commit(progress) => {
                self.commit = Some(progress::commit(&self.core, &self.owner, self.epoch, progress));
            }
            Effect::Deliver(member, deliveries) => {
                self.owner.metrics.delivered.add(deliveries.len() as u64);
                if let Some(Seat { inbox, .. }) = self.members.get(member) {
                    inbox.put(Item::Leases(Arc::clone(&self.owner), deliveries.into()));
                }
            }
            Effect::Revoke(member, leases) => {
                if let Some(Seat { inbox, .. }) = self.members.get(member) {
                    inbox.revoke(&self.owner, &leases);
                }
            }
            Effect::Reply { reply, stale } => {
                if let Some(answer) = self.answers.remove(&reply) {
                    // Whoever asked may have gone away.
                    let _ = answer.send(Ok(stale));
                }
            }
        }
    }

    /// Whether the owner has ended: nobody is a member, and all there was to write is written.
    pub(super) fn is_done(&mut self) -> bool {
        let idle = self.members.is_empty() && self.commit.is_none() && self.machine.is_settled();
        idle && self
            .core
            .owners
            .remove(&self.owner, BusError::Closed, || !self.closing && !self.owner.mailbox.is_empty())
    }

    /// Tells everyone that it is over.
    pub(super) fn stop(&mut self, why: &BusError) {
        self.core.owners.remove(&self.owner, why.clone(), || false);
        (self.read, self.commit) = (None, None);
        self.show();
        for answer in std::mem::take(&mut self.answers).into_values() {
            // As above.
            let _ = answer.send(Err(why.clone()));
        }
        for seat in self.members.values() {
            match &seat.shared {
                // The other topics of the pattern go on.
                Some(shared) if matches!(why, BusError::TopicDeleted { .. }) => {
                    if let Some(link) = shared.link.upgrade() {
                        link.forget(&self.owner);
                    }
                }
                _ => seat.inbox.end(why.clone()),
            }
        }
        // Gives the members' credit back, for other topics to use.
        let members = std::mem::take(&mut self.members);
        for member in members.keys() {
            let now = self.core.now();
            self.machine.step(Input::Leave { member, how: Leaving::Released }, now, &mut Vec::new());
        }
        members.values().filter_map(|seat| seat.shared.as_ref()).for_each(Shared::leave);
    }
}
