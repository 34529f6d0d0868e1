//! The task of an owner: it feeds the machine and does what the machine wants done.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use promethean_model::Offset;
use promethean_store::port::EndWatch;

use super::command::{Answer, Command, Joiner, Seen};
use super::inbox::{Inbox, Item};
use super::page::{Unread, read};
use super::progress::{self, Outcome};
use super::timer::Timer;
use super::{Owner, load};
use crate::core::Core;
use crate::delivery::types::{Effect, Input, Leaving, MemberNo, Now, Reason, ReplyNo};
use crate::delivery::{Credit, Machine};
use crate::error::BusError;
use crate::rows::GroupRow;
use crate::small_map::SmallMap;
use crate::subscription::Link;

/// How long after the store failed to try again.
const RETRY_MS: u64 = 1_000;
/// How often the gauges of a busy group are brought up to date.
const SHOW_EVERY_MS: u64 = 100;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Serves the owner until it has nothing to do, or cannot go on.
pub(super) async fn run(core: Arc<Core>, owner: Arc<Owner>, row: GroupRow) {
    // On the heap, as it is large and soon over: a task at rest is no larger than what it needs then.
    let Some(mut task) = Box::pin(start(core, owner, row)).await else { return };
    if let Err(why) = task.serve().await {
        task.stop(&why);
    }
}

/// Takes the group over; `None` if that failed, which everyone has been told.
async fn start(core: Arc<Core>, owner: Arc<Owner>, row: GroupRow) -> Option<Box<Task>> {
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
        answers: HashMap::new(),
        next_reply: 0,
        read: None,
        commit: None,
        effects: Vec::new(),
        letters: VecDeque::new(),
        failure: None,
        paused: row.paused,
        closing: false,
        shown_ms: 0,
        redeliveries: 0,
        timer: Timer::default(),
    }))
}

struct Task {
    core: Arc<Core>,
    owner: Arc<Owner>,
    machine: Machine,
    epoch: u64,
    watch: EndWatch,
    /// What the machine was told last.
    end: Offset,
    members: SmallMap<MemberNo, Seat>,
    answers: HashMap<ReplyNo, Answer<usize>>,
    next_reply: u64,
    read: Option<Boxed<Result<Input, Unread>>>,
    commit: Option<Boxed<Outcome>>,
    /// Empty between steps; kept for its memory.
    effects: Vec<Effect>,
    letters: VecDeque<Command>,
    failure: Option<Box<BusError>>,
    paused: bool,
    closing: bool,
    shown_ms: u64,
    redeliveries: u64,
    timer: Timer,
    /// When the task last woke up. What it does until it waits again takes no time worth counting.
    now: Now,
}

/// A member.
struct Seat {
    inbox: Arc<Inbox>,
    shared: Option<Shared>,
}

/// Credit that owners of other topics use too.
struct Shared {
    link: Weak<Link>,
    credit: Credit,
    /// What was left when we last looked.
    free: usize,
}

/// What the task woke up for.
enum Woken {
    Read(Result<Input, Unread>),
    Committed(Outcome),
    Other,
}

impl Task {
    /// Returns when there is nothing to do any more; an error when it cannot go on.
    async fn serve(&mut self) -> Result<(), BusError> {
        loop {
            self.look_at_end()?;
            self.owner.mailbox.take(&mut self.letters);
            while let Some(command) = self.letters.pop_front() {
                self.obey(command)?;
            }
            self.share_credit();
            self.show();
            if self.is_done() {
                return Ok(());
            }
            let woken = self.wait().await;
            self.now = self.core.now();
            match woken {
                Woken::Read(answer) => self.answered(answer),
                Woken::Committed(outcome) => self.committed(outcome)?,
                Woken::Other => self.step(Input::Tick),
            }
        }
    }

    async fn wait(&mut self) -> Woken {
        let due = self.machine.next_deadline(self.now);
        self.timer.arm(due.map(|due| due.saturating_sub(self.now.monotonic_ms)));
        // In this order: letters may never end, and what was asked for comes at most once.
        tokio::select! {
            biased;
            outcome = ready(&mut self.commit) => Woken::Committed(outcome),
            answer = ready(&mut self.read) => Woken::Read(answer),
            () = self.owner.mailbox.arrived() => Woken::Other,
            _ = self.watch.changed() => Woken::Other,
            () = self.timer.fired() => Woken::Other,
        }
    }

    fn look_at_end(&mut self) -> Result<(), BusError> {
        // Marks it as seen: only what moves it further is to wake us.
        let end = self.watch.end();
        if end < self.end {
            return Err(BusError::TopicDeleted { topic: self.owner.topic.clone() });
        }
        if end > self.end {
            self.end = end;
            self.step(Input::End(end));
        }
        Ok(())
    }

