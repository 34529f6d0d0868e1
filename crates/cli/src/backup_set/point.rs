//! A point of a backup: its topics, its files, and the pieces they are made of.
//!
//! The file has two lines: the point as JSON, and the XXH3 hash of 128 bits of the first line.

use anyhow::{Context, Result, ensure};
use promethean_client::{BackupFile, BackupTopic};
use serde::{Deserialize, Serialize};

use super::{POINTS, hash_of};

/// A point that is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedPoint {
    /// Its number in the backup.
    pub(crate) point: u32,
    /// When it was taken, in milliseconds since 1970.
    pub(crate) taken: i64,
    /// Its position in the log of the server.
    pub(crate) position: u64,
    /// The length of all pieces of a file but the last.
    pub(crate) piece_bytes: u64,
    pub(crate) topics: Vec<BackupTopic>,
    pub(crate) files: Vec<PointFile>,
    /// The hashes of the pages of state.
    pub(crate) state: Vec<String>,
}

/// A file of a point, and the hashes of its pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PointFile {
    #[serde(flatten)]
    pub(crate) file: BackupFile,
    pub(crate) pieces: Vec<String>,
}

impl SavedPoint {
    pub(super) fn encode(&self) -> Result<String> {
        let line = serde_json::to_string(self)?;
        let hash = hash_of(line.as_bytes());
        Ok(format!("{line}\n{hash}\n"))
    }

    pub(super) fn decode(text: &str) -> Result<Self> {
        let (line, hash) = text.split_once('\n').context("it has one line only")?;
        ensure!(
            hash == format!("{}\n", hash_of(line.as_bytes())),
            "its hash is not the one it was written with"
        );
        let point: Self = serde_json::from_str(line).context("another version wrote it")?;
        for file in &point.files {
            ensure!(is_safe(&file.file.file), "`{}` is not a file of a data directory", file.file.file);
        }
        Ok(point)
    }

    /// The events that topics keep, if no topic is compacted.
    pub(crate) fn events(&self) -> u64 {
        self.topics.iter().map(|topic| topic.end.saturating_sub(topic.earliest)).sum()
    }

    /// The bytes of the files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.file.bytes).sum()
    }

    /// The name of the topic with this number.
    pub(crate) fn topic_name(&self, number: u32) -> Option<&str> {
        self.topics.iter().find(|topic| topic.number == number).map(|topic| topic.topic.as_str())
    }
}

/// Whether a path names a file of a log, so that a restore writes nowhere else.
pub(crate) fn is_safe(path: &str) -> bool {
    let name = match path.split_once('/') {
        Some(("segments" | "index" | "journal", name)) => name,
        Some(_) => return false,
        None => return path == "manifest",
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain)
}

/// The path of a point in a backup.
pub(super) fn path_of(number: u32) -> String {
    format!("{POINTS}/{number:08}.json")
}

/// The number of a point by the name of its file.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".json")?;
    digits.parse().ok().filter(|_| digits.len() == 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point() -> SavedPoint {
        let file = BackupFile {
            file: "segments/00000001-0000000000000000-0.seg".to_owned(),
            bytes: 5,
            length: 5,
            topic: Some(1),
            from: Some(0),
            to: Some(2),
        };
        let topic = BackupTopic { topic: "a".to_owned(), number: 1, earliest: 1, end: 3 };
        SavedPoint {
            point: 7,
            taken: 1,
            position: 2,
            piece_bytes: 4,
            topics: vec![topic],
            files: vec![PointFile { file, pieces: vec![hash_of(b"abcd"), hash_of(b"e")] }],
            state: vec![hash_of(b"")],
        }
    }

    #[test]
    fn a_point_is_read_as_it_was_written_or_not_at_all() {
        let text = point().encode().unwrap();
        assert_eq!(SavedPoint::decode(&text).unwrap(), point());
        for at in 0..text.len() {
            for bit in 0..7 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let Ok(damaged) = String::from_utf8(bytes) else { continue };
                assert!(SavedPoint::decode(&damaged).is_err(), "byte {at}, bit {bit}");
            }
            assert!(SavedPoint::decode(&text[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_point_names_files_of_a_data_directory_only() {
        for good in ["manifest", "segments/00000001-0000000000000000-0.seg", "index/1.run", "journal/0.jrn"] {
            assert!(is_safe(good), "{good}");
        }
        for bad in [
            "",
            "/etc/passwd",
            "segments/../x",
            "segments/a/b",
            "segments/..",
            "segments/",
            "state/x",
            "LOCK",
            "../manifest",
        ] {
            assert!(!is_safe(bad), "{bad}");
        }
        let mut point = point();
        point.files[0].file.file = "segments/../../x".to_owned();
        assert!(SavedPoint::decode(&point.encode().unwrap()).is_err());
    }

    #[test]
    fn names_have_eight_digits() {
        assert_eq!(path_of(12), "points/00000012.json");
        assert_eq!(number_of("00000012.json"), Some(12));
        for bad in ["12.json", "00000012.new", "0000001x.json", "000000012.json"] {
            assert_eq!(number_of(bad), None, "{bad}");
        }
    }
}
