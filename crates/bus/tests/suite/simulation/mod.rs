//! Random runs of a delivery machine beside the reference. A failed run prints its seed; `BUS_SEED=n` repeats it, `BUS_STEPS`
//! and `BUS_SEEDS` say how long and how many.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use promethean_bus::delivery::types::*;
use promethean_bus::delivery::{Allowance, Bounds, Config, Credit, Machine, Rate};
use promethean_model::{Offset, OffsetRange, partition_of};
use promethean_store::port::StoredEvent;
use promethean_testkit::SeededRng;

use super::model::{Event, Member, Model, Store, Waiting};
use super::support::{Every, event};

mod actions;
mod drain;

#[test]
fn any_run_is_as_the_reference_says() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let steps = number("BUS_STEPS").unwrap_or(1_500);
    let seeds = match number("BUS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BUS_SEEDS").unwrap_or(240),
    };
    for seed in seeds {
        let run = catch_unwind(AssertUnwindSafe(|| {
            let mut sim = Sim::new(seed);
            for _ in 0..steps {
                sim.act();
            }
            sim.drain();
        }));
        if let Err(panic) = run {
            println!("BUS_SEED={seed} BUS_STEPS={steps} repeats this");
            resume_unwind(panic);
        }
    }
}

struct Options {
    order: Order,
    partitions: Option<u32>,
    scope: Option<(u32, BTreeSet<u32>)>,
    filtered: bool,
    max_attempts: u32,
    dead_letters: bool,
    bounds: Bounds,
    rated: bool,
    commit_every_ms: u64,
}

impl Options {
    fn random(rng: &mut SeededRng) -> Self {
        let letters = if rng.chance(50) { rng.range(1..4) as usize } else { 1_000 };
        let tight = Bounds { look_ahead: 4, window: 6, page: 5, letters };
        let wide = Bounds { look_ahead: 100_000, window: 100_000, page: 8, letters };
        Self {
            order: if rng.chance(50) { Order::Key } else { Order::None },
            partitions: rng.chance(35).then_some(4),
            scope: rng.chance(20).then(|| (3, BTreeSet::from([0, 2]))),
            filtered: rng.chance(30),
            max_attempts: rng.range(1..5) as u32,
            dead_letters: rng.chance(80),
            bounds: if rng.chance(40) { tight } else { wide },
            rated: rng.chance(20),
            commit_every_ms: if rng.chance(50) { 7 } else { 0 },
        }
    }

    fn config(&self, seed: u64) -> Config {
        let scope = Scope { range: Scope::everything().range, partitions: self.scope.clone() };
        let filtered = self.filtered;
        Config {
            scope,
            filter: Some(Box::new(move |event| !filtered || wanted(event))),
            order: self.order,
            partitions: self.partitions,
            max_attempts: self.max_attempts,
            dead_letters: self.dead_letters,
            seed,
            commit_every_ms: self.commit_every_ms,
            bounds: self.bounds,
        }
    }
}

fn wanted(event: &StoredEvent) -> bool {
    event.key() != Some("c")
}

struct Sim {
    seed: u64,
    rng: SeededRng,
    options: Options,
    machine: Machine,
    model: Model,
    now: Now,
    read: Option<(u64, u64, usize)>,
    /// A seek came after the read.
    abandoned: bool,
    /// New events have been read up to here.
    seen: u64,
    next_member: u64,
    next_reply: u64,
    next_serial: u64,
    /// All leases so far, by member, current or not.
    history: Vec<(MemberNo, LeaseRef)>,
    retry_until: u64,
    gone_unnoticed: bool,
    effects: Vec<Effect>,
}

