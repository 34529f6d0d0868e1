//! Random damage anywhere in a directory: what is served is right, what is lost is named, and after a repair
//! nothing that is still whole anywhere is missing.
//!
//! `DAMAGE_SEEDS=n` runs n seeds, `DAMAGE_SEED=s` one, `DAMAGE_FRESH=n` n fresh ones.

use std::collections::BTreeMap;

use promethean_log::{Log, LogBatch, LogReadError, LogRepairReport, ReadLimit, Topic, TopicPolicy};
use promethean_model::Durability;
use promethean_testkit::{SeededRng, seeds};

use super::world::*;

/// Payloads by topic and offset.
type Events = BTreeMap<(String, u64), String>;

/// A directory, and what was readable in it before it was damaged.
struct Subject {
    world: World,
    events: Events,
    /// The first offset that was never used, by topic.
    ends: BTreeMap<String, u64>,
    numbers: BTreeMap<u32, String>,
    /// Whether the process was killed, so that the journal is needed.
    killed: bool,
}

fn make(rng: &mut SeededRng) -> Subject {
    let mut world = World::new();
    let log = world.open();
    let topics = ["a", "b.c", "compacted", "short"];
    let mut number = 0;
    for _ in 0..rng.range(5..60) {
        match rng.range(0..20) {
            0 => log.checkpoint().unwrap(),
            1 | 2 => {
                world.clock.advance(10);
                log.maintain().unwrap();
            }
            3 => {
                let policy = TopicPolicy { compacted: true, ..TopicPolicy::default() };
                log.set_policy(&log.topic_or_create(&name("compacted")).unwrap(), policy);
                let policy = TopicPolicy { count: Some(20), ..TopicPolicy::default() };
                log.set_policy(&log.topic_or_create(&name("short")).unwrap(), policy);
            }
            4 if rng.chance(20) => {
                if let Some(topic) = log.topic(&name("b.c")) {
                    log.delete_topic(&topic).unwrap();
                }
            }
            _ => publish(&log, rng, &topics, &mut number),
        }
    }
    let killed = rng.chance(60);
    if !killed {
        log.close().unwrap();
    }
    drop(log);
    world = world.copy();
    let whole = world.copy();
    let log = whole.open();
    let (events, problems) = read_all(&log, &BTreeMap::new());
    assert!(problems.is_empty());
    let topics = log.topics();
    let ends = topics.iter().map(|topic| (topic.name().to_string(), topic.end())).collect();
    let numbers = topics.iter().map(|topic| (topic.id(), topic.name().to_string())).collect();
    Subject { world, events, ends, numbers, killed }
}

fn publish(log: &Log, rng: &mut SeededRng, topics: &[&str], number: &mut u64) {
    let mut batch = LogBatch::new();
    for _ in 0..rng.range(1..8) {
        let topic = log.topic_or_create(&name(rng.choose(topics).unwrap())).unwrap();
        *number += 1;
        let payload = format!("{number}:{}", "x".repeat(rng.range(0..300) as usize));
        let key = format!("k{}", rng.range(0..5));
        batch.push(&topic, event(*number, Some(&key), &payload)).unwrap();
    }
    log.append(batch, Durability::Fsync).unwrap();
}

/// The name that a topic had before the damage. A topic that was deleted then, and whose deletion is lost, may come back.
fn known_as(names: &BTreeMap<u32, String>, topic: &Topic) -> String {
    match names.get(&topic.id()) {
        Some(name) => name.clone(),
        None if names.is_empty() => topic.name().to_string(),
        None => format!("recovered.{:08x}", topic.id()),
    }
}

