//! A backup directory: points of a server, made of pieces that points share.
//!
//! ```text
//! BACKUP               "promethean-backup 1\n"
//! LOCK                 held with flock while a command writes
//! points/NNNNNNNN.json a point, see `point`; it is written last, so a point that is there is complete
//! pieces/HH/HASH       bytes whose XXH3 hash of 128 bits is the name; HH are its first two digits
//! incomplete           the point that is being fetched, see `progress`
//! ```

pub(crate) mod check;
mod point;
mod progress;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use xxhash_rust::xxh3::xxh3_128;

pub(crate) use self::point::{PointFile, SavedPoint};
pub(crate) use self::progress::{FetchProgress, STATE};

const MARKER: &str = "BACKUP";
const FORMAT: &str = "promethean-backup 1\n";
const LOCK: &str = "LOCK";
const POINTS: &str = "points";
const PIECES: &str = "pieces";
const NEW: &str = "new";

/// The hash of bytes, in hexadecimal digits.
pub(crate) fn hash_of(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

/// A backup directory.
#[derive(Debug)]
pub(crate) struct BackupSet {
    root: PathBuf,
    /// Held while this process writes.
    _lock: Option<File>,
    /// Folders of pieces that were written and are not synced.
    unsynced: BTreeSet<PathBuf>,
}

/// The condition of a piece.
#[derive(Debug)]
pub(crate) enum PieceRead {
    Whole(Vec<u8>),
    Missing,
    Damaged,
}

impl BackupSet {
    /// Whether a folder is a backup directory, or was one.
    pub(crate) fn is_at(root: &Path) -> bool {
        root.join(MARKER).exists() || root.join(POINTS).is_dir()
    }

    /// Opens a backup directory to read it.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        ensure!(
            Self::is_at(root),
            "`{}` is not a backup: it has no file BACKUP; name the directory that `promethean backup` wrote",
            root.display()
        );
        let found = fs::read_to_string(root.join(MARKER)).unwrap_or_default();
        ensure!(
            found == FORMAT,
            "`{}` does not say `{}`: the file is damaged, or another version wrote the backup",
            root.join(MARKER).display(),
            FORMAT.trim_end()
        );
        Ok(Self { root: root.to_owned(), _lock: None, unsynced: BTreeSet::new() })
    }

    /// Opens a backup directory to add a point, or makes it.
    pub(crate) fn open_to_write(root: &Path) -> Result<Self> {
        let what = || format!("cannot write to `{}`", root.display());
        if !Self::is_at(root) {
            let is_used = match fs::read_dir(root) {
                Ok(mut entries) => entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != LOCK)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(error).with_context(what),
            };
            ensure!(
                !is_used,
                "`{}` has other files and is no backup; name a new or empty directory",
                root.display()
            );
        }
        make_dir(root).with_context(what)?;
        let lock = private().create(true).truncate(false).open(root.join(LOCK)).with_context(what)?;
        if lock.try_lock().is_err() {
            bail!("another process writes to `{}`; wait until it has ended", root.display());
        }
        if !Self::is_at(root) {
            for folder in [POINTS, PIECES] {
                make_dir(&root.join(folder)).with_context(what)?;
            }
            write_whole(&root.join(MARKER), FORMAT.as_bytes()).with_context(what)?;
        }
        Ok(Self { _lock: Some(lock), ..Self::open(root)? })
    }

    /// The numbers of the points, ascending.
    pub(crate) fn points(&self) -> Result<Vec<u32>> {
        let folder = self.root.join(POINTS);
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            numbers.extend(name.to_str().and_then(point::number_of));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The latest point, or the one with this number.
    pub(crate) fn choose(&self, number: Option<u32>) -> Result<SavedPoint> {
        let points = self.points()?;
        let Some(latest) = points.last() else {
            bail!(
                "`{}` has no complete point; run `promethean backup {0}` until it says so",
                self.root.display()
            );
        };
        match number {
            None => self.read_point(*latest),
            Some(number) if points.contains(&number) => self.read_point(number),
            Some(number) => {
                let listed: Vec<String> = points.iter().map(u32::to_string).collect();
                bail!("there is no point {number}; choose one of: {}", listed.join(", "))
            }
        }
    }

    /// Reads a point. Fails if its file is not as it was written.
    pub(crate) fn read_point(&self, number: u32) -> Result<SavedPoint> {
        let path = self.root.join(point::path_of(number));
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        SavedPoint::decode(&text)
            .with_context(|| format!("`{}` is damaged; use another point", path.display()))
    }

    /// Writes a point, which is complete from then on.
    pub(crate) fn write_point(&mut self, point: &SavedPoint) -> Result<()> {
        for folder in std::mem::take(&mut self.unsynced) {
            File::open(&folder)?.sync_all()?;
        }
        let path = self.root.join(point::path_of(point.point));
        write_whole(&path, point.encode()?.as_bytes())
            .with_context(|| format!("cannot write `{}`", path.display()))
    }

    /// Reads a piece and compares its hash.
    pub(crate) fn read_piece(&self, hash: &str) -> Result<PieceRead> {
        let path = self.piece_path(hash)?;
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) if hash_of(&bytes) == hash => Ok(PieceRead::Whole(bytes)),
            Ok(_) => Ok(PieceRead::Damaged),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PieceRead::Missing),
            Err(error) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        }
    }

    /// Writes a piece, unless it is there.
    pub(crate) fn write_piece(&mut self, hash: &str, bytes: &[u8]) -> Result<()> {
        if matches!(self.read_piece(hash)?, PieceRead::Whole(_)) {
            return Ok(());
        }
        let path = self.piece_path(hash)?;
        let what = || format!("cannot write `{}`", path.display());
        if let Some(folder) = path.parent() {
            make_dir(folder).with_context(what)?;
            self.unsynced.extend([folder.to_owned(), self.root.join(PIECES)]);
        }
        replace_file(&path, bytes).with_context(what)
    }

    /// The path of a piece. A hash of another form could lead out of the directory.
    pub(crate) fn piece_path(&self, hash: &str) -> Result<PathBuf> {
        let is_hash = hash.len() == 32 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        ensure!(is_hash, "`{hash}` is not the hash of a piece");
        let (folder, _) = hash.split_at(2);
        Ok(self.root.join(PIECES).join(folder).join(hash))
    }

    /// The file of a fetch that is under way.
    pub(crate) fn progress_path(&self) -> PathBuf {
        self.root.join("incomplete")
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file under another name, syncs it, and renames it.
fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension(NEW);
    let mut file = private().create(true).truncate(true).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// As [`replace_file`], and makes the name durable.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_file(path, bytes)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
