//! Random runs of a machine beside the reference. A failed run prints its seed, and `BUS_SEED=n` repeats it.
//! `BUS_STEPS` is the length of a run, `BUS_SEEDS` the number of runs, `BUS_FRESH` the number of fresh seeds.
//! `BUS_TRACE=1` prints every input and effect.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use promethean_delivery::{
    Allowance, Credit, DeliveryRate, Effect, FailureNote, Input, LeaseRef, Leaving, LetterRef, Machine,
    MachineBounds, MachineConfig, MemberLimits, MemberNo, Now, Order, Reason, ReplyNo, Scope,
};
use promethean_model::{Offset, OffsetRange, StoredEvent, partition_of};
use promethean_testkit::{SeededRng, seeds};

use self::reference::{Event, LetterChanges, Member, Reference, Waiting};
use self::store::Store;
use super::support::{Every, event};

mod actions;
mod drain;
mod letters;
mod reference;
mod store;
mod verdict;

/// Seeds that found a bug, or a fault of the reference, once.
const FOUND: [u64; 12] = [
    106_058,
    117_476,
    118_503,
    104_752,
    116_156,
    118_716,
    256,
    2_053,
    7_896_578_954_496_919_881,
    2_863_832_255_191_548_039,
    18_326_385_561_747_949_439,
    16_063_138_726_988_077_725,
];

#[test]
fn any_run_is_as_the_reference_says() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let steps = number("BUS_STEPS").unwrap_or(1_500);
    for seed in seeds("BUS", 240, &FOUND, 3_000) {
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
    bounds: MachineBounds,
    rated: bool,
    commit_every_ms: u64,
    /// Whether users redrive and seek often.
    restless: bool,
}

