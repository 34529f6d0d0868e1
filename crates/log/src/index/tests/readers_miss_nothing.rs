//! Readers never miss an entry while a writer and a maintenance thread work.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::mem_disk::MemDisk;
use crate::disk::Disk;
use crate::index::{EntryKind, EventIndex, Insert, Merged, run_path};

const EVENTS: u64 = 60_000;
const KEYS: u64 = 16;

#[test]
fn readers_find_every_entry_while_it_moves() {
    let disk = Arc::new(MemDisk::default());
    let index = EventIndex::open(Arc::clone(&disk) as Arc<dyn Disk>, &[], 1).map_err(|err| err.1).unwrap();
    // All offsets below this one are inserted.
    let inserted = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for offset in 0..EVENTS {
                let (id_hash, key_hash) = (spread(offset), Some(offset % KEYS));
                let (topic, pos, id_ms, appended_ms) = (1, 0, Some(offset), 0);
                index.insert_pair(&Insert { topic, pos, offset, id_hash, id_ms, key_hash, appended_ms });
                inserted.store(offset + 1, Ordering::Release);
            }
        });
        scope.spawn(|| {
            while inserted.load(Ordering::Acquire) < EVENTS {
                maintain(&disk, &index);
            }
        });
        for reader in 0..2 {
            let (index, inserted) = (&index, &inserted);
            scope.spawn(move || {
                let mut round = reader;
                loop {
                    let end = inserted.load(Ordering::Acquire);
                    if end > 0 {
                        check(index, spread(round) % end, end);
                    }
                    round += 2;
                    if end == EVENTS {
                        return;
                    }
                }
            });
        }
    });
    for offset in 0..EVENTS {
        check_id(&index, offset);
    }
}

fn maintain(disk: &MemDisk, index: &EventIndex) {
    let table = index.freeze().unwrap();
    let runs = index.spill(&table).unwrap();
    index.install(runs, &[], true);
    while let Some(task) = index.pick_merge() {
        let Merged::Run(run) = index.merge(&task, &|_, _, _| true, &AtomicBool::new(false)).unwrap() else {
            panic!("a merge that keeps everything kept nothing")
        };
        index.install(vec![run], &task.numbers(), false);
        for number in task.numbers() {
            disk.remove(&run_path(number)).unwrap();
        }
    }
}

fn check(index: &EventIndex, offset: u64, end: u64) {
    check_id(index, offset);
    // The walk meets every entry with the key of `offset` that was inserted before it began, newest first,
    // once.
    let (key, mut met) = (offset % KEYS, Vec::new());
    let mut visit = |offset, _| {
        met.push(offset);
        ControlFlow::Continue(())
    };
    index.newest_first(EntryKind::Key, 1, key, &mut visit).unwrap();
    assert!(met.is_sorted_by(|a, b| a > b));
    let before: Vec<_> = met.into_iter().filter(|offset| *offset < end).collect();
    let wanted: Vec<_> = (0..end).rev().filter(|offset| offset % KEYS == key).collect();
    assert_eq!(before, wanted);
}

fn check_id(index: &EventIndex, offset: u64) {
    let mut found = Vec::new();
    index.candidates(EntryKind::Id, 1, spread(offset), Some(offset), &mut found).unwrap();
    assert_eq!(found, [(offset, 0)]);
}

fn spread(nth: u64) -> u64 {
    nth.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
