//! The index against a plain list, over random inserts, freezes, spills, merges and re-opens.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::mem_disk::MemDisk;
use crate::disk::Disk;
use crate::index::{EntryKind, EventIndex, GhostEntry, IndexRun, Insert, MemTable, Merged, run_path};

const TOPICS: u32 = 3;
const IDS: u64 = 400;
const KEYS: u64 = 5;

#[derive(Debug, Clone)]
enum IndexStep {
    Insert { count: u64, seed: u64 },
    Freeze,
    Spill,
    Merge { stop: bool },
    Retain { topic: u32, drop: u64 },
    Ghosts { count: u64, seed: u64 },
    Reopen,
}

fn step() -> impl Strategy<Value = IndexStep> {
    prop_oneof![
        6 => (1..700_u64, any::<u64>()).prop_map(|(count, seed)| IndexStep::Insert { count, seed }),
        3 => Just(IndexStep::Freeze),
        5 => Just(IndexStep::Spill),
        3 => prop::bool::weighted(0.2).prop_map(|stop| IndexStep::Merge { stop }),
        1 => (0..TOPICS, 1..300_u64).prop_map(|(topic, drop)| IndexStep::Retain { topic, drop }),
        2 => (1..200_u64, any::<u64>()).prop_map(|(count, seed)| IndexStep::Ghosts { count, seed }),
        1 => Just(IndexStep::Reopen),
    ]
}

struct World {
    disk: Arc<MemDisk>,
    index: EventIndex,
    /// Every event ever inserted. The first `in_runs` of them are in runs, the next up to `frozen` are in the
    /// frozen table.
    events: Vec<Insert>,
    in_runs: usize,
    frozen: usize,
    next_offset: [u64; TOPICS as usize],
    earliest: [u64; TOPICS as usize],
    ghosts: BTreeMap<(u32, [u8; 16]), GhostEntry>,
}

impl World {
    fn new() -> World {
        let disk = Arc::new(MemDisk::default());
        let index =
            EventIndex::open(Arc::clone(&disk) as Arc<dyn Disk>, &[], 1).map_err(|err| err.1).unwrap();
        let (next_offset, earliest) = ([0; 3], [0; 3]);
        World {
            disk,
            index,
            events: Vec::new(),
            in_runs: 0,
            frozen: 0,
            next_offset,
            earliest,
            ghosts: BTreeMap::new(),
        }
    }

    fn apply(&mut self, step: &IndexStep) {
        match *step {
            IndexStep::Insert { count, seed } => {
                for nth in 0..count {
                    self.insert(scramble(seed, nth));
                }
            }
            IndexStep::Freeze => {
                let waiting = self.index.frozen().is_some();
                let before = self.index.generation();
                let frozen = self.index.freeze();
                assert_eq!(frozen.is_none(), waiting);
                if !waiting {
                    assert_eq!(self.index.generation(), before + 1);
                    self.frozen = self.events.len();
                }
            }
            IndexStep::Spill => self.spill(),
            IndexStep::Merge { stop } => self.merge(stop),
            IndexStep::Retain { topic, drop } => {
                let topic = topic as usize;
                self.earliest[topic] = (self.earliest[topic] + drop).min(self.next_offset[topic]);
            }
            IndexStep::Ghosts { count, seed } => self.write_ghosts(count, seed),
            IndexStep::Reopen => self.reopen(),
        }
    }

    fn insert(&mut self, random: u64) {
        let topic = (random % u64::from(TOPICS)) as u32;
        let offset = self.next_offset[topic as usize];
        self.next_offset[topic as usize] += 1;
        let id = (random >> 8) % IDS;
        let new = Insert {
            topic,
            pos: offset as u32 * 3,
            offset,
            id_hash: spread(id),
            // A third of the ids have no time; the time of the others depends on the id.
            id_ms: id_ms(id),
            key_hash: (random >> 32).is_multiple_of(3).then_some(spread((random >> 40) % KEYS)),
            appended_ms: self.events.len() as u64,
        };
        self.index.insert_pair(&new);
        self.events.push(new);
    }

