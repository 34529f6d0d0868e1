//! Random runs from publish to ack, with members that fail, buses that close and power cuts.
//!
//! A failed run prints its seed. `BUSRUN_SEED=n` repeats it, `BUSRUN_SEEDS` and `BUSRUN_STEPS` say how many and how
//! long. The scheduler orders tasks freely, so a seed repeats the choices but not each interleaving.

mod actions;
mod ground;
mod judge;
mod members;

use std::env;

use promethean_bus::Bus;
use promethean_testkit::{Ledger, SeededRng};

use self::ground::Ground;
use self::judge::Judge;
use self::members::Member;
use super::bus::harness::soon;

#[tokio::test]
async fn nothing_is_lost_or_doubled_in_memory() {
    runs(false, 30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_over_power_cuts() {
    runs(true, 8).await;
}

async fn runs(on_disk: bool, seeds: u64) {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let steps = number("BUSRUN_STEPS").unwrap_or(250);
    let seeds = match number("BUSRUN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BUSRUN_SEEDS").unwrap_or(seeds),
    };
    for seed in seeds {
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
            left_behind: Vec::new(),
        }
    }

    async fn act(&mut self) {
        match self.rng.range(0..100) {
            0..20 => self.publish().await,
            20..30 => self.join().await,
            30..33 => self.leave(),
            33..58 => self.take().await,
            58..80 => self.ack().await,
            80..87 => self.nack().await,
            87..89 => self.extend().await,
            89..95 => self.pass_time(),
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