/// Everything that can be read, and the ranges that cannot. Topics whose names are lost count under their old ones.
fn read_all(log: &Log, names: &BTreeMap<u32, String>) -> (Events, Vec<(String, u64, u64)>) {
    let (mut events, mut damaged) = (Events::new(), Vec::new());
    for topic in log.topics() {
        let name = known_as(names, &topic);
        let mut next = topic.info().earliest;
        while next < topic.end() {
            match log.read(&topic, next, ReadLimit { events: 50, bytes: 5000 }) {
                Ok(page) => {
                    for view in page.iter() {
                        let payload = String::from_utf8(view.payload.to_vec()).unwrap();
                        events.insert((name.clone(), view.offset), payload);
                    }
                    assert!(page.next > next, "reading stands still at {next} of {name}");
                    next = page.next;
                }
                Err(LogReadError::CorruptRange(damage)) => {
                    assert!(damage.from_offset >= next && damage.to_offset > next, "{damage}");
                    damaged.push((name.clone(), damage.from_offset, damage.to_offset));
                    next = damage.to_offset;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    (events, damaged)
}

/// Damages a file. Returns what was done.
fn damage(world: &World, rng: &mut SeededRng, folders: &[&str]) -> (String, String) {
    let files: Vec<String> = world
        .disk
        .files()
        .into_iter()
        .filter(|file| folders.iter().any(|folder| file.starts_with(folder)))
        .collect();
    let file = rng.choose(&files).unwrap().clone();
    let mut bytes = world.disk.read_file(&file).unwrap();
    if bytes.is_empty() {
        return (file, "nothing: it is empty".to_owned());
    }
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1) as u64;
    let at = rng.range(0..used) as usize;
    let most = if rng.chance(50) { 8 } else { 700 };
    let len = rng.range(1..most) as usize;
    let to = (at + len).min(bytes.len());
    let what = match rng.range(0..7) {
        0 | 1 => {
            bytes[at] ^= 1 << rng.range(0..8);
            format!("flip {at}")
        }
        2 => {
            bytes[at..to].fill(0);
            format!("zero {at}..{to}")
        }
        3 => {
            bytes.truncate(at);
            format!("cut at {at}")
        }
        4 => {
            bytes.drain(at..to);
            format!("take out {at}..{to}")
        }
        5 => {
            let copy = bytes[at..to].to_vec();
            let target = rng.range(0..used) as usize;
            bytes.splice(target..target, copy);
            format!("insert {at}..{to} at {target}")
        }
        _ => {
            let copy = bytes[at..to].to_vec();
            let target = rng.range(0..used) as usize;
            let end = (target + copy.len()).min(bytes.len());
            bytes[target..end].copy_from_slice(&copy[..end - target]);
            format!("copy {at}..{to} over {target}")
        }
    };
    world.disk.write_file(&file, &bytes).unwrap();
    (file, what)
}

/// The bytes of every event's record, wherever it is in the directory.
fn records(world: &World, subject: &Subject) -> BTreeMap<(String, u64), Vec<u8>> {
    let mut found = BTreeMap::new();
    for file in
        world.disk.files().into_iter().filter(|file| file.contains('/') && !file.starts_with("index/"))
    {
        let bytes = world.disk.read_file(&file).unwrap();
        for ((topic, offset), payload) in &subject.events {
            // The key has two bytes and there is no meta.
            let len = 58 + payload.len();
            let record = bytes.windows(len).find(|record| {
                record.ends_with(payload.as_bytes())
                    && record.starts_with(&(len as u32).to_le_bytes())
                    && record[16..24] == offset.to_le_bytes()
            });
            if let Some(record) = record {
                found.insert((topic.clone(), *offset), record.to_vec());
            }
        }
    }
    found
}

fn has_copy(world: &World, folder: &str, record: &[u8]) -> bool {
    let mut files = world.disk.files().into_iter().filter(|file| file.starts_with(folder));
    files.any(|file| {
        let bytes = world.disk.read_file(&file).unwrap();
        bytes.windows(record.len()).any(|window| window == record)
    })
}

fn check_right(events: &Events, subject: &Subject, when: &str) -> Result<(), String> {
    for (place, payload) in events {
        match subject.events.get(place) {
            Some(known) if known == payload => {}
            // A compacted event may come back: it was there, and is right.
            None if place.0 == "compacted" || place.0 == "short" || place.0 == "b.c" => {}
            // So may a deleted topic, under a name that says so.
            None if place.0.starts_with("recovered.") => {}
            other => return Err(format!("{when}: {place:?} is {payload:?}, it was {other:?}")),
        }
    }
    Ok(())
}

fn check_served(subject: &Subject, damaged: &World, in_journal: bool) -> Result<(), String> {
    let world = damaged.copy();
    let (log, report) = match world.try_open() {
        Ok(opened) => opened,
        Err(error) if error.to_string().contains("promethean verify --repair") => return Ok(()),
        Err(error) => return Err(format!("the refusal names no way out: {error}")),
    };
    let (events, unreadable) = read_all(&log, &subject.numbers);
    check_right(&events, subject, "served")?;
    let torn = subject.killed && in_journal;
    for place in subject.events.keys().filter(|place| !events.contains_key(*place)) {
        let named =
            unreadable.iter().any(|(topic, from, to)| *topic == place.0 && (*from..*to).contains(&place.1));
        let last = !events.keys().any(|(topic, offset)| *topic == place.0 && *offset > place.1);
        if !(named || torn && last) {
            return Err(format!("served without {place:?}, which no error names ({report:?})"));
        }
    }
    Ok(())
}

fn is_named(report: &LogRepairReport, subject: &Subject, place: &(String, u64)) -> bool {
    let number = subject.numbers.iter().find(|(_, name)| **name == place.0).map_or(u32::MAX, |(id, _)| *id);
    let names = [place.0.clone(), format!("recovered.{number:08x}")];
    let mut lost = report.lost.iter();
    lost.any(|lost| names.contains(&lost.topic) && (lost.from_offset..lost.to_offset).contains(&place.1))
}

fn check_repaired(subject: &Subject, damaged: &World, in_journal: bool) -> Result<(), String> {
    let world = damaged.copy();
    let files = |world: &World| -> Vec<_> {
        world.disk.files().into_iter().map(|file| (world.disk.read_file(&file).unwrap(), file)).collect()
    };
    let before = files(&world);
    let planned = world.repair(true);
    if files(&world) != before {
        return Err("a dry run changed files".to_owned());
    }
    let report = world.repair(false);
    if planned != report {
        return Err(format!("planned {planned:?}, done {report:?}"));
    }
    let (log, opened) = world.try_open().map_err(|error| format!("after the repair: {error}\n{report:?}"))?;
    if !opened.damage.is_empty() || !log.verify(&mut |_, _| {}).is_clean() {
        return Err(format!("not clean after the repair: {opened:?} {:?}", log.verify(&mut |_, _| {})));
    }
    let (events, unreadable) = read_all(&log, &subject.numbers);
    if !unreadable.is_empty() {
        return Err(format!("unreadable after the repair: {unreadable:?}"));
    }
    check_right(&events, subject, "repaired")?;
    let records = records(&subject.world, subject);
    let mut torn = false;
    for place in subject.events.keys().filter(|place| !events.contains_key(*place)) {
        let last = !events.keys().any(|(topic, offset)| *topic == place.0 && *offset > place.1);
        if subject.killed && in_journal && last && !is_named(&report, subject, place) {
            torn = true;
            continue;
        }
        if !is_named(&report, subject, place) {
            return Err(format!("{place:?} is lost and not named: {report:?}"));
        }
        let record = records.get(place).ok_or_else(|| format!("{place:?} had no record"))?;
        // The journal's files are used again and again; an old copy in one of them is not looked for.
        let only_in_journal = !has_copy(&subject.world, "segments/", record);
        if has_copy(damaged, "segments/", record)
            || (only_in_journal && has_copy(damaged, "journal/", record))
        {
            return Err(format!("{place:?} is lost and still there: {report:?}"));
        }
    }
    go_on(subject, &log, torn)?;
    log.close().map_err(|error| error.to_string())?;
    drop(log);
    let again = world.repair(true);
    if !again.is_clean() {
        return Err(format!("a second repair finds more: {again:?}"));
    }
    let (after, _) = read_all(&world.open(), &subject.numbers);
    match events.iter().find(|(place, payload)| after.get(*place) != Some(*payload) && place.0 != "short") {
        Some(lost) => Err(format!("{lost:?} is lost after a restart")),
        None => Ok(()),
    }
}

/// Publishes to every topic: no offset is used twice, and what is published can be read.
fn go_on(subject: &Subject, log: &Log, torn: bool) -> Result<(), String> {
    for topic in log.topics() {
        let name = known_as(&subject.numbers, &topic);
        let number = 1_000_000 + u64::from(topic.id());
        let at = append(log, topic.name().as_str(), event(number, Some("kk"), "new"));
        let at = at.map_err(|error| format!("publishing after the repair: {error}"))?;
        if at < subject.ends.get(&name).copied().unwrap_or(0) && !torn {
            return Err(format!("offset {at} of {name} is used again"));
        }
        let page = log.read(&topic, at, ReadLimit { events: 1, bytes: 1 });
        if page.map_err(|error| error.to_string())?.iter().next().map(|view| view.offset) != Some(at) {
            return Err(format!("the event at {at} of {name} is not there"));
        }
    }
    Ok(())
}

fn run(seed: u64) -> Result<(), String> {
    let mut rng = SeededRng::new(seed);
    let subject = make(&mut rng);
    let damaged = subject.world.copy();
    let mut done = Vec::new();
    done.push(damage(&damaged, &mut rng, &["journal/", "segments/", "index/", "manifest"]));
    // Without the manifest nothing says how long a segment was, so nothing can say what else is gone from it.
    if rng.chance(30) && done.iter().all(|(file, _)| file != "manifest") {
        done.push(damage(&damaged, &mut rng, &["journal/", "segments/", "index/"]));
    }
    let in_journal = done.iter().any(|(file, _)| file.starts_with("journal/"));
    let failed = |what: String| format!("DAMAGE_SEED={seed} killed={} {done:?}: {what}", subject.killed);
    check_served(&subject, &damaged, in_journal).map_err(failed)?;
    check_repaired(&subject, &damaged, in_journal).map_err(failed)
}

/// Runs a seed; a panic counts as a failure, so that it is told with its seed.
fn try_run(seed: u64) -> Option<String> {
    let outcome = std::panic::catch_unwind(|| run(seed));
    outcome.unwrap_or_else(|_| Err(format!("DAMAGE_SEED={seed}: a panic, see above"))).err()
}

#[test]
fn whatever_is_damaged() {
    let failures: Vec<String> = seeds("DAMAGE", 300, &[], 300).into_iter().filter_map(try_run).collect();
    let first: Vec<&str> = failures.iter().take(12).map(String::as_str).collect();
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), first.join("\n\n"));
}
