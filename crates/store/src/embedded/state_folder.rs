//! The folder of the state engine: its creation, and who may read it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// The ending of a folder that is being made.
const NEW: &str = "new";

/// Makes the folder with `make` if it does not exist. A crash leaves all of it or nothing: it is made under another name,
/// and its name in the parent folder is synced before this returns.
pub(super) fn create_once<E: From<io::Error>>(
    folder: &Path,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    if folder.try_exists()? {
        return Ok(());
    }
    let new = folder.with_extension(NEW);
    if new.try_exists()? {
        fs::remove_dir_all(&new)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&new)?;
    make(&new)?;
    make_private(&new)?;
    fs::rename(&new, folder)?;
    if let Some(parent) = folder.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Takes every right from group and others, on the folder and all it contains. The engine makes files with the rights that
/// the process gives by default.
pub(super) fn make_private(folder: &Path) -> io::Result<()> {
    tighten(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let done = match entry.file_type()? {
            kind if kind.is_dir() => make_private(&entry.path()),
            kind if kind.is_file() => tighten(&entry.path()),
            _ => Ok(()),
        };
        match done {
            // The engine removes files at any time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

fn tighten(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(path, Permissions::from_mode(mode & 0o700)),
    }
}

/// Whether users of the machine other than its owner and group may read the folder or search in it.
pub(super) fn is_open_to_all(folder: &Path) -> io::Result<bool> {
    Ok(fs::metadata(folder)?.permissions().mode() & 0o005 != 0)
}
