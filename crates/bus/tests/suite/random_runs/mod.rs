//! Random runs from publish to ack, with members that fail, buses that close and power cuts.
//!
//! A failed run prints its seed, and `BUSRUN_SEED=n` repeats the run. `BUSRUN_SEEDS` sets the number of fixed seeds,
//! `BUSRUN_FRESH` the number of fresh seeds, `BUSRUN_STEPS` the steps of a run. `BUSRUN_TRACE=1` prints the steps.
//!
//! Users seek, redrive and drop letters, pause groups, set retention, and delete groups and topics. The store refuses
//! writes for a while, also because it is full or busy. Descriptors run out. Time passes without the process, and the wall
//! clock jumps. What happened is counted, and most
//! kinds of action must have taken effect in some run. A power cut also tears the journal of the state engine. In memory a seed repeats a run exactly; on disk it
//! repeats the choices, but not the order in which threads meet.

mod actions;
mod coverage;
mod ground;
mod judge;
mod members;
mod users;

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

use promethean_bus::Bus;
use promethean_testkit::{Ledger, SeededRng, seeds};

use self::coverage::Coverage;
use self::ground::Ground;
use self::judge::Judge;
use self::members::Member;
use super::bus::harness::soon;

/// Prints what happens in a run, if `BUSRUN_TRACE` is set.
macro_rules! trace {
    ($($text:tt)*) => {
        if std::env::var_os("BUSRUN_TRACE").is_some() {
            eprintln!($($text)*);
        }
    };
}
pub(super) use trace;

/// How long a step may take. Only a stalled step takes longer, also on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Seeds that found a bug, or a fault of the judge, once.
const FOUND: [u64; 1] = [4_532_863_967_604_736_347];

#[tokio::test]
async fn nothing_is_lost_or_doubled_in_memory() {
    runs(false, 30, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_over_power_cuts() {
    runs(true, 8, 12).await;
}

async fn runs(on_disk: bool, fixed: u64, fresh: u64) {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let steps = number("BUSRUN_STEPS").unwrap_or(250);
    let seeds = seeds("BUSRUN", fixed, &FOUND, fresh);
    let count = seeds.len();
    let is_whole = count as u64 > fixed && steps >= 250;
    let mut covered = Coverage::default();
    for seed in seeds {
        let hint = Hint(seed);
        let mut run = Run::new(seed, on_disk).await;
        for step in 0..steps {
            run.step().await;
            // This takes a second, so few runs do it.
            if step == steps / 2 && seed.is_multiple_of(10) && !on_disk {
                run.stand_still().await;
            }
        }
        run.drain().await;
        run.verdict().await;
        soon("close", run.bus.close()).await;
        run.covered.count("torn states", run.ground.torn);
        covered.add(&run.covered);
        drop(hint);
    }
    trace!("{covered:#?}");
    if is_whole {
        covered.check(on_disk, count);
    }
}

/// Prints how to repeat a failed run.
struct Hint(u64);

impl Drop for Hint {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("BUSRUN_SEED={} repeats this", self.0);
        }
    }
}

struct Run {
    /// The action under way.
    doing: &'static str,
    rng: SeededRng,
    ground: Ground,
    bus: Bus,
    members: Vec<Member>,
    ledger: Ledger,
    judge: Judge,
    published: u64,
    next_member: u64,
    /// Whether the store has failed, so that only a restart helps.
    broken: bool,
    /// Whether the store refuses writes for a while.
    refusing: bool,
    /// Buses that were abandoned without being closed, and still have members.
    left_behind: Vec<Bus>,
    covered: Coverage,
    /// When each event of the topic with retention was published, by its offset, in milliseconds of uptime.
    born: BTreeMap<u64, u64>,
    /// Whether retention by age was set.
    ages: bool,
    /// Whether the clock has jumped, and whether the store was opened after that.
    jumped: bool,
    reopened: bool,
}

impl Run {
    async fn new(seed: u64, on_disk: bool) -> Self {
        let ground = if on_disk { Ground::embedded().await } else { Ground::memory() };
        let bus = ground.bus().await;
        Self {
            doing: "open",
            rng: SeededRng::new(seed),
            ground,
            bus,
            members: Vec::new(),
            ledger: Ledger::new(),
            judge: Judge::default(),
            published: 0,
            next_member: 0,
            broken: false,
            refusing: false,
            left_behind: Vec::new(),
            covered: Coverage::default(),
            born: BTreeMap::new(),
            ages: false,
            jumped: false,
            reopened: false,
        }
    }

    /// What users and operators do now and then.
    async fn intervene(&mut self) {
        match self.rng.range(0..100) {
            0..20 => self.seek().await,
            20..50 => self.redrive().await,
            50..60 => self.drop_letters().await,
            60..75 => self.pause().await,
            75..78 => self.delete_group().await,
            78..82 => self.delete_topic().await,
            82..90 => self.retain().await,
            90..95 => self.starve().await,
            _ => self.refuse().await,
        }
    }

    /// Acts once. A step that stalls names its action and shows the groups.
    async fn step(&mut self) {
        if tokio::time::timeout(PATIENCE, self.act()).await.is_err() {
            let groups = tokio::time::timeout(Duration::from_secs(5), self.bus.groups(None)).await;
            panic!("stalled: {}, armed {}: {groups:#?}", self.doing, self.ground.armed);
        }
    }

    async fn act(&mut self) {
        match self.rng.range(0..100) {
            0..20 => self.publish().await,
            20..30 => self.join().await,
            30..32 => self.leave(),
            32 => self.lose().await,
            33..58 => self.take().await,
            58..80 => self.ack().await,
            80..87 => self.nack().await,
            87..89 => self.extend().await,
            89..93 => self.pass_time(),
            93..95 => self.intervene().await,
            95..97 => self.restart().await,
            97..98 => self.leave_behind().await,
            _ => self.arm(),
        }
        trace!("{}, {} members", self.doing, self.members.len());
        if self.broken {
            self.crash().await;
        }
        tokio::task::yield_now().await;
    }
}