    fn spill(&mut self) {
        let Some(table) = self.index.frozen() else { return };
        let runs = self.index.spill(&table).unwrap();
        let again = self.index.spill(&table).unwrap();
        assert_eq!(runs.len(), again.len());
        for run in &again {
            self.disk.remove(&run.path()).unwrap();
        }
        for run in &runs {
            run.file().sync().unwrap();
            assert!(run.meta().number < self.index.next_number());
            assert_eq!(run.file().len().unwrap(), run.meta().file_bytes());
            assert_eq!(run.meta().entries, table.entries(run.meta().kind) as u64);
            assert_eq!(run.meta().appended_max, table.appended_max);
        }
        self.index.install(runs, &[], true);
        self.in_runs = self.frozen;
    }

    fn merge(&mut self, stop: bool) {
        let Some(task) = self.index.pick_merge() else { return };
        let earliest = self.earliest;
        let keep = |kind, topic: u32, offset| kind == EntryKind::Ghost || offset >= earliest[topic as usize];
        let added = match self.index.merge(&task, &keep, &AtomicBool::new(stop)).unwrap() {
            Merged::Run(run) => {
                assert_eq!(run.meta().level, task.inputs[0].meta().level + 1);
                vec![run]
            }
            Merged::Empty => Vec::new(),
            Merged::Stopped => {
                assert!(stop);
                return;
            }
        };
        self.index.install(added, &task.numbers(), false);
        for number in task.numbers() {
            self.disk.remove(&run_path(number)).unwrap();
        }
    }

    fn write_ghosts(&mut self, count: u64, seed: u64) {
        let mut batch = BTreeMap::new();
        for nth in 0..count {
            let random = scramble(seed, nth);
            let (topic, id) = ((random % 2) as u32, ghost_id((random >> 8) % 500));
            let ghost = GhostEntry { topic, id, offset: random >> 20, ts: -(nth as i64), content: seed };
            batch.insert((topic, id), ghost);
        }
        let run = self.index.write_ghosts(batch.values().copied(), seed).unwrap().unwrap();
        assert_eq!((run.meta().entries, run.meta().appended_max), (batch.len() as u64, seed));
        self.index.install(vec![run], &[], false);
        self.ghosts.extend(batch);
    }

    /// Restarts the index: runs are opened from disk, all other events inserted again.
    fn reopen(&mut self) {
        let runs = self.index.runs();
        let named: Vec<_> =
            runs.all().map(|run| (run.meta().number, run.meta().kind, run.meta().level)).collect();
        let files: BTreeSet<_> = self.disk.list("index").unwrap().into_iter().collect();
        assert_eq!(files, named.iter().map(|(number, ..)| run_path(*number)[6..].to_owned()).collect());
        let disk = Arc::clone(&self.disk) as Arc<dyn Disk>;
        // Numbers start again at 1, as after an old manifest: names in use are skipped.
        self.index = EventIndex::open(disk, &named, 1).map_err(|err| err.1).unwrap();
        for (old, new) in runs.all().zip(self.index.runs().all()) {
            assert_eq!(old.meta(), new.meta());
        }
        self.index.insert_all(&self.events[self.in_runs..]);
        self.frozen = self.in_runs;
    }

    fn check(&self) {
        for kind in [EntryKind::Id, EntryKind::Key] {
            let hashes = if kind == EntryKind::Id { IDS } else { KEYS };
            for topic in 0..TOPICS {
                for nth in 0..hashes {
                    self.check_hash(kind, topic, nth);
                }
            }
            assert!(self.index.entries(kind) <= self.in_runs as u64);
        }
        for topic in 0..2 {
            for nth in 0..500 {
                let id = ghost_id(nth);
                let wanted = self.ghosts.get(&(topic, id)).copied();
                assert_eq!(self.index.find_ghost(topic, &id).unwrap(), wanted);
            }
        }
        assert_eq!(self.index.active_size().0, self.events.len() - self.frozen);
        assert!(self.index.verify().is_empty());
        assert!(self.index.runs().overlapping().is_none());
    }

