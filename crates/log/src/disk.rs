//! The seam between the log and the operating system: everything the log reads or writes goes through `Disk`.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// A data directory. Paths are relative to it, with `/` between folder and file.
///
/// Durability contract: a file's bytes and length survive a power cut once `DiskFile::sync` returned after
/// they were written; a created, renamed, linked or removed name once `sync_dir` of its folder returned; everything
/// once `sync_all` did.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Creates a file for reading and writing; an existing one is an error (`AlreadyExists`).
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Names of the files in a folder, in no order; folders are left out.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Creates a folder unless it exists.
    fn make_dir(&self, dir: &str) -> io::Result<()>;
    /// Renames a file, replacing the target.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Gives a file a second name; an existing one is an error (`AlreadyExists`). The bytes stay until both
    /// names are removed.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Makes the names in a folder durable; `""` is the data directory itself.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Makes every byte and name of the directory durable at once.
    fn sync_all(&self) -> io::Result<()>;
    /// The number of bytes that can still be written.
    fn free_bytes(&self) -> io::Result<u64>;
    /// The number of files that can still be created. Default: as many as asked for.
    fn free_files(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// Takes back the descriptors that the disk keeps in reserve and has given up for files. Returns whether
    /// the reserve is whole.
    fn restore_reserve(&self) -> bool {
        true
    }
    /// Takes the directory's exclusive lock, `WouldBlock` if another holder has it. Dropping the guard
    /// releases it.
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>>;
}

#[expect(clippy::len_without_is_empty, reason = "a length that costs a system call")]
/// One open file. All calls are positioned, so a handle can be shared by threads.
pub trait DiskFile: Debug + Send + Sync {
    /// Reads up to `buf.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// Reads `len` bytes into a new vector, fewer at the end of the file.
    fn read_vec_at(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let count = self.read_at(&mut bytes, at)?;
        bytes.truncate(count);
        Ok(bytes)
    }
    /// Writes some of `buf`, extending the file if needed. Returns how many bytes were written.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize>;
    /// The file's length.
    fn len(&self) -> io::Result<u64>;
    /// Cuts or zero-extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the file's bytes and length durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
}
