//! The contents of one file: the seen bytes, the durable bytes, and the un-synced pieces between the two.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::crash::Mood;
use crate::rng::SeededRng;

/// The bytes that a disk writes whole or not at all.
pub const SECTOR: usize = 512;
const SECTOR_U64: u64 = SECTOR as u64;

/// Un-synced contents of one sector that are remembered; the oldest and the newest always are.
const VERSIONS_MAX: usize = 4;
/// Un-synced growth steps that are remembered one by one; cuts always are.
const LENGTHS_MAX: usize = 16;

/// What one sector held after a write that is not synced.
#[derive(Debug, Clone)]
struct FileVersion {
    /// Index of the file's length when it was written: length changes and writes reach the disk in order.
    epoch: usize,
    bytes: [u8; SECTOR],
}

/// A file. Reads see `seen`; a sync moves the sectors in `pending` from there to `durable`.
///
/// A sector that differs between both and is not pending was lost by a failed sync: it reads well until the crash.
#[derive(Debug, Clone)]
pub(super) struct FileBytes {
    /// Where it is now, for matchers and the trace.
    pub(super) path: Arc<str>,
    /// Open handles; an unlinked file takes space until they are gone.
    pub(super) handles: usize,
    seen: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    pending: BTreeMap<u64, Vec<FileVersion>>,
    /// The durable length, then every length since.
    lengths: Vec<u64>,
}

impl FileBytes {
    pub(super) fn new(path: Arc<str>, bytes: Vec<u8>) -> Self {
        let lengths = vec![bytes.len() as u64];
        let seen = Arc::new(bytes);
        Self { path, handles: 0, durable: Arc::clone(&seen), seen, pending: BTreeMap::new(), lengths }
    }

    pub(super) fn seen(&self) -> &[u8] {
        &self.seen
    }

    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn len(&self) -> u64 {
        self.seen.len() as u64
    }

    pub(super) fn read(&self, buf: &mut [u8], at: u64) -> usize {
        let from = self.seen.len().min(at as usize);
        let count = buf.len().min(self.seen.len() - from);
        buf[..count].copy_from_slice(&self.seen[from..from + count]);
        count
    }

    pub(super) fn write(&mut self, bytes: &[u8], at: u64) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len() as u64;
        let seen = Arc::make_mut(&mut self.seen);
        if end > seen.len() as u64 {
            seen.resize(end as usize, 0);
            self.note_growth(end);
        }
        Arc::make_mut(&mut self.seen)[at as usize..end as usize].copy_from_slice(bytes);
        for sector in at / SECTOR_U64..=(end - 1) / SECTOR_U64 {
            self.note_write(sector);
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        let before = self.len();
        Arc::make_mut(&mut self.seen).resize(len as usize, 0);
        if len > before {
            self.note_growth(len);
        } else if len < before {
            self.lengths.push(len);
            if !len.is_multiple_of(SECTOR_U64) {
                self.note_write(len / SECTOR_U64);
            }
        }
    }

    pub(super) fn sync(&mut self) {
        let shortest = self.shortest(self.lengths.len() - 1);
        let durable = Arc::make_mut(&mut self.durable);
        durable.truncate(shortest as usize);
        durable.resize(self.seen.len(), 0);
        for sector in std::mem::take(&mut self.pending).into_keys() {
            let from = durable.len().min((sector * SECTOR_U64) as usize);
            let to = durable.len().min(from + SECTOR);
            durable[from..to].copy_from_slice(&self.seen[from..to]);
        }
        self.lengths = vec![self.len()];
    }

    /// A failed sync leaves the pages clean: no later sync writes them, though reads still find them.
    pub(super) fn lose_pending(&mut self) {
        self.pending.clear();
    }

