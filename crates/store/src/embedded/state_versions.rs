//! The check of the engine's version files, which name its tables. The engine does not compare them with the checksums
//! that it writes, and a damaged one can end the process: it asserts what it reads.
//!
//! ```text
//! keyspaces/N/current: version u64 | checksum u128 of the version file | kind of checksum u8
//! keyspaces/N/v<version>: sections of the engine
//! ```

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::error::OpenError;

const KEYSPACES_DIR: &str = "keyspaces";
const CURRENT: &str = "current";
const CURRENT_BYTES: usize = 25;
/// A checksum with fewer bytes that are right proves nothing.
const RIGHT_BYTES_MIN: usize = 4;
/// No larger version file is searched for the byte that is wrong.
const MENDED_BYTES_MAX: usize = 64 * 1024;

/// Refuses a folder with a version file that is not as the engine wrote it.
pub(super) fn check(folder: &Path) -> Result<(), OpenError> {
    for keyspace in keyspaces(folder)? {
        let Some(found) = VersionFile::read(&keyspace)? else { continue };
        if !found.is_whole() {
            let reason = format!("{} does not verify", found.path.display());
            return Err(OpenError::StateCorrupt { reason });
        }
    }
    Ok(())
}

/// Mends version files of which one byte is wrong, and checksums that are wrong in a part. Leaves others as they are.
pub(super) fn mend(folder: &Path) -> io::Result<()> {
    for keyspace in keyspaces(folder)? {
        let Some(mut found) = VersionFile::read(&keyspace)?.filter(|found| !found.is_whole()) else {
            continue;
        };
        if found.is_nearly_named() {
            let mut current = found.version.to_le_bytes().to_vec();
            current.extend_from_slice(&xxh3_128(&found.bytes).to_le_bytes());
            current.push(0);
            fs::write(keyspace.join(CURRENT), current)?;
        } else if found.mend_byte() {
            fs::write(&found.path, &found.bytes)?;
        }
    }
    Ok(())
}

fn keyspaces(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder.join(KEYSPACES_DIR)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| entry.map(|entry| entry.path())).collect()
}

fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        bytes => bytes.map(Some),
    }
}

/// The version file of a keyspace, and the checksum that it should have.
struct VersionFile {
    path: PathBuf,
    version: u64,
    bytes: Vec<u8>,
    /// The bytes of the checksum, as far as they are there.
    named: Vec<u8>,
}

impl VersionFile {
    /// `None` for a keyspace that was not finished, which the engine removes.
    fn read(keyspace: &Path) -> io::Result<Option<VersionFile>> {
        let Some(current) = read_if_there(&keyspace.join(CURRENT))? else { return Ok(None) };
        let version = current.first_chunk::<8>().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
        let named = current.get(8..CURRENT_BYTES - 1).or(current.get(8..)).unwrap_or_default().to_vec();
        let path = keyspace.join(format!("v{version}"));
        let bytes = read_if_there(&path)?.unwrap_or_default();
        Ok(Some(VersionFile { path, version, bytes, named }))
    }

    fn is_whole(&self) -> bool {
        !self.bytes.is_empty() && self.named == xxh3_128(&self.bytes).to_le_bytes()
    }

    /// Whether the checksum is that of the file but for one byte, for zeros or for its end.
    fn is_nearly_named(&self) -> bool {
        let found = xxh3_128(&self.bytes).to_le_bytes();
        let pairs = || self.named.iter().zip(&found);
        let right = pairs().filter(|(named, found)| named == found).count();
        let zeros = pairs().all(|(named, found)| named == found || *named == 0);
        let near = zeros || pairs().count() - right <= 1;
        !self.bytes.is_empty() && near && right >= RIGHT_BYTES_MIN
    }

    /// Finds the one byte that is wrong, by trying all. Returns whether the file is whole then.
    fn mend_byte(&mut self) -> bool {
        if self.bytes.len() > MENDED_BYTES_MAX {
            return false;
        }
        for at in 0..self.bytes.len() {
            for flip in 1..=u8::MAX {
                if let Some(byte) = self.bytes.get_mut(at) {
                    *byte ^= flip;
                }
                if self.is_whole() {
                    return true;
                }
                if let Some(byte) = self.bytes.get_mut(at) {
                    *byte ^= flip;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyspace() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let keyspace = dir.path().join("keyspaces/1");
        fs::create_dir_all(&keyspace).unwrap();
        fs::write(keyspace.join("v7"), b"tables and levels").unwrap();
        let mut current = 7_u64.to_le_bytes().to_vec();
        current.extend_from_slice(&xxh3_128(b"tables and levels").to_le_bytes());
        current.push(0);
        fs::write(keyspace.join(CURRENT), current).unwrap();
        (dir, keyspace)
    }

    fn damaged(file: &str, damage: impl FnOnce(&mut Vec<u8>)) -> bool {
        let (dir, keyspace) = keyspace();
        check(dir.path()).unwrap();
        let mut bytes = fs::read(keyspace.join(file)).unwrap();
        damage(&mut bytes);
        fs::write(keyspace.join(file), bytes).unwrap();
        assert!(check(dir.path()).is_err());
        mend(dir.path()).unwrap();
        check(dir.path()).is_ok() && fs::read(keyspace.join("v7")).unwrap() == b"tables and levels"
    }

    #[test]
    fn one_wrong_byte_is_noticed_and_mended() {
        assert!(damaged("v7", |bytes| bytes[3] ^= 0x41));
        assert!(damaged(CURRENT, |bytes| bytes[12] ^= 0x41));
        assert!(damaged(CURRENT, |bytes| bytes[9..16].fill(0)));
        assert!(damaged(CURRENT, |bytes| bytes.truncate(14)));
    }

    #[test]
    fn more_damage_is_noticed_and_left() {
        assert!(!damaged("v7", |bytes| bytes[3..9].fill(0)));
        assert!(!damaged("v7", Vec::clear));
        assert!(!damaged(CURRENT, |bytes| bytes.truncate(9)));
        assert!(!damaged(CURRENT, |bytes| bytes[0] = 8));
    }
}
