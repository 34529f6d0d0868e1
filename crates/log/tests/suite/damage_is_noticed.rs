//! Bit flips and truncations at every byte of every file: the log never serves a wrong byte and never skips
//! silently.

use std::collections::BTreeMap;

use promethean_log::{Log, LogOpenError, LogReadError, ReadLimit};
use promethean_testkit::{DiskSnapshot, FaultDisk};

use super::world::*;

/// Offset, key and payload.
type Expectation = (u64, Option<Vec<u8>>, Vec<u8>);
type Expected = BTreeMap<String, Vec<Expectation>>;

struct Image {
    world: World,
    snapshot: DiskSnapshot,
    expected: Expected,
}

/// Makes a directory with checkpointed segments, runs, recycled journal files and a journal tail, as a killed
/// process leaves it.
fn image() -> Image {
    let options = promethean_log::LogOptions {
        journal_file_bytes: 1536,
        checkpoint_bytes: 2000,
        segment_bytes: 1024,
        tail_bytes: 512,
        ..small()
    };
    let mut world = World::with(options);
    let log = world.open();
    let mut expected = Expected::new();
    for n in 0..40u64 {
        let topic = ["a", "b.c"][(n % 2) as usize];
        let key = (n % 3 != 0).then(|| format!("k{}", n % 5));
        let payload = format!("{{\"value\":{n}}}");
        let offset = append(&log, topic, event(n, key.as_deref(), &payload)).unwrap();
        let events = expected.entry(topic.to_owned()).or_default();
        events.push((offset, key.map(String::into_bytes), payload.into_bytes()));
    }
    assert!(log.health().checkpoints >= 2);
    log.maintain().unwrap();
    for n in 40..44u64 {
        let offset = append(&log, "a", event(n, None, "1")).unwrap();
        expected.get_mut("a").unwrap().push((offset, None, b"1".to_vec()));
    }
    drop(log);
    world.disk = world.disk.kill();
    let snapshot = world.disk.snapshot();
    Image { world, snapshot, expected }
}

impl Image {
    /// Damages a fresh copy. Returns what a user would see.
    fn with(&mut self, damage: impl FnOnce(&FaultDisk)) -> Result<Seen, String> {
        self.world.disk = FaultDisk::restore(&self.snapshot);
        damage(&self.world.disk);
        match self.world.try_open() {
            Ok((log, _)) => self.look(&log),
            Err(LogOpenError::CorruptRange(damage)) if !damage.file.is_empty() => Ok(Seen::Refused),
            Err(LogOpenError::Format { .. }) => Ok(Seen::Refused),
            Err(error) => Err(format!("open: {error}")),
        }
    }

