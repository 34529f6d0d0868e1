//! The check of points: whether every piece is there and has its hash.

use std::collections::HashMap;

use anyhow::Result;
use serde::Serialize;

use super::{BackupSet, PieceRead, SavedPoint};

/// The result of a check.
#[derive(Debug, Default, Serialize)]
pub(crate) struct BackupCheck {
    /// Whether nothing is wrong.
    pub(crate) clean: bool,
    /// The points that were checked.
    pub(crate) points: u64,
    /// The pieces that were read.
    pub(crate) pieces: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    pub(crate) damage: Vec<PieceDamage>,
    /// Other faults, in words.
    pub(crate) errors: Vec<String>,
}

/// Damage of a file of a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PieceDamage {
    /// The point.
    pub(crate) point: u32,
    /// The file of the data directory; `state` for documents, cursors and settings.
    pub(crate) file: String,
    pub(crate) from_byte: u64,
    pub(crate) to_byte: u64,
    /// The topic whose events are in the file.
    pub(crate) topic: Option<String>,
    /// The offsets in the file.
    pub(crate) from_offset: Option<u64>,
    pub(crate) to_offset: Option<u64>,
    /// The file of the backup.
    pub(crate) piece: String,
    pub(crate) what: &'static str,
}

impl std::fmt::Display for PieceDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { point, file, from_byte, to_byte, piece, what, .. } = self;
        write!(f, "point {point}: {file} bytes {from_byte}..{to_byte} ({what}: {piece})")?;
        if let (Some(topic), Some(from), Some(to)) = (&self.topic, self.from_offset, self.to_offset) {
            write!(f, ", topic `{topic}` offsets {from}..{to}")?;
        }
        Ok(())
    }
}

/// Checks these points. `progress` is called with the bytes read so far.
pub(crate) fn check(set: &BackupSet, points: &[u32], progress: &mut dyn FnMut(u64)) -> Result<BackupCheck> {
    let mut check = BackupCheck::default();
    let mut seen: HashMap<String, PieceFate> = HashMap::new();
    for number in points {
        match set.read_point(*number) {
            Ok(point) => {
                check.points += 1;
                check.point(set, &point, &mut seen, progress)?;
            }
            Err(error) => check.errors.push(format!("point {number}: {error:#}")),
        }
    }
    check.clean = check.damage.is_empty() && check.errors.is_empty();
    Ok(check)
}

/// What was found of a piece.
#[derive(Debug, Clone, Copy)]
struct PieceFate {
    len: u64,
    fault: Option<&'static str>,
}

impl BackupCheck {
    fn point(
        &mut self,
        set: &BackupSet,
        point: &SavedPoint,
        seen: &mut HashMap<String, PieceFate>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        for file in &point.files {
            let mut at = 0;
            for hash in &file.pieces {
                let len = (file.file.bytes - at).min(point.piece_bytes);
                let fate = self.piece(set, hash, seen, progress)?;
                let short =
                    (fate.len != len && fate.fault.is_none()).then_some("the piece has another length");
                if let Some(what) = fate.fault.or(short) {
                    self.damage.push(PieceDamage {
                        point: point.point,
                        file: file.file.file.clone(),
                        from_byte: at,
                        to_byte: at + len,
                        topic: file.file.topic.and_then(|topic| point.topic_name(topic)).map(str::to_owned),
                        from_offset: file.file.from,
                        to_offset: file.file.to,
                        piece: set.piece_path(hash)?.display().to_string(),
                        what,
                    });
                }
                at += len;
            }
            if at != file.file.bytes {
                self.errors.push(format!("point {}: {} has too few pieces", point.point, file.file.file));
            }
        }
        for hash in &point.state {
            let fate = self.piece(set, hash, seen, progress)?;
            if let Some(what) = fate.fault {
                self.damage.push(PieceDamage {
                    point: point.point,
                    file: "state".to_owned(),
                    from_byte: 0,
                    to_byte: fate.len,
                    topic: None,
                    from_offset: None,
                    to_offset: None,
                    piece: set.piece_path(hash)?.display().to_string(),
                    what,
                });
            }
        }
        Ok(())
    }

    fn piece(
        &mut self,
        set: &BackupSet,
        hash: &str,
        seen: &mut HashMap<String, PieceFate>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PieceFate> {
        if let Some(fate) = seen.get(hash) {
            return Ok(*fate);
        }
        let fate = match set.read_piece(hash)? {
            PieceRead::Whole(bytes) => PieceFate { len: bytes.len() as u64, fault: None },
            PieceRead::Missing => PieceFate { len: 0, fault: Some("the piece is missing") },
            PieceRead::Damaged => PieceFate { len: 0, fault: Some("the piece does not have its hash") },
        };
        self.pieces += 1;
        self.bytes += fate.len;
        progress(self.bytes);
        seen.insert(hash.to_owned(), fate);
        Ok(fate)
    }
}