    fn obey(&mut self, command: Command) -> Result<(), BusError> {
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
            Command::Retire(answer) => return self.retire(answer),
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
        let shared = shared.map(|link| Shared { link, credit: allowance.credit.clone(), free: 0 });
        self.members.insert(member, Seat { inbox, shared });
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

    fn retire(&mut self, answer: Answer<()>) -> Result<(), BusError> {
        let members = self.members.len();
        if members > 0 {
            // Whoever asked may have gone away.
            let _ = answer.send(Err(BusError::GroupBusy { group: self.owner.group.clone(), members }));
            return Ok(());
        }
        let gone =
            BusError::UnknownGroup { group: self.owner.group.clone(), subject: self.owner.topic.to_string() };
        // What was to be committed is about to be deleted.
        self.core.owners.remove(&self.owner, gone.clone(), || false);
        let _ = answer.send(Ok(()));
        Err(gone)
    }

    fn answered(&mut self, answer: Result<Input, Unread>) {
        match answer {
            Ok(input) => self.step(input),
            Err(Unread { request, error }) => {
                self.failure = Some(Box::new(error));
                let retry_at_ms = self.now.monotonic_ms.saturating_add(RETRY_MS);
                self.step(Input::ReadFailed { request, retry_at_ms });
            }
        }
    }

    fn committed(&mut self, outcome: Outcome) -> Result<(), BusError> {
        match outcome.result {
            Ok(()) => {
                self.failure = None;
                self.step(Input::Committed(outcome.token));
                Ok(())
            }
            Err(error) if error.is_final() => Err(error),
            Err(error) => {
                self.failure = Some(Box::new(error));
                let retry_at_ms = self.now.monotonic_ms.saturating_add(RETRY_MS);
                self.step(Input::CommitFailed { token: outcome.token, retry_at_ms });
                Ok(())
            }
        }
    }

    fn step(&mut self, input: Input) {
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
                let (core, owner) = (Arc::clone(&self.core), Arc::clone(&self.owner));
                self.commit = Some(Box::pin(progress::commit(core, owner, self.epoch, progress)));
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

    fn seen(&self) -> Seen {
        Seen {
            status: self.machine.status(),
            reason: self.machine.reason(self.core.now()),
            members: self.members.len(),
            paused: self.paused,
            failure: self.failure.as_deref().cloned(),
        }
    }

    /// Brings the gauges up to date: now and then under load, at once when the group comes to rest.
    fn show(&mut self) {
        let now_ms = self.now.monotonic_ms;
        let at_rest = self.read.is_none() && self.commit.is_none();
        if !at_rest && now_ms < self.shown_ms.saturating_add(SHOW_EVERY_MS) {
            return;
        }
        self.shown_ms = now_ms;
        let (metrics, status) = (&self.owner.metrics, self.machine.status());
        if at_rest && status.in_flight == 0 {
            // It may stay so for long.
            (self.effects, self.letters) = (Vec::new(), VecDeque::new());
        }
        metrics.set_members(self.members.len() as i64);
        metrics.set_inflight(status.in_flight as i64);
        metrics.set_lag(i64::try_from(status.lag).unwrap_or(i64::MAX));
        metrics.set_blocked_keys(status.blocked_keys.len() as i64);
        metrics.redelivered.add(status.redeliveries - self.redeliveries);
        self.redeliveries = status.redeliveries;
    }

    /// Tells owners that starve for the credit of a member they share that there is some, and starves if there is none.
    fn share_credit(&mut self) {
        let mut shares = false;
        for seat in self.members.values_mut() {
            let Some(shared) = &mut seat.shared else { continue };
            shares = true;
            let free = shared.credit.free();
            let before = std::mem::replace(&mut shared.free, free);
            if free <= before {
                continue;
            }
            let Some(link) = shared.link.upgrade() else { continue };
            for owner in link.owners() {
                if owner.starved.swap(false, Ordering::AcqRel) {
                    // One that has ended needs nothing.
                    let _ = owner.mailbox.send_now(Command::Tell(Input::Credit));
                }
            }
        }
        if shares && self.machine.reason(self.now) == Some(Reason::Credit) {
            self.owner.starved.store(true, Ordering::Release);
            // Given back between the look and the flag: nobody would tell us.
            if self.members.values().filter_map(|seat| seat.shared.as_ref()).any(|s| s.credit.free() > 0) {
                self.step(Input::Credit);
            }
        }
    }

    /// Whether the owner has ended: nobody is a member, and all there was to write is written.
    fn is_done(&mut self) -> bool {
        let idle = self.members.is_empty() && self.commit.is_none() && self.machine.is_settled();
        idle && self
            .core
            .owners
            .remove(&self.owner, BusError::Closed, || !self.closing && !self.owner.mailbox.is_empty())
    }

    /// Tells everyone that it is over.
    fn stop(&mut self, why: &BusError) {
        self.core.owners.remove(&self.owner, why.clone(), || false);
        for (_, answer) in self.answers.drain() {
            // As above.
            let _ = answer.send(Err(why.clone()));
        }
        for seat in self.members.values() {
            seat.inbox.end(why.clone());
        }
        // Gives the members' credit back.
        for member in std::mem::take(&mut self.members).keys() {
            let now = self.core.now();
            self.machine.step(Input::Leave { member, how: Leaving::Released }, now, &mut Vec::new());
        }
    }
}

/// Waits for the future and forgets it; for ever if there is none.
async fn ready<T>(future: &mut Option<Boxed<T>>) -> T {
    let output = match future {
        Some(future) => future.await,
        None => pending().await,
    };
    *future = None;
    output
}
