//! `read`: reading a topic in order.

use anyhow::{Result, ensure};
use promethean_log::{Log, LogOptions, ReadLimit, Topic};

use super::LogRun;
use super::publishers::publish;
use crate::data_dir;
use crate::load::{self, Load};
use crate::run::Goal;
use crate::run::measurement;
use crate::timing::{Samples, timed};

const TARGET_EVENTS_PER_S: f64 = 1_500_000.0;
const PAGE: ReadLimit = ReadLimit { events: 4_096, bytes: 1024 * 1024 };
const SMALL_PAGE: ReadLimit = ReadLimit { events: 100, bytes: 1024 * 1024 };
/// Where reading begins, in quarters of the topic.
const QUARTERS: [u64; 3] = [0, 2, 3];

pub(crate) fn run(bench: &mut LogRun) -> Result<()> {
    let (log, _) = data_dir::open(bench.scratch.kept(), LogOptions::default())?;
    let ours = log.topics().iter().all(|topic| topic.name().as_str().starts_with("bench."));
    ensure!(ours, "the directory holds topics of someone else: give `--data` another one");
    let load = Load { batch_events: 16, ..bench.load() };
    let topics = load::topics(&log, "read", 1, load)?;
    publish(&log, &topics, load)?;
    log.checkpoint()?;
    for topic in topics.iter() {
        read_all(&log, topic, 0)?;
        for quarter in QUARTERS {
            let from = topic.end() / 4 * quarter;
            let rate = sequential(&log, topic, from, load)?;
            if quarter == 0 {
                bench.goal(Goal::at_least("sequential read events/s", TARGET_EVENTS_PER_S, rate));
            }
        }
        small_pages(&log, topic, bench.plan.operations())?;
    }
    log.close()?;
    Ok(())
}

fn sequential(log: &Log, topic: &Topic, from: u64, load: Load) -> Result<f64> {
    let (read, took) = timed(|| read_all(log, topic, from));
    let events = read?;
    let rate = events as f64 / took.as_secs_f64();
    measurement("read")
        .with("what", "sequential")
        .with("sync", "none")
        .with("event_bytes", load.event_bytes)
        .with("page_events", PAGE.events)
        .with("from_offset", from)
        .with("events", events)
        .figure("events_per_s", rate)
        .figure("mb_per_s", rate * load.event_bytes as f64 / 1e6)
        .figure("ratio_to_target", rate / TARGET_EVENTS_PER_S)
        .print()?;
    Ok(rate)
}

/// Reads from an offset to the end and touches every payload; returns the number of events.
fn read_all(log: &Log, topic: &Topic, from: u64) -> Result<u64> {
    let (mut next, mut events, mut payload_bytes) = (from, 0, 0);
    while next < topic.end() {
        let page = log.read(topic, next, PAGE)?;
        ensure!(page.next > next, "reading does not get past offset {next}");
        next = page.next;
        events += page.len() as u64;
        payload_bytes += page.iter().map(|record| record.payload.len()).sum::<usize>();
    }
    std::hint::black_box(payload_bytes);
    Ok(events)
}

/// Measures small pages at offsets all over the topic.
fn small_pages(log: &Log, topic: &Topic, count: usize) -> Result<()> {
    let end = topic.end();
    let mut samples = Samples::take(count, |number| {
        let page = log.read(topic, number as u64 * 7919 % end, SMALL_PAGE)?;
        std::hint::black_box(page.len());
        Ok(())
    })?;
    measurement("read")
        .with("what", "page")
        .with("sync", "none")
        .with("page_events", SMALL_PAGE.events)
        .with("events_in_topic", end)
        .figure("p50_us", samples.p50_us())
        .figure("p99_us", samples.p99_us())
        .print()
}
