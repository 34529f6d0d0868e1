//! Random operations against a model of the contract: all synced bytes survive, and every other byte is one that was
//! written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use promethean_log::disk::{Disk, DiskFile};

use crate::fault_disk::{FaultDisk, Matcher};
use crate::rng::SeededRng;

const FILES: usize = 4;
const FILE_BYTES_MAX: u64 = 4_000;

/// Values each byte of a file may have after a power cut. Lengths only grow here, so a byte is never taken away.
#[derive(Default)]
struct Model {
    /// Bytes that must be there.
    synced: Vec<u8>,
    /// Every value written since the sync, by position.
    maybe: Vec<Vec<u8>>,
    len: usize,
    named: bool,
}

impl Model {
    fn write(&mut self, bytes: &[u8], at: usize) {
        self.len = self.len.max(at + bytes.len());
        self.maybe.resize(self.len, Vec::new());
        for (values, byte) in self.maybe[at..].iter_mut().zip(bytes) {
            values.push(*byte);
        }
    }

    fn sync(&mut self, now: Vec<u8>) {
        assert_eq!(now.len(), self.len);
        self.synced = now;
        self.maybe.clear();
    }

    fn check(&self, found: Option<Vec<u8>>) -> bool {
        let Some(found) = found else {
            assert!(!self.named, "a durable name is gone");
            return true;
        };
        assert!((self.synced.len()..=self.len).contains(&found.len()), "a length that was never written");
        let mut changed = found.len() != self.len;
        for (at, byte) in found.iter().enumerate() {
            let before = self.synced.get(at).copied().unwrap_or(0);
            let maybe = self.maybe.get(at).map_or(&[][..], Vec::as_slice);
            assert!(*byte == before || maybe.contains(byte), "byte {at} was never written");
            changed |= !maybe.is_empty() && *byte == before;
        }
        changed
    }
}

struct Run {
    disk: FaultDisk,
    files: BTreeMap<usize, (Arc<dyn DiskFile>, Model)>,
}

impl Run {
    fn step(&mut self, rng: &mut SeededRng) {
        let slot = rng.range(0..FILES as u64) as usize;
        let Some((file, model)) = self.files.get_mut(&slot) else {
            let file = self.disk.create(&format!("d/{slot}")).unwrap();
            self.files.insert(slot, (file, Model::default()));
            return;
        };
        match rng.range(0..10) {
            0 => {
                file.sync().unwrap();
                model.sync(self.disk.read_file(&format!("d/{slot}")).unwrap());
            }
            1 => {
                self.disk.sync_dir("d").unwrap();
                self.files.values_mut().for_each(|(_, model)| model.named = true);
            }
            2 if rng.chance(20) => {
                self.disk.sync_all().unwrap();
                for (slot, (_, model)) in &mut self.files {
                    model.named = true;
                    model.sync(self.disk.read_file(&format!("d/{slot}")).unwrap());
                }
            }
            _ => {
                let at = rng.range(0..FILE_BYTES_MAX);
                let len = rng.range(1..1_500) as usize;
                let bytes = rng.bytes(len);
                let count = file.write_at(&bytes, at).unwrap();
                model.write(&bytes[..count], at as usize);
            }
        }
    }

    /// Crashes, checks every file, and goes on from what is there.
    fn crash(&mut self, seed: u64) -> bool {
        let after = self.disk.crash(seed);
        let mut changed = false;
        for (slot, (_, model)) in std::mem::take(&mut self.files) {
            let path = format!("d/{slot}");
            let found = after.read_file(&path).ok();
            changed |= model.check(found.clone());
            if let Some(bytes) = found {
                assert_eq!(after.read_synced(&path).unwrap(), bytes, "what a restart reads is durable");
                let model = Model { len: bytes.len(), synced: bytes, named: true, ..Model::default() };
                self.files.insert(slot, (after.open(&path).unwrap(), model));
            }
        }
        self.disk = after;
        changed
    }
}

