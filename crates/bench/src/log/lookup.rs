//! `lookup`: finding events by id, key and time.

use anyhow::{Context, Result, ensure};
use promethean_log::{Log, LogOptions, ReadLimit, Topic};
use promethean_model::{Durability, EventId};

use super::LogRun;
use super::publishers::publish;
use crate::data_dir;
use crate::load::{self, Load};
use crate::output::progress;
use crate::run::Goal;
use crate::run::measurement;
use crate::timing::Samples;

const TARGET_US: f64 = 50.0;
/// How much slower the largest topic may be than the smallest one, as a factor.
const GROWTH_MAX: f64 = 2.0;
/// Events of each key.
const HISTORY: u64 = 16;
const GOALS: [&str; 3] = ["by_id", "latest_by_key", "key_history"];

/// An event to look for, and an id that no event has.
struct Wanted {
    id: EventId,
    absent: EventId,
    key: Vec<u8>,
    ts: i64,
}

/// The median of one kind of lookup in a topic of one size.
struct LookupTimes {
    what: &'static str,
    p50_us: f64,
}

pub(crate) fn run(bench: &mut LogRun) -> Result<()> {
    let all = bench.plan.events;
    let mut smallest: Vec<LookupTimes> = Vec::new();
    for events in [all / 100, all / 10, all] {
        let found = measure(bench, events / HISTORY * HISTORY)?;
        if events == all {
            judge(bench, &smallest, &found);
        }
        if smallest.is_empty() {
            smallest = found;
        }
    }
    Ok(())
}

fn judge(bench: &mut LogRun, smallest: &[LookupTimes], largest: &[LookupTimes]) {
    for found in largest.iter().filter(|found| GOALS.contains(&found.what)) {
        let what = found.what;
        bench.goal(Goal::at_most(format!("lookup {what} p50 us"), TARGET_US, found.p50_us));
        if let Some(small) = smallest.iter().find(|small| small.what == what) {
            let growth = found.p50_us / small.p50_us;
            bench.goal(Goal::at_most(format!("lookup {what}, growth over 100 x events"), GROWTH_MAX, growth));
        }
    }
}

fn measure(bench: &LogRun, events: u64) -> Result<Vec<LookupTimes>> {
    progress(&format!("lookup: {events} events"));
    let dir = bench.scratch.fresh("lookup")?;
    let (log, _) = data_dir::open(dir.path(), LogOptions::default())?;
    let load = Load {
        batch_events: 16,
        keys: (events / HISTORY).max(1),
        // One event less: preparing the topic publishes one.
        events: events - 1,
        durability: Durability::Os,
        ..bench.load()
    };
    let topics = load::topics(&log, "lookup", 1, load)?;
    publish(&log, &topics, load)?;
    log.checkpoint()?;
    log.maintain()?;
    let topic = topics.first().context("no topic")?;
    let wanted = wanted(&log, topic, bench.plan.operations())?;
    let runs = log.health().runs;
    let mut found = Vec::new();
    for (what, look) in LOOKUPS {
        // The first pass warms up, the second is measured.
        Samples::take(wanted.len(), |number| look(&log, topic, wanted.get(number)))?;
        let mut samples = Samples::take(wanted.len(), |number| look(&log, topic, wanted.get(number)))?;
        let p50_us = samples.p50_us();
        let line = measurement("lookup").with("what", what).with("sync", "none");
        let line = line.with("events_in_topic", topic.end()).with("keys", load.keys).with("runs", runs);
        let line = line.figure("p50_us", p50_us).figure("p99_us", samples.p99_us());
        line.figure("ratio_to_target", p50_us / TARGET_US).print()?;
        found.push(LookupTimes { what, p50_us });
    }
    Ok(found)
}

/// Ids, keys and times of events all over the topic.
fn wanted(log: &Log, topic: &Topic, count: usize) -> Result<Vec<Wanted>> {
    let mut wanted = Vec::with_capacity(count);
    for number in 0..count as u64 {
        // Offsets far apart, so that one lookup does not help the next.
        let offset = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % topic.end();
        let page = log.read(topic, offset, ReadLimit { events: 1, bytes: 1 })?;
        let record = page.iter().next().context("an event is missing")?;
        let mut absent = *record.id.as_bytes();
        if let Some(last) = absent.last_mut() {
            *last ^= 1;
        }
        let (id, key) = (record.id, record.key.unwrap_or_default().to_vec());
        wanted.push(Wanted { id, absent: EventId::from_bytes(absent), key, ts: record.ts });
    }
    Ok(wanted)
}

type Look = fn(&Log, &Topic, Option<&Wanted>) -> Result<()>;

const LOOKUPS: [(&str, Look); 5] = [
    ("by_id", by_id),
    ("absent_id", absent_id),
    ("latest_by_key", latest_by_key),
    ("key_history", key_history),
    ("offset_at_time", offset_at_time),
];

fn by_id(log: &Log, topic: &Topic, wanted: Option<&Wanted>) -> Result<()> {
    let wanted = wanted.context("nothing wanted")?;
    let record = log.find_id(topic, wanted.id)?.context("an id is missing")?;
    ensure!(record.view().id == wanted.id, "another event was found");
    Ok(())
}

fn absent_id(log: &Log, topic: &Topic, wanted: Option<&Wanted>) -> Result<()> {
    let wanted = wanted.context("nothing wanted")?;
    ensure!(log.find_id(topic, wanted.absent)?.is_none(), "an id was found that no event has");
    Ok(())
}

fn latest_by_key(log: &Log, topic: &Topic, wanted: Option<&Wanted>) -> Result<()> {
    let wanted = wanted.context("nothing wanted")?;
    let record = log.latest_by_key(topic, &wanted.key)?.context("a key is missing")?;
    ensure!(record.view().key == Some(&wanted.key[..]), "another key was found");
    Ok(())
}

fn key_history(log: &Log, topic: &Topic, wanted: Option<&Wanted>) -> Result<()> {
    let wanted = wanted.context("nothing wanted")?;
    let records = log.key_history(topic, &wanted.key, 0..u64::MAX, HISTORY as usize)?;
    ensure!(records.len() as u64 >= HISTORY - 1, "only {} events of a key were found", records.len());
    Ok(())
}

fn offset_at_time(log: &Log, topic: &Topic, wanted: Option<&Wanted>) -> Result<()> {
    let wanted = wanted.context("nothing wanted")?;
    log.offset_at(topic, wanted.ts)?.context("a time is missing")?;
    Ok(())
}
