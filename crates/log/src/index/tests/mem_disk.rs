//! A disk in memory for unit tests.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use crate::disk::{Disk, DiskFile};

#[derive(Debug, Default)]
pub(crate) struct MemDisk {
    files: Mutex<BTreeMap<String, Arc<MemFile>>>,
}

#[derive(Debug, Default)]
pub(crate) struct MemFile {
    pub(crate) bytes: Mutex<Vec<u8>>,
}

impl MemDisk {
    pub(crate) fn file(&self, path: &str) -> Arc<MemFile> {
        Arc::clone(&self.files.lock().unwrap()[path])
    }
}

impl Disk for MemDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = self.files.lock().unwrap();
        if files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(MemFile::default());
        files.insert(path.to_owned(), Arc::clone(&file));
        Ok(file)
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        match self.files.lock().unwrap().get(path) {
            Some(file) => Ok(Arc::clone(file) as Arc<dyn DiskFile>),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{dir}/");
        let files = self.files.lock().unwrap();
        Ok(files.keys().filter_map(|path| path.strip_prefix(&prefix)).map(str::to_owned).collect())
    }
    fn make_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }
    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        let file = files.get(from).cloned().ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.files.lock().unwrap().remove(path).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }
    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }
    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    fn lock(&self, _path: &str) -> io::Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }
}

impl DiskFile for MemFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let bytes = self.bytes.lock().unwrap();
        let rest = bytes.get(at as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        // Writes are short, as a real disk's may be.
        let n = buf.len().min(100_000);
        let mut bytes = self.bytes.lock().unwrap();
        let end = at as usize + n;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at as usize..end].copy_from_slice(&buf[..n]);
        Ok(n)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
