//! The sync mark: how far the state engine's journal was synced at the last checkpoint.
//!
//! Every sync first writes a batch with a number of its own, the counter `SyncMark`. After the sync the number is noted in
//! the file `synced` of the engine's folder, as text: `journal number`. A journal that does not hold the noted number any
//! more has lost something that was synced.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const NAME: &str = "synced";
const NEW: &str = "synced.new";

/// A number that is in the engine's journal, and was synced there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SyncMark {
    /// The number of the journal file.
    pub(super) journal: u64,
    /// The number in it.
    pub(super) number: u64,
}

impl SyncMark {
    /// The mark noted in the engine's folder. `None` before the first sync, and if the file is not whole: a power cut may
    /// come while it is replaced.
    pub(super) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read_to_string(folder.join(NAME)) {
            Ok(text) => text,
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::InvalidData].contains(&error.kind()) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Option<Self> {
        let (journal, number) = text.strip_suffix('\n')?.split_once(' ')?;
        Some(Self { journal: journal.parse().ok()?, number: number.parse().ok()? })
    }

    /// Notes the mark in the engine's folder.
    pub(super) fn write(self, folder: &Path) -> io::Result<()> {
        let new = folder.join(NEW);
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(format!("{} {}\n", self.journal, self.number).as_bytes())?;
        file.sync_data()?;
        fs::rename(&new, folder.join(NAME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(SyncMark::read(dir.path()).unwrap(), None);
        let mark = SyncMark { journal: 3, number: 70 };
        mark.write(dir.path()).unwrap();
        assert_eq!(SyncMark::read(dir.path()).unwrap(), Some(mark));
        for torn in ["", "3", "3 7", "3 70", "\0\0\0\0\0", "x 70\n"] {
            fs::write(dir.path().join(NAME), torn).unwrap();
            assert_eq!(SyncMark::read(dir.path()).unwrap(), None, "{torn:?}");
        }
    }
}