impl Options {
    fn random(rng: &mut SeededRng) -> Self {
        let letters = if rng.chance(50) { rng.range(1..4) as usize } else { 1_000 };
        let tight = MachineBounds { look_ahead: 4, window: 6, page: 5, letters };
        let wide = MachineBounds { look_ahead: 100_000, window: 100_000, page: 8, letters };
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
            restless: rng.chance(40),
        }
    }

    fn config(&self, seed: u64) -> MachineConfig {
        let scope = Scope { range: Scope::everything().range, partitions: self.scope.clone() };
        let filtered = self.filtered;
        MachineConfig {
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
    reference: Reference,
    now: Now,
    read: Option<(u64, u64, usize)>,
    /// Whether a seek came after the read.
    abandoned: bool,
    /// The ranges that were finished at the last restart. A read in one of them is for a redriven event.
    restored: Vec<OffsetRange>,
    next_member: u64,
    next_reply: u64,
    next_serial: u64,
    /// All leases so far with their members, current or not.
    history: Vec<(MemberNo, LeaseRef)>,
    retry_until: u64,
    gone_unnoticed: bool,
    /// Whether no lease may expire.
    in_grace: bool,
    /// The most dead letters of the next commit.
    letters: usize,
    effects: Vec<Effect>,
    /// Whether every input and effect is printed.
    traced: bool,
}

impl Sim {
    fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let options = Options::random(&mut rng);
        let now = Now { monotonic_ms: 1_000, wall_ms: 1_000_000 };
        let reference = Reference {
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
            acked: BTreeSet::new(),
            leases: BTreeMap::new(),
            failed: BTreeMap::new(),
            notes: BTreeMap::new(),
            members: BTreeMap::new(),
            owners: Vec::new(),
            paused: false,
            seeking: None,
            sought_to: 0,
            sought: false,
            pend_failed: BTreeSet::new(),
            pend_letters: LetterChanges::default(),
            pend_replies: Vec::new(),
            sent: None,
            store: Store::default(),
            owed: BTreeMap::new(),
            mail: VecDeque::new(),
        };
        let letters = options.bounds.letters;
        let machine = Machine::new(options.config(seed), reference.store.saved_progress(0, |_| false), now);
        Self {
            seed,
            rng,
            options,
            machine,
            reference,
            now,
            read: None,
            abandoned: false,
            restored: Vec::new(),
            next_member: 1,
            next_reply: 1,
            next_serial: 0,
            history: Vec::new(),
            retry_until: 0,
            gone_unnoticed: false,
            in_grace: false,
            letters,
            effects: Vec::new(),
            traced: env::var_os("BUS_TRACE").is_some(),
        }
    }

    /// Gives the machine an input that the reference knows already, and judges its effects. `revoked` are the
    /// leases that the input ends, `answers` the replies that must come at once.
    fn step(&mut self, input: Input, mut revoked: Vec<(MemberNo, LeaseRef)>, answers: Vec<(ReplyNo, usize)>) {
        for (offset, lease) in self.reference.leases.clone() {
            if !self.in_grace && lease.deadline.is_some_and(|deadline| deadline <= self.now.monotonic_ms) {
                revoked.push((lease.member, LeaseRef { offset: Offset(offset), serial: lease.serial }));
                self.reference.fail(offset, self.now.monotonic_ms, Some(0));
            }
        }
        let mut effects = std::mem::take(&mut self.effects);
        self.trace(&input);
        self.machine.step(input, self.now, &mut effects);
        effects.iter().for_each(|effect| self.trace(effect));
        let first_serial = self.next_serial;
        let (mut got_revoked, mut got_answers) = (Vec::new(), Vec::new());
        for effect in effects.drain(..) {
            match effect {
                Effect::Read { request, from, limit } => {
                    assert!(self.read.is_none(), "two reads at once");
                    assert!(!self.reference.paused && !self.reference.is_seeking() && limit > 0);
                    assert!(
                        self.reference.members.values().any(|m| !m.paused && m.allowance.credit.free() > 0)
                    );
                    self.read = Some((request, from.0, limit));
                    self.abandoned = false;
                }
                Effect::Commit(progress) => self.reference.judge_commit(progress, self.letters),
                Effect::Deliver(member, deliveries) => {
                    assert!(
                        !deliveries.is_empty() && deliveries.len() <= self.reference.members[&member].batch
                    );
                    for delivery in &deliveries {
                        self.reference.judge_delivery(member, delivery, self.now);
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

    #[expect(clippy::print_stdout, reason = "a person asked for it")]
    fn trace(&self, what: &dyn std::fmt::Debug) {
        if self.traced {
            println!("{what:?}");
        }
    }

    fn judge(&mut self) {
        let status = self.machine.status();
        self.reference.judge_status(&status);
        let reason = self.machine.reason(self.now);
        self.reference.judge_reason(reason, &status, self.options.bounds);
        let certain = self.reference.failed.values().all(|failed| failed.due.is_some() && failed.exact);
        let noticed = status.lag == self.reference.undone.range(..self.reference.end).count() as u64
            && status.redriven == self.reference.extras.len();
        self.gone_unnoticed &= !noticed;
        let was_finished = |o: u64| self.restored.iter().any(|range| range.contains(Offset(o)));
        let unseen = (status.scanned.0..self.reference.end).any(|offset| !was_finished(offset));
        let comparable =
            (noticed || unseen) && !self.gone_unnoticed && status.redriven == self.reference.extras.len();
        if self.options.bounds.window > 1_000 && certain && comparable {
            let expected = self.reference.reason(unseen, status.lag, self.now);
            assert!(expected.contains(&reason), "reason {reason:?} instead of {expected:?}: {status:?}");
        }
        // While no read or commit is out and no retry is due, the machine must give a reason.
        let quiet =
            self.read.is_none() && self.reference.sent.is_none() && self.retry_until <= self.now.monotonic_ms;
        let timer = self.machine.next_deadline(self.now).is_some_and(|at| at <= self.now.monotonic_ms);
        assert!(!timer || !quiet, "wants a tick in the past");
        assert!(!quiet || reason.is_some(), "stalls without a reason: {status:?}");
    }
}