/// Runs on 200 seeds and counts the crashes, of 800, that lost something.
fn run_all(prepare: impl Fn(&FaultDisk)) -> u32 {
    let mut lossy = 0;
    for seed in 0..200 {
        let mut rng = SeededRng::new(seed);
        let disk = FaultDisk::new();
        disk.make_dir("d").unwrap();
        disk.sync_dir("").unwrap();
        disk.short_writes(seed, 10);
        prepare(&disk);
        let mut run = Run { disk, files: BTreeMap::new() };
        for _ in 0..4 {
            for _ in 0..rng.range(1..40) {
                run.step(&mut rng);
            }
            lossy += u32::from(run.crash(rng.next_u64()));
        }
    }
    lossy
}

#[test]
fn synced_data_survives_every_seed_and_unsynced_data_varies() {
    let lossy = run_all(|_| {});
    assert!((200..800).contains(&lossy), "{lossy} of 800 crashes lost something");
}

#[test]
#[should_panic(expected = "never written")]
fn the_model_notices_skipped_syncs() {
    run_all(|disk| disk.ignore_syncs(Matcher::any()));
}

#[test]
#[should_panic(expected = "a durable name is gone")]
fn the_model_notices_skipped_directory_syncs() {
    run_all(FaultDisk::ignore_dir_syncs);
}

/// Random namespace changes over names in two folders. Each file's contents say who it is, so that a file with two names
/// or a name for a file that never had it shows.
#[test]
fn no_crash_doubles_a_file_or_loses_a_durable_one() {
    let paths: Vec<String> =
        ["a", "b", "c"].iter().flat_map(|name| [(*name).to_owned(), format!("d/{name}")]).collect();
    for seed in 0..1_500 {
        let mut rng = SeededRng::new(seed);
        let disk = FaultDisk::new();
        disk.make_dir("d").unwrap();
        disk.sync_all().unwrap();
        let mut removed_or_replaced: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut durable: BTreeSet<Vec<u8>> = BTreeSet::new();
        for serial in 0..rng.range(1..25) {
            let path = rng.choose(&paths).unwrap().clone();
            let target = rng.choose(&paths).unwrap().clone();
            match rng.range(0..8) {
                0..3 => {
                    if let Ok(file) = disk.create(&path) {
                        file.write_at(&serial.to_le_bytes(), 0).unwrap();
                        file.sync().unwrap();
                    }
                }
                3..5 if path != target => {
                    let replaced = disk.read_file(&target);
                    if disk.rename(&path, &target).is_ok() {
                        removed_or_replaced.extend(replaced);
                    }
                }
                5 => {
                    let gone = disk.read_file(&path);
                    if disk.remove(&path).is_ok() {
                        removed_or_replaced.extend(gone);
                    }
                }
                6 => {
                    let dir = if rng.chance(50) { "d" } else { "" };
                    disk.sync_dir(dir).unwrap();
                    let in_dir = |path: &&String| path.starts_with("d/") == (dir == "d");
                    durable
                        .extend(disk.files().iter().filter(in_dir).map(|path| disk.read_file(path).unwrap()));
                }
                _ => {}
            }
        }
        let after = disk.crash(seed);
        let contents: Vec<Vec<u8>> =
            after.files().iter().map(|path| after.read_file(path).unwrap()).collect();
        let distinct: BTreeSet<Vec<u8>> = contents.iter().cloned().collect();
        assert_eq!(distinct.len(), contents.len(), "seed {seed}: a file has two names {:?}", disk.trace());
        for file in durable.difference(&removed_or_replaced) {
            assert!(distinct.contains(file), "seed {seed}: a durable file has no name {:?}", disk.trace());
        }
    }
}

#[test]
fn threads_share_one_disk() {
    let disk = FaultDisk::new();
    std::thread::scope(|scope| {
        for worker in 0..4_u8 {
            let disk = &disk;
            scope.spawn(move || {
                let file = disk.create(&worker.to_string()).unwrap();
                for at in 0..200 {
                    file.write_at(&[worker; 100], at * 100).unwrap();
                    file.sync().unwrap();
                }
            });
        }
    });
    assert_eq!(disk.ops(), 4 * 401);
    for worker in 0..4_u8 {
        assert_eq!(disk.read_file(&worker.to_string()).unwrap(), vec![worker; 20_000]);
    }
}
