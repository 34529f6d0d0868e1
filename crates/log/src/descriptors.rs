//! Descriptors kept in reserve, so that the log opens its files when the rest of the process has used up the
//! others.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::poison::lock;
use crate::space::Shortage;

/// Descriptors in reserve.
const RESERVED: usize = 16;

/// Open files that are closed one by one when an open fails for lack of descriptors.
#[derive(Debug)]
pub(crate) struct DescriptorReserve {
    /// The directory that the descriptors are opened on; each is an open file of its own, because the system
    /// has a limit of those too.
    root: PathBuf,
    kept: Mutex<Vec<File>>,
}

impl DescriptorReserve {
    /// Takes the reserve. It may stay small if few descriptors are left.
    pub(crate) fn new(root: &Path) -> DescriptorReserve {
        let reserve = DescriptorReserve { root: root.to_owned(), kept: Mutex::default() };
        reserve.restore();
        reserve
    }

    /// Opens a file. While no descriptor is left, gives one of the reserve up for it.
    pub(crate) fn open<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match open() {
                Err(error) if Shortage::of(&error) == Some(Shortage::Descriptors) => {
                    // Another thread may take what is given up, so this goes on until the reserve is spent.
                    if lock(&self.kept).pop().is_none() {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    /// Takes back descriptors that were given up. Returns whether the reserve is whole.
    pub(crate) fn restore(&self) -> bool {
        let mut kept = lock(&self.kept);
        while kept.len() < RESERVED {
            match File::open(&self.root) {
                Ok(file) => kept.push(file),
                Err(_) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A reserve that has given up `gone` descriptors when an open succeeds at last.
    fn open_after(gone: usize) -> (DescriptorReserve, io::Result<usize>) {
        let reserve = DescriptorReserve::new(&std::env::temp_dir());
        let tries = AtomicUsize::new(0);
        let opened = reserve.open(|| match tries.fetch_add(1, Ordering::Relaxed) {
            enough if enough >= gone => Ok(enough),
            odd if odd % 2 == 1 => Err(io::Error::from_raw_os_error(23)),
            _ => Err(io::Error::from_raw_os_error(24)),
        });
        (reserve, opened)
    }

    #[test]
    fn an_open_without_descriptors_takes_them_from_the_reserve() {
        for gone in 0..=RESERVED {
            let (reserve, opened) = open_after(gone);
            assert_eq!(opened.unwrap(), gone);
            assert_eq!(lock(&reserve.kept).len(), RESERVED - gone);
            assert!(reserve.restore(), "the reserve is taken back");
            assert_eq!(lock(&reserve.kept).len(), RESERVED);
        }
        assert!(open_after(RESERVED + 1).1.is_err(), "the reserve is spent");
    }

    #[test]
    fn other_errors_leave_the_reserve_alone() {
        let reserve = DescriptorReserve::new(&std::env::temp_dir());
        let failed: io::Result<()> = reserve.open(|| Err(io::ErrorKind::NotFound.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(lock(&reserve.kept).len(), RESERVED);
    }
}