impl Sim {
    fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let options = Options::random(&mut rng);
        let now = Now { monotonic_ms: 1_000, wall_ms: 1_000_000 };
        let model = Model {
            order: options.order,
            partitions: options.partitions,
            max_attempts: options.max_attempts,
            dead_letters: options.dead_letters,
            log: Vec::new(),
            earliest: 0,
            end: 0,
            undone: BTreeSet::new(),
            done: BTreeSet::new(),
            extras: BTreeSet::new(),
            leases: BTreeMap::new(),
            failed: BTreeMap::new(),
            members: BTreeMap::new(),
            owners: Vec::new(),
            paused: false,
            seeking: None,
            sought: false,
            pend_failed: BTreeSet::new(),
            pend_dead: BTreeMap::new(),
            pend_redriven: BTreeSet::new(),
            pend_replies: Vec::new(),
            sent: None,
            store: Store::default(),
        };
        let machine = Machine::new(options.config(seed), model.store.start(0, |_| false), now);
        Self {
            seed,
            rng,
            options,
            machine,
            model,
            now,
            read: None,
            abandoned: false,
            seen: 0,
            next_member: 1,
            next_reply: 1,
            next_serial: 0,
            history: Vec::new(),
            retry_until: 0,
            gone_unnoticed: false,
            effects: Vec::new(),
        }
    }

    /// One input, already told to the reference, and everything that follows from it. `revoked`: leases that end by
    /// it; `answers`: replies that come at once.
    fn step(&mut self, input: Input, mut revoked: Vec<(MemberNo, LeaseRef)>, answers: Vec<(ReplyNo, usize)>) {
        for (offset, lease) in self.model.leases.clone() {
            if lease.deadline.is_some_and(|deadline| deadline <= self.now.monotonic_ms) {
                revoked.push((lease.member, LeaseRef { offset: Offset(offset), serial: lease.serial }));
                self.model.fail(offset, self.now.monotonic_ms, Some(0));
            }
        }
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.step(input, self.now, &mut effects);
        let first_serial = self.next_serial;
        let (mut got_revoked, mut got_answers) = (Vec::new(), Vec::new());
        for effect in effects.drain(..) {
            match effect {
                Effect::Read { request, from, limit } => {
                    assert!(self.read.is_none(), "two reads at once");
                    assert!(!self.model.paused && !self.model.is_seeking() && limit > 0);
                    assert!(self.model.members.values().any(|m| !m.paused && m.allowance.credit.free() > 0));
                    self.read = Some((request, from.0, limit));
                    self.abandoned = false;
                }
                Effect::Commit(progress) => self.model.judge_commit(progress, self.options.bounds.letters),
                Effect::Deliver(member, deliveries) => {
                    assert!(!deliveries.is_empty() && deliveries.len() <= self.model.members[&member].batch);
                    for delivery in &deliveries {
                        self.model.judge_delivery(member, delivery, self.now);
                        assert!(delivery.lease.serial >= first_serial, "serial used again");
                        self.next_serial = self.next_serial.max(delivery.lease.serial + 1);
                        self.history.push((member, delivery.lease));
                    }
                }
                Effect::Revoke(member, leases) => {
                    got_revoked.extend(leases.into_iter().map(|lease| (member, lease)))
                }
                Effect::Reply { reply, stale } => got_answers.push((reply, stale)),
            }
        }
        self.effects = effects;
        revoked.sort_unstable();
        got_revoked.sort_unstable();
        assert_eq!(got_revoked, revoked, "revoked");
        assert_eq!(got_answers, answers, "answers");
        self.judge();
    }

    fn judge(&mut self) {
        let status = self.machine.status();
        self.model.judge_status(&status);
        let reason = self.machine.reason(self.now);
        self.model.judge_reason(reason, &status, self.options.bounds);
        let certain = self.model.failed.values().all(|failed| failed.due.is_some() && failed.exact);
        let noticed = status.lag == self.model.undone.range(..self.model.end).count() as u64
            && status.redriven == self.model.extras.len();
        self.gone_unnoticed &= !noticed;
        let unseen = self.seen < self.model.end;
        let comparable =
            (noticed || unseen) && !self.gone_unnoticed && status.redriven == self.model.extras.len();
        if self.options.bounds.window > 1_000 && certain && comparable {
            let expected = self.model.reason(unseen, status.lag, self.now);
            assert!(
                expected.contains(&reason),
                "reason {reason:?} instead of {expected:?}: {status:?} {}",
                self.seen
            );
        }
        // No lease is out and no event waits to be tried again: then the machine must give a reason.
        let quiet =
            self.read.is_none() && self.model.sent.is_none() && self.retry_until <= self.now.monotonic_ms;
        let timer = self.machine.next_deadline(self.now).is_some_and(|at| at <= self.now.monotonic_ms);
        assert!(!timer || !quiet, "wants a tick in the past");
        assert!(!quiet || reason.is_some(), "stalls without a reason: {status:?}");
    }
}
