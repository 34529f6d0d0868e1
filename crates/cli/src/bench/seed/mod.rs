//! `promethean bench publish` and `promethean bench subscribe`: so many events `{i, t0}`, and one line about them.
//!
//! `local` uses a bus inside this process, `remote` a server.

mod local;
mod remote;

use std::time::{Duration, Instant};

use anyhow::Result;
use promethean_model::{Clock, SystemClock};
use serde::Deserialize;

use super::timing::{Samples, now};
use crate::args::SeedArgs;
use crate::output::Line;

/// Of `subscribe`; the same each time, so that it leaves one group behind.
const GROUP: &str = "bench";
/// Events that the subscriber holds unfinished.
const IN_FLIGHT: usize = 1_000;

/// Publishes and says how fast that was.
pub(crate) fn publish(args: &SeedArgs) -> Result<()> {
    let took = match &args.url {
        Some(url) => remote::publish(args, url)?,
        None => local::publish(args)?,
    };
    let per_s = args.n as f64 / took.as_secs_f64().max(1e-9);
    Line::new()
        .with("published", args.n)
        .with("ms", took.as_millis() as u64)
        .with("mps", (per_s * 10.0).round() / 10.0)
        .print()
}

/// Publishes, receives, and says how long events were on their way, in milliseconds.
pub(crate) fn subscribe(args: &SeedArgs) -> Result<()> {
    let mut samples = match &args.url {
        Some(url) => remote::subscribe(args, url)?,
        None => local::subscribe(args)?,
    };
    Line::new()
        .with("n", samples.len())
        .figure("p50", samples.p50_us() / 1e3)
        .figure("p90", samples.percentile_us(90) / 1e3)
        .figure("p99", samples.p99_us() / 1e3)
        .figure("max", samples.max_us() / 1e3)
        .figure("avg", samples.mean_us() / 1e3)
        .print()
}

/// Makes payloads of this run, and knows them again: a topic may hold those of others.
#[derive(Debug)]
struct Stamps {
    start: Instant,
    /// The wall clock's time then.
    start_ms: f64,
    run: String,
}

#[derive(Debug, Deserialize)]
struct Stamped<'a> {
    t0: f64,
    run: &'a str,
}

impl Stamps {
    fn new() -> Stamps {
        let wall_ms = SystemClock::new().wall_ms();
        let run = format!("{wall_ms}-{}", std::process::id());
        Stamps { start: now(), start_ms: wall_ms as f64, run }
    }

    fn now_ms(&self) -> f64 {
        self.start_ms + self.start.elapsed().as_secs_f64() * 1e3
    }

    fn payload(&self, number: u64) -> String {
        format!(r#"{{"i":{number},"t0":{:.3},"run":"{}"}}"#, self.now_ms(), self.run)
    }

    /// How long ago a payload was made; `None` if it is not of this run.
    fn age(&self, payload: &[u8]) -> Option<Duration> {
        let stamped: Stamped<'_> = serde_json::from_slice(payload).ok()?;
        let ours = stamped.run == self.run;
        ours.then(|| Duration::from_secs_f64((self.now_ms() - stamped.t0).max(0.0) / 1e3))
    }
}

/// Whether a payload counts, and how long it took if so.
fn sample(stamps: &Stamps, samples: &mut Samples, payload: &[u8]) {
    if let Some(age) = stamps.age(payload) {
        samples.push(age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_payloads_of_this_run_count() {
        let (ours, others) = (Stamps::new(), Stamps { run: "x".into(), ..Stamps::new() });
        let mut samples = Samples::default();
        sample(&ours, &mut samples, ours.payload(1).as_bytes());
        sample(&ours, &mut samples, others.payload(1).as_bytes());
        sample(&ours, &mut samples, b"7");
        assert_eq!(samples.len(), 1);
        assert!(samples.max_us() < 60e6);
    }
}