    /// The bytes that a power cut leaves.
    pub(super) fn crash(&self, rng: &mut SeededRng, mood: Mood) -> Self {
        let last = self.lengths.len() - 1;
        let (kept, epoch) = match mood {
            Mood::Nothing => (0, 0),
            Mood::Everything => (100, last),
            Mood::Mixed => (*rng.choose(&[0, 10, 50, 90, 100]).unwrap_or(&50), self.crash_epoch(rng)),
        };
        let len = self.lengths[epoch] as usize;
        let mut bytes = self.durable[..self.shortest(epoch) as usize].to_vec();
        bytes.resize(len, 0);
        for (&sector, versions) in &self.pending {
            if !rng.chance(kept) {
                continue;
            }
            let newest = mood == Mood::Everything || rng.chance(75);
            let version = if newest { versions.last() } else { rng.choose(versions) };
            if let Some(version) = version {
                self.land(&mut bytes, sector, version, epoch);
            }
        }
        Self::new(Arc::clone(&self.path), bytes)
    }

    /// Changes the seen and the durable bytes, as decay of the medium does.
    pub(super) fn damage(&mut self, change: impl Fn(&mut Vec<u8>)) {
        if Arc::ptr_eq(&self.seen, &self.durable) {
            // One copy instead of two: suites that damage every byte in turn spend their time here.
            self.durable = Arc::default();
            change(Arc::make_mut(&mut self.seen));
            self.durable = Arc::clone(&self.seen);
        } else {
            change(Arc::make_mut(&mut self.seen));
            change(Arc::make_mut(&mut self.durable));
        }
        self.lengths = vec![self.durable.len() as u64];
        if self.seen.len() != self.durable.len() {
            self.lengths.push(self.seen.len() as u64);
        }
        let end = self.seen.len() as u64;
        self.pending.retain(|sector, _| sector * SECTOR_U64 < end);
        for version in self.pending.values_mut().flatten() {
            version.epoch = self.lengths.len() - 1;
        }
    }

    fn crash_epoch(&self, rng: &mut SeededRng) -> usize {
        let last = self.lengths.len() - 1;
        match rng.range(0..4) {
            0 => 0,
            1 => rng.range(0..last as u64 + 1) as usize,
            _ => last,
        }
    }

    /// Writes one surviving version into the crash image, unless a cut of the file stands between them.
    fn land(&self, image: &mut [u8], sector: u64, version: &FileVersion, epoch: usize) {
        let start = sector * SECTOR_U64;
        let mut bytes = version.bytes;
        if let Some(cut) = self.cut_between(version.epoch, epoch) {
            if cut <= start {
                return;
            }
            bytes[SECTOR.min((cut - start) as usize)..].fill(0);
        }
        // The cut before this write was lost, so the write is lost too.
        if self.cut_between(epoch, version.epoch).is_some_and(|cut| cut < start + SECTOR_U64) {
            return;
        }
        let from = image.len().min(start as usize);
        let to = image.len().min(from + SECTOR);
        image[from..to].copy_from_slice(&bytes[..to - from]);
    }

    /// The deepest cut after length `from` up to and including length `to`.
    fn cut_between(&self, from: usize, to: usize) -> Option<u64> {
        let steps = self.lengths.get(from..=to)?;
        steps.windows(2).filter(|pair| pair[1] < pair[0]).map(|pair| pair[1]).min()
    }

    fn shortest(&self, epoch: usize) -> u64 {
        self.lengths[..=epoch].iter().copied().min().unwrap_or(0)
    }

    fn note_growth(&mut self, len: u64) {
        let growing = matches!(self.lengths[..], [.., a, b] if a <= b);
        if growing && self.lengths.len() >= LENGTHS_MAX {
            self.lengths.pop();
        }
        self.lengths.push(len);
    }

    fn note_write(&mut self, sector: u64) {
        let from = (sector * SECTOR_U64) as usize;
        let to = self.seen.len().min(from + SECTOR);
        let mut bytes = [0; SECTOR];
        bytes[..to - from].copy_from_slice(&self.seen[from..to]);
        let versions = self.pending.entry(sector).or_default();
        if versions.len() >= VERSIONS_MAX {
            versions.remove(1);
        }
        versions.push(FileVersion { epoch: self.lengths.len() - 1, bytes });
    }
}
