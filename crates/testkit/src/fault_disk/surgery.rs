//! Reads and changes of files without the knowledge of the code under test. They are not counted, no rule makes them fail,
//! and they also work on a dead disk.

use std::io;

use super::disk::FaultDisk;
use super::names::{Entry, NameOp, folder};
use super::state::DiskState;

impl FaultDisk {
    /// Paths of all files, sorted.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        self.state().names.files().map(|(path, _)| path.to_owned()).collect()
    }

    /// The bytes that a reader of the file sees.
    pub fn read_file(&self, path: &str) -> io::Result<Vec<u8>> {
        let state = self.state();
        Ok(state.file(state.lookup(path)?)?.seen().to_vec())
    }

    /// The bytes that certainly survive a power cut: the synced bytes under the synced name, `NotFound` without such a name.
    ///
    /// Bytes that an un-synced cut or overwrite may replace are still shown as they were synced.
    pub fn read_synced(&self, path: &str) -> io::Result<Vec<u8>> {
        let state = self.state();
        match state.names.get_durable(path) {
            Some(Entry::File(file)) => Ok(state.file(file)?.durable().to_vec()),
            Some(Entry::Folder) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The file's length as a reader sees it.
    pub fn len(&self, path: &str) -> io::Result<u64> {
        let state = self.state();
        Ok(state.file(state.lookup(path)?)?.len())
    }

    /// Writes a file, durable at once, over any file of its name; makes its folders. Un-synced changes of names become
    /// durable with it.
    pub fn write_file(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        make_folders(&mut state, folder(path))?;
        if state.names.get(path) == Some(Entry::Folder) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let file = state.add_file(path, bytes.to_vec());
        state.names.change_durably(NameOp::Create { path: path.to_owned(), file });
        state.prune();
        Ok(())
    }

    /// Removes a file, durably. Un-synced changes of names become durable with it.
    pub fn remove_file(&self, path: &str) -> io::Result<()> {
        let mut state = self.state();
        state.lookup(path)?;
        state.names.change_durably(NameOp::Remove { path: path.to_owned() });
        state.prune();
        Ok(())
    }

    /// Flips one bit of the file, in the seen and in the durable bytes.
    pub fn flip_bit(&self, path: &str, byte: u64, bit: u8) -> io::Result<()> {
        let mask = 1_u8.checked_shl(u32::from(bit)).ok_or(io::ErrorKind::InvalidInput)?;
        let mut state = self.state();
        let file = state.lookup(path)?;
        let file = state.file_mut(file)?;
        if byte >= file.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.damage(|image| {
            if let Some(byte) = image.get_mut(byte as usize) {
                *byte ^= mask;
            }
        });
        Ok(())
    }

    /// Cuts the file, in the seen and in the durable bytes; a longer length changes nothing.
    pub fn truncate(&self, path: &str, len: u64) -> io::Result<()> {
        let mut state = self.state();
        let file = state.lookup(path)?;
        state.file_mut(file)?.damage(|image| image.truncate(len as usize));
        Ok(())
    }
}

fn make_folders(state: &mut DiskState, dir: &str) -> io::Result<()> {
    if state.names.get(dir).is_none() {
        make_folders(state, folder(dir))?;
        state.names.change_durably(NameOp::MakeDir { path: dir.to_owned() });
    }
    state.need_folder(dir)
}
