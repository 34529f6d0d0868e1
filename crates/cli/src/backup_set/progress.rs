//! The progress of a fetch, so that it goes on after it was interrupted.
//!
//! The first line is the id of the backup on the server. Each further line names a piece that is stored: its hash,
//! its number and its file. A line that was cut is not used.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};

use anyhow::{Context, Result};
use promethean_model::EventId;

use super::{BackupSet, private};

/// The name of the pages of state in the progress. No file has this name.
pub(crate) const STATE: &str = "state";

/// The pieces that earlier fetches have stored, and the backup that the last of them fetched.
#[derive(Debug, Default)]
pub(crate) struct FetchProgress {
    /// The id of a backup whose fetch did not end.
    pub(crate) id: Option<EventId>,
    /// Hashes by file and number of the piece.
    known: HashMap<(String, u64), String>,
    file: Option<File>,
}

impl FetchProgress {
    /// Reads what the latest point and an interrupted fetch have.
    pub(crate) fn read(set: &BackupSet) -> Result<Self> {
        let mut progress = Self::default();
        if let Some(latest) = set.points()?.last()
            // A damaged point only means that more is fetched.
            && let Ok(point) = set.read_point(*latest)
        {
            let state = point.state.iter().map(|hash| (STATE, hash)).enumerate();
            progress
                .known
                .extend(state.map(|(at, (file, hash))| ((file.to_owned(), at as u64), hash.clone())));
            for file in point.files {
                for (at, hash) in file.pieces.into_iter().enumerate() {
                    progress.known.insert((file.file.file.clone(), at as u64), hash);
                }
            }
        }
        let text = match fs::read_to_string(set.progress_path()) {
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::InvalidData].contains(&error.kind()) => {
                String::new()
            }
            text => text?,
        };
        let whole = text.rfind('\n').and_then(|end| text.get(..end)).unwrap_or_default();
        let mut lines = whole.lines();
        progress.id = lines.next().and_then(|line| line.parse().ok());
        for line in lines {
            let mut words = line.splitn(3, ' ');
            if let (Some(hash), Some(Ok(at)), Some(file)) =
                (words.next(), words.next().map(str::parse), words.next())
            {
                progress.known.insert((file.to_owned(), at), hash.to_owned());
            }
        }
        Ok(progress)
    }

    /// Notes the backup that is fetched from now on, before the server is asked for it. The pieces that are known stay.
    pub(crate) fn begin(&mut self, set: &BackupSet, id: EventId) -> Result<()> {
        let mut text = format!("{id}\n");
        for ((file, at), hash) in &self.known {
            text.push_str(&format!("{hash} {at} {file}\n"));
        }
        let path = set.progress_path();
        super::write_whole(&path, text.as_bytes())?;
        self.file = Some(
            private()
                .append(true)
                .open(&path)
                .with_context(|| format!("cannot write `{}`", path.display()))?,
        );
        Ok(())
    }

    /// The hash that a piece had when it was last fetched.
    pub(crate) fn known(&self, file: &str, at: u64) -> Option<&str> {
        self.known.get(&(file.to_owned(), at)).map(String::as_str)
    }

    /// Notes a piece that is stored.
    pub(crate) fn note(&mut self, file: &str, at: u64, hash: &str) -> Result<()> {
        if let Some(out) = &mut self.file {
            out.write_all(format!("{hash} {at} {file}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Forgets the fetch, which has ended.
    pub(crate) fn end(self, set: &BackupSet) -> Result<()> {
        Ok(fs::remove_file(set.progress_path())?)
    }
}
