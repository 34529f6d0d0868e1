//! The disk of the operating system: real files.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::descriptors::DescriptorReserve;
use crate::disk::{Disk, DiskFile};
use crate::poison::lock;

/// A directory of the operating system, readable by its owner alone.
#[derive(Debug)]
pub struct RealDisk {
    root: PathBuf,
    /// Kept open, because the kernel reports an earlier write-back error once to each open file.
    root_file: File,
    /// The folders that were synced, kept open so that a sync of them needs no descriptor.
    folders: Mutex<HashMap<String, Arc<File>>>,
    reserve: DescriptorReserve,
}

impl RealDisk {
    /// Uses the directory `root`, and creates it if it does not exist.
    pub fn new(root: impl AsRef<Path>) -> io::Result<RealDisk> {
        let root = root.as_ref().to_path_buf();
        make_private_dir(&root)?;
        let root_file = File::open(&root)?;
        let reserve = DescriptorReserve::new(&root);
        Ok(RealDisk { root, root_file, folders: Mutex::default(), reserve })
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        options
    }
}

fn make_private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl Disk for RealDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.reserve.open(|| Self::options().create_new(true).open(self.path(path)))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(self.reserve.open(|| Self::options().open(self.path(path)))?)))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.reserve.open(|| fs::read_dir(self.path(dir)))? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        make_private_dir(&self.path(dir))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fs::hard_link(self.path(from), self.path(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.path(path))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let known = lock(&self.folders).get(dir).cloned();
        let folder = match known {
            Some(folder) => folder,
            None => {
                let opened = Arc::new(self.reserve.open(|| File::open(self.path(dir)))?);
                lock(&self.folders).insert(dir.to_owned(), Arc::clone(&opened));
                opened
            }
        };
        folder.sync_all()
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root_file)?)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn free_files(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        // A file system without a fixed number of inodes reports none at all.
        Ok(if stat.f_files == 0 { u64::MAX } else { stat.f_favail })
    }

    fn restore_reserve(&self) -> bool {
        self.reserve.restore()
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        let file = Self::options().create(true).truncate(false).open(self.path(path))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, at + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads without zeroing the memory first.
    fn read_vec_at(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let place = at + bytes.len() as u64;
            match rustix::io::pread(&self.0, rustix::buffer::spare_capacity(&mut bytes), place) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The vector may have had more capacity than `len`, and then more was read.
        bytes.truncate(len);
        Ok(bytes)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        self.0.write_at(buf, at)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
