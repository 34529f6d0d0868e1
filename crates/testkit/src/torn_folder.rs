//! Power cuts for code that writes real files: what it wrote since the last sync is torn, sector by sector.

#![expect(clippy::unwrap_used, reason = "a step of the harness that fails must fail its test")]

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tempfile::TempDir;

use crate::rng::SeededRng;

/// The bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;
/// The bytes of a file that are looked at, from its beginning.
const READ_MAX: u64 = 8 << 20;
/// The file that changes with each sync of the state engine.
const SYNC_MARK: &str = "synced";

/// The folder of the state engine as it was when its journals were synced.
#[derive(Debug)]
pub struct SyncedFolder {
    copy: TempDir,
}

impl SyncedFolder {
    /// Remembers the folder. Everything in it is synced now.
    ///
    /// # Panics
    /// If the folder cannot be copied.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        loop {
            let before = sync_mark(folder);
            let copy = tempfile::tempdir().unwrap();
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_file() {
                    fs::write(copy.path().join(entry.file_name()), start_of(&entry.path())).unwrap();
                }
            }
            // A sync while the copy was made would make the copy older than its mark says.
            if sync_mark(folder) == before {
                return Self { copy };
            }
        }
    }

    /// Cuts the power: of the journals in the folder, each sector that was written since the last sync is by the seed as it
    /// is now, as it was, or noise. Returns whether there were such sectors. Leaves the folder alone if it was synced since:
    /// then it is not known what was written after that.
    ///
    /// # Panics
    /// If the folder cannot be read or changed.
    pub fn tear(&self, folder: &Path, seed: u64) -> bool {
        if sync_mark(folder) != sync_mark(self.copy.path()) {
            return false;
        }
        let mut rng = SeededRng::new(seed);
        let mut torn = false;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "jnl") {
                let before = self.copy.path().join(path.file_name().unwrap());
                let old = if before.exists() { start_of(&before) } else { Vec::new() };
                torn |= tear_file(&path, &old, &mut rng);
            }
        }
        torn
    }
}

fn sync_mark(folder: &Path) -> Option<Vec<u8>> {
    fs::read(folder.join(SYNC_MARK)).ok()
}

/// The bytes of a file up to the last that is not zero.
fn start_of(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().take(READ_MAX).read_to_end(&mut bytes).unwrap();
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    bytes
}

fn tear_file(path: &Path, old: &[u8], rng: &mut SeededRng) -> bool {
    let new = start_of(path);
    let same = new.iter().zip(old).take_while(|(new, old)| new == old).count();
    if same == new.len() {
        return false;
    }
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let (first, last) = (same / SECTOR, new.len().div_ceil(SECTOR));
    // Either all sectors from one on are old, or one is, or each by itself.
    let (how, chosen) = (rng.range(0..4), first + rng.range(0..(last - first) as u64) as usize);
    for sector in first..last {
        let is_lost = match how {
            0 => sector >= chosen,
            1 | 2 => sector == chosen,
            _ => rng.chance(50),
        };
        if !is_lost {
            continue;
        }
        let at = sector * SECTOR;
        let mut bytes = vec![0; SECTOR];
        let kept = old.get(at..).unwrap_or_default();
        let kept = &kept[..kept.len().min(SECTOR)];
        bytes[..kept.len()].copy_from_slice(kept);
        // A sector with synced bytes is written whole or not at all.
        if kept.is_empty() && (how == 2 || rng.chance(25)) {
            rng.fill(&mut bytes);
        }
        file.write_all_at(&bytes, at as u64).unwrap();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_bytes_stay_and_later_bytes_are_torn() {
        let mut differences = 0;
        for seed in 0..50 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("0.jnl");
            fs::write(&path, [1; 700]).unwrap();
            let synced = SyncedFolder::of(dir.path());
            assert!(!synced.tear(dir.path(), seed), "nothing was written since");
            let all = [[1; 700].as_slice(), &[2; 3000]].concat();
            fs::write(&path, &all).unwrap();
            assert!(synced.tear(dir.path(), seed));
            let torn = fs::read(&path).unwrap();
            assert_eq!(torn[..700], [1; 700]);
            differences += u64::from(torn[..all.len()] != all[..]);
        }
        assert!(differences > 40, "{differences}");
    }

    #[test]
    fn a_folder_that_was_synced_again_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let synced = SyncedFolder::of(dir.path());
        fs::write(dir.path().join("0.jnl"), [3; 9]).unwrap();
        fs::write(dir.path().join("synced"), "0 1\n").unwrap();
        assert!(!synced.tear(dir.path(), 1));
    }
}