    fn look(&self, log: &Log) -> Result<Seen, String> {
        let mut seen = Seen::Whole;
        for (topic, events) in &self.expected {
            let covered = read_around_damage(log, topic, events)?;
            if !covered.is_empty() {
                seen = Seen::Damaged;
            }
            let handle = log.topic(&name(topic)).ok_or("a topic is gone")?;
            for (offset, key, _) in events.iter().step_by(3) {
                let hidden = covered.iter().any(|range| range.contains(offset));
                let number = if topic == "a" && *offset >= 20 {
                    20 + offset
                } else {
                    offset * 2 + u64::from(topic != "a")
                };
                match log.find_id(&handle, id(number)) {
                    Ok(Some(record)) if record.view().offset == *offset => {}
                    Ok(None) | Err(LogReadError::CorruptRange(_)) if hidden => {}
                    other => return Err(format!("{topic} {offset} by id: {other:?}")),
                }
                let Some(key) = key else { continue };
                let latest = events.iter().rev().find(|(_, other, _)| other.as_ref() == Some(key)).unwrap().0;
                match log.latest_by_key(&handle, key) {
                    Ok(Some(record)) if record.view().offset == latest => {}
                    Ok(_) | Err(LogReadError::CorruptRange(_))
                        if covered.iter().any(|range| range.contains(&latest)) => {}
                    other => return Err(format!("{topic} latest of {key:?}: {other:?}")),
                }
            }
        }
        Ok(seen)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Whole,
    Damaged,
    Refused,
}

/// Reads a topic and continues after reported damage; all other events must be there to the byte.
fn read_around_damage(
    log: &Log,
    topic: &str,
    events: &[Expectation],
) -> Result<Vec<std::ops::Range<u64>>, String> {
    let handle = log.topic(&name(topic)).ok_or("a topic is gone")?;
    if handle.end() != events.len() as u64 {
        return Err(format!("{topic} ends at {}, expected {}", handle.end(), events.len()));
    }
    let mut covered = Vec::new();
    let mut next = 0;
    while next < events.len() as u64 {
        match log.read(&handle, next, ReadLimit { events: 5, bytes: 10_000 }) {
            Ok(page) => {
                for (view, expected) in page.iter().zip(&events[next as usize..]) {
                    let found = (view.offset, view.key.map(<[u8]>::to_vec), view.payload.to_vec());
                    if found != *expected {
                        return Err(format!("{topic}: {found:?} instead of {expected:?}"));
                    }
                }
                if page.next != next + page.len() as u64 || page.is_empty() {
                    return Err(format!("{topic}: {} events from {next}, then {}", page.len(), page.next));
                }
                next = page.next;
            }
            Err(LogReadError::CorruptRange(damage)) => {
                if damage.from_offset != next
                    || damage.to_offset <= next
                    || damage.topic.as_deref() != Some(topic)
                {
                    return Err(format!("{topic} at {next}: useless range {damage:?}"));
                }
                covered.push(damage.from_offset..damage.to_offset);
                next = damage.to_offset;
            }
            Err(error) => return Err(format!("{topic} at {next}: {error}")),
        }
    }
    Ok(covered)
}

/// Finds the first violation over all flips and truncations of all files.
pub(super) fn hunt() -> Option<String> {
    let mut image = image();
    let mut damaged = 0;
    let mut refused = 0;
    let whole = FaultDisk::restore(&image.snapshot);
    for file in whole.files().into_iter().filter(|file| file != "LOCK") {
        let len = whole.len(&file).unwrap();
        for byte in 0..len {
            let bit = (byte % 8) as u8;
            let flip = image.with(|disk| disk.flip_bit(&file, byte, bit).unwrap());
            let cut = image.with(|disk| disk.truncate(&file, byte).unwrap());
            for (how, outcome) in [("flip", flip), ("cut", cut)] {
                match outcome {
                    Ok(Seen::Damaged) => damaged += 1,
                    Ok(Seen::Refused) => refused += 1,
                    Ok(Seen::Whole) => {}
                    Err(what) => return Some(format!("{how} {file} at {byte} of {len}: {what}")),
                }
            }
        }
    }
    (damaged < 500 || refused < 500).then(|| format!("only {damaged} damaged reads and {refused} refusals"))
}

#[test]
fn every_flipped_bit_and_every_truncation_is_noticed_or_harmless() {
    assert_eq!(hunt(), None);
}

#[test]
fn two_swapped_segments_are_noticed() {
    let mut image = image();
    let segments: Vec<String> =
        image.world.disk.files().into_iter().filter(|file| file.ends_with(".seg")).collect();
    let (first, second) = (segments[0].clone(), segments[segments.len() - 1].clone());
    let seen = image.with(|disk| {
        let (a, b) = (disk.read_file(&first).unwrap(), disk.read_file(&second).unwrap());
        disk.write_file(&first, &b).unwrap();
        disk.write_file(&second, &a).unwrap();
    });
    assert_eq!(seen, Ok(Seen::Damaged));
}

#[test]
fn damage_in_one_topic_leaves_the_others_alone_and_is_named() {
    let image = image();
    let disk = FaultDisk::restore(&image.snapshot);
    let file =
        disk.files().into_iter().find(|file| file.starts_with("segments/00000000") && file.ends_with(".seg"));
    let file = file.unwrap();
    let bytes = disk.read_file(&file).unwrap();
    let payload = bytes.windows(9).position(|window| window == b"{\"value\":").unwrap();
    let second = payload + 9 + bytes[payload + 9..].windows(9).position(|w| w == b"{\"value\":").unwrap();
    disk.flip_bit(&file, second as u64, 3).unwrap();
    let world = World { disk, ..image.world };
    let log = world.open();
    let topic = log.topic(&name("a")).unwrap();
    let error = log.read(&topic, 1, ReadLimit { events: 100, bytes: 10_000 }).unwrap_err();
    assert!(error.to_string().contains(&file), "{error}");
    let LogReadError::CorruptRange(damage) = error else { panic!("{error}") };
    let page = log.read(&topic, damage.to_offset, ReadLimit { events: 100, bytes: 10_000 }).unwrap();
    assert_eq!(
        page.iter().next().map(|view| view.offset),
        Some(damage.to_offset),
        "everything behind it is served"
    );
    assert_eq!(payloads(&log, "b.c", 0).len(), 20);
    assert_eq!(append(&log, "a", event(500, None, "more")).unwrap(), topic.end() - 1);
    let report = log.verify(&mut |_, _| {});
    assert!(report.damage.iter().any(|damage| damage.file == file), "{report:?}");
    assert!(!log.health().damage.is_empty());
}

#[test]
fn a_rebuilt_index_stays_right_as_the_log_goes_on() {
    let world = World::new();
    let log = world.open();
    for n in 0..300u64 {
        append(&log, "t", event(n, Some(&format!("k{}", n % 9)), &format!("{n}"))).unwrap();
    }
    drop(log);
    let run = world.disk.files().into_iter().find(|file| file.ends_with(".run")).unwrap();
    world.disk.flip_bit(&run, world.disk.len(&run).unwrap() - 20, 1).unwrap();
    for round in 1..4u64 {
        let (log, report) = world.try_open().unwrap();
        assert_eq!(report.index_rebuilt.is_some(), round == 1, "{report:?}");
        for n in round * 300..round * 300 + 300 {
            append(&log, "t", event(n, Some(&format!("k{}", n % 9)), &format!("{n}"))).unwrap();
        }
        log.maintain().unwrap();
        let topic = log.topic(&name("t")).unwrap();
        for n in 0..round * 300 + 300 {
            assert_eq!(log.find_id(&topic, id(n)).unwrap().unwrap().view().offset, n);
        }
        for key in 0..9 {
            let history =
                log.key_history(&topic, format!("k{key}").as_bytes(), 0..u64::MAX, usize::MAX).unwrap();
            let expected: Vec<u64> = (0..round * 300 + 300).filter(|n| n % 9 == key).collect();
            assert_eq!(history.iter().map(|record| record.view().offset).collect::<Vec<_>>(), expected);
        }
    }
}

/// The header of a frame with a torn body proves that the frame before it was synced.
#[test]
fn a_synced_frame_before_a_torn_one_is_not_part_of_the_torn_tail() {
    let mut world = World::new();
    let log = world.open();
    append(&log, "t", event(1, None, "acknowledged")).unwrap();
    append(&log, "t", event(2, None, "cut short")).unwrap();
    drop(log);
    let left = world.disk.kill().snapshot();
    let find = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).position(|part| part == text).unwrap();
    for (damaged, is_refused) in [(false, false), (true, true)] {
        world.disk = FaultDisk::restore(&left);
        let file = world.disk.files().into_iter().find(|file| file.starts_with("journal/")).unwrap();
        let mut bytes = world.disk.read_file(&file).unwrap();
        let (first, second) = (find(&bytes, b"acknowledged"), find(&bytes, b"cut short"));
        bytes[second..].fill(0);
        // Only the torn frame may tell: an idle log would write a durable mark too.
        let frames: Vec<usize> = (0..second).filter(|at| bytes[*at..].starts_with(b"PJFR")).collect();
        let after_first = frames.iter().copied().find(|at| *at > first).unwrap();
        bytes[after_first..*frames.last().unwrap()].fill(0);
        if damaged {
            bytes[first] ^= 1;
        }
        world.disk.write_file(&file, &bytes).unwrap();
        match world.try_open() {
            Ok((log, _)) => {
                assert!(!is_refused, "an acknowledged event is gone without a word");
                assert_eq!(payloads(&log, "t", 0), [(0, "acknowledged".to_owned())]);
            }
            Err(LogOpenError::CorruptRange(_)) => assert!(is_refused, "a torn tail by itself is cut"),
            Err(error) => panic!("{error}"),
        }
    }
}