    fn check_hash(&self, kind: EntryKind, topic: u32, nth: u64) {
        let (hash, earliest) = (spread(nth), self.earliest[topic as usize]);
        let of = |events: &[Insert]| -> Vec<(u64, u32)> {
            let same = |e: &&Insert| {
                e.topic == topic
                    && if kind == EntryKind::Id { e.id_hash == hash } else { e.key_hash == Some(hash) }
            };
            events.iter().filter(same).rev().map(|e| (e.offset, e.pos)).collect()
        };
        let all = of(&self.events);
        let alive = |found: &[(u64, u32)]| -> Vec<_> {
            found.iter().copied().filter(|(offset, _)| *offset >= earliest).collect()
        };

        let mut found = Vec::new();
        let time = if kind == EntryKind::Id { id_ms(nth) } else { Some(u64::MAX) };
        self.index.candidates(kind, topic, hash, time, &mut found).unwrap();
        assert!(found.iter().all(|entry| all.contains(entry)));
        assert_eq!(alive(&found), alive(&all));

        let mut visited = Vec::new();
        let mut collect = |offset, pos| {
            visited.push((offset, pos));
            ControlFlow::Continue(())
        };
        self.index.newest_first(kind, topic, hash, &mut collect).unwrap();
        assert_eq!(visited, found);

        // The walk in parts of three entries, each continued by offset.
        let mut parts = Vec::new();
        let mut upto = Some(u64::MAX);
        while let Some(from) = upto.take() {
            let mut taken = 0;
            let mut take = |offset: u64, pos| {
                parts.push((offset, pos));
                upto = offset.checked_sub(1);
                taken += 1;
                if taken == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            self.index.newest_upto(kind, topic, hash, from, &mut take).unwrap();
            if taken < 3 {
                break;
            }
        }
        assert_eq!(parts, found);

        let mut recent = Vec::new();
        let mut collect = |offset, pos| {
            recent.push((offset, pos));
            ControlFlow::Continue(())
        };
        self.index.recent(kind, topic, hash, &mut collect);
        assert_eq!(recent, of(&self.events[self.in_runs..]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]
    #[test]
    fn finds_what_the_model_finds(ops in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &ops {
            world.apply(step);
        }
        world.check();
    }
}

#[test]
fn tiers_stay_few_and_spans_of_equal_hashes_are_found_whole() {
    let mut world = World::new();
    let (mut table_events, mut offset) = (0, 0_u64);
    for round in 0..21_u64 {
        // One hash fills more data pages than one fence page covers, between two other hashes.
        for hash in [1, 5, 9] {
            let count = if hash == 5 { 3_000 } else { 3 };
            for _ in 0..count {
                let (id_hash, key_hash) = (spread(offset), Some(hash));
                let (topic, pos, id_ms, appended_ms) = (2, 0, None, round);
                let new = Insert { topic, pos, offset, id_hash, id_ms, key_hash, appended_ms };
                world.index.insert_pair(&new);
                offset += 1;
                table_events += 1;
            }
        }
        let table: Arc<MemTable> = world.index.freeze().unwrap();
        let runs: Vec<Arc<IndexRun>> = world.index.spill(&table).unwrap();
        world.index.install(runs, &[], true);
        while world.index.pick_merge().is_some() {
            world.merge(false);
        }
    }
    assert_eq!(world.index.entries(EntryKind::Key), table_events);
    let levels: Vec<_> = world.index.runs().of(EntryKind::Key).iter().map(|run| run.meta().level).collect();
    assert_eq!(levels, [0, 1, 2]);
    for (hash, count) in [(0, 0), (1, 63), (4, 0), (5, 63_000), (6, 0), (9, 63), (10, 0)] {
        let mut found = Vec::new();
        world.index.candidates(EntryKind::Key, 2, hash, None, &mut found).unwrap();
        assert_eq!(found.len(), count, "hash {hash}");
        assert!(found.is_sorted_by(|a, b| a.0 > b.0));
    }
    let mut newest = None;
    let mut first = |offset, _| {
        newest = Some(offset);
        ControlFlow::Break(())
    };
    world.index.newest_upto(EntryKind::Key, 2, 5, 12_345, &mut first).unwrap();
    assert_eq!(newest, Some(12_345));
    assert!(world.index.verify().is_empty());
}

fn scramble(seed: u64, nth: u64) -> u64 {
    let mixed = (seed ^ nth.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

fn spread(nth: u64) -> u64 {
    nth.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn id_ms(id: u64) -> Option<u64> {
    (!id.is_multiple_of(3)).then_some(id * 10)
}

fn ghost_id(nth: u64) -> [u8; 16] {
    (u128::from(spread(nth)) << 40 | u128::from(nth)).to_be_bytes()
}
