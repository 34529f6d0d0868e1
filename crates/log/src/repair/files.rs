//! The files of a repair. In a dry run nothing is written.

use std::io;
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::{LogOpenError, open_io};
use crate::file_io::write_all_at;

const QUARANTINE: &str = "quarantine";

/// A directory under repair.
pub(super) struct RepairFiles {
    pub(super) disk: Arc<dyn Disk>,
    dry_run: bool,
    /// The number of this repair, which begins the names of the files it sets aside.
    number: u32,
}

impl RepairFiles {
    pub(super) fn new(disk: Arc<dyn Disk>, dry_run: bool) -> Result<RepairFiles, LogOpenError> {
        let number_of = |name: &String| name.strip_prefix("repair-")?.split('-').next()?.parse::<u32>().ok();
        let names = match disk.list(QUARANTINE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(open_io("list", QUARANTINE))?,
        };
        let number = names.iter().filter_map(number_of).max().unwrap_or(0) + 1;
        if !dry_run {
            disk.make_dir(QUARANTINE).map_err(open_io("create", QUARANTINE))?;
        }
        Ok(RepairFiles { disk, dry_run, number })
    }

    /// The names in a folder; none if there is no such folder.
    pub(super) fn list(&self, folder: &str) -> Result<Vec<String>, LogOpenError> {
        match self.disk.list(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other.map_err(open_io("list", folder)),
        }
    }

    /// The bytes of a file; `None` if there is no such file.
    pub(super) fn read_if_there(&self, path: &str) -> Result<Option<Vec<u8>>, LogOpenError> {
        let file = match self.disk.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(open_io("open", path))?,
        };
        let len = file.len().map_err(open_io("stat", path))?;
        Ok(Some(file.read_vec_at(0, len as usize).map_err(open_io("read", path))?))
    }

    /// Writes a file durably, under another name until it is whole.
    pub(super) fn write_new(&self, path: &str, unfinished: &str, bytes: &[u8]) -> Result<(), LogOpenError> {
        if self.dry_run {
            return Ok(());
        }
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let write = || -> io::Result<()> {
            match self.disk.remove(unfinished) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let file = self.disk.create(unfinished)?;
            write_all_at(&*file, bytes, 0)?;
            file.sync()?;
            self.disk.rename(unfinished, path)?;
            self.disk.sync_dir(folder)
        };
        write().map_err(open_io("write", path))
    }

    /// Moves a file to quarantine. Returns both names.
    pub(super) fn set_aside(&self, path: &str) -> Result<(String, String), LogOpenError> {
        let target = self.target(path);
        if !self.dry_run {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            match self.disk.rename(path, &target) {
                // It is among what is lost.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.map_err(open_io("rename", path))?,
            }
            self.disk.sync_dir(QUARANTINE).map_err(open_io("sync", QUARANTINE))?;
            self.disk.sync_dir(folder).map_err(open_io("sync", folder))?;
        }
        Ok((path.to_owned(), target))
    }

    /// Copies a file to quarantine, if it is there.
    pub(super) fn copy_aside(&self, path: &str) -> Result<(), LogOpenError> {
        let Some(bytes) = self.read_if_there(path)? else { return Ok(()) };
        let target = self.target(path);
        self.write_new(&target, &format!("{target}.new"), &bytes)
    }

    fn target(&self, path: &str) -> String {
        format!("{QUARANTINE}/repair-{}-{}", self.number, path.replace('/', "-"))
    }
}
