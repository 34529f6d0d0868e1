//! Random runs from publish to ack, with members that fail, buses that close and power cuts.
//!
//! A failed run prints its seed. `BUSRUN_SEED=n` repeats it, `BUSRUN_SEEDS`, `BUSRUN_FRESH` and `BUSRUN_STEPS` say how
//! many, how many fresh ones and how long. Users seek, redrive, drop, pause, retain, compact and delete; the store refuses
//! writes for a while; the process stops for a minute and the wall clock jumps. The scheduler orders tasks freely, so a seed repeats the choices but not each interleaving.

mod actions;
mod ground;
mod judge;
mod members;
mod users;

use std::env;

use promethean_bus::Bus;
use promethean_testkit::{Ledger, SeededRng, seeds};

use self::ground::Ground;
use self::judge::Judge;
use self::members::Member;
use super::bus::harness::soon;

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
    for seed in seeds("BUSRUN", fixed, &FOUND, fresh) {
        let hint = Hint(seed);
        let mut run = Run::new(seed, on_disk).await;
        for _ in 0..steps {
            soon("a step of the run", run.act()).await;
        }
        run.drain().await;
        run.verdict().await;
        soon("close", run.bus.close()).await;
        drop(hint);
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
}

impl Run {
    async fn new(seed: u64, on_disk: bool) -> Self {
        let ground = if on_disk { Ground::embedded().await } else { Ground::memory() };
        let bus = ground.bus().await;
        Self {
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
            _ => self.refuse().await,
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
        if self.broken {
            self.crash().await;
        }
        tokio::task::yield_now().await;
    }
}
