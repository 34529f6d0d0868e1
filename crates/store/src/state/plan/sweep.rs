//! The sweep: removes expired dedupe marks and documents of dropped collections, a bounded piece at a time.

use super::super::keys::{collection, dedupe, doc};
use super::super::{Flow, RowSpan, StateFault, StateSpace, View, Writes};

/// About the most keys that one piece removes.
pub(crate) const SWEEP_KEYS_MAX: usize = 1000;

/// One piece of the sweep.
#[derive(Debug, Default)]
pub(crate) struct SweepPiece {
    /// The removals.
    pub(crate) writes: Writes,
    /// Whether there may be more.
    pub(crate) more: bool,
}

/// Plans one piece: marks expired at `now_ms`, then documents of dropped collections.
pub(crate) fn piece(view: &dyn View, now_ms: i64) -> Result<SweepPiece, StateFault> {
    let mut piece = SweepPiece::default();
    expired_marks(view, now_ms, &mut piece)?;
    if !piece.more {
        dropped_collections(view, &mut piece)?;
    }
    Ok(piece)
}

fn expired_marks(view: &dyn View, now_ms: i64, piece: &mut SweepPiece) -> Result<(), StateFault> {
    let mut expired = Vec::new();
    view.scan(StateSpace::Dedupe, RowSpan::of(&dedupe::EXPIRY_PREFIX), &mut |key, _| {
        let (expires_at, name) = dedupe::decode_expiry_key(key)?;
        if expires_at > now_ms {
            return Ok(Flow::Break(()));
        }
        expired.push((key.to_vec(), expires_at, dedupe::key(name)));
        Ok(if expired.len() < SWEEP_KEYS_MAX / 2 { Flow::Continue(()) } else { Flow::Break(()) })
    })?;
    piece.more = expired.len() == SWEEP_KEYS_MAX / 2;
    for (entry, expires_at, mark) in expired {
        // A mark may have been renewed; then only the expiry entry of the earlier mark is removed.
        let stored = view.get(StateSpace::Dedupe, &mark)?.map(|value| dedupe::decode(&value)).transpose()?;
        if stored == Some(expires_at) {
            piece.writes.set(StateSpace::Dedupe, mark, None);
        }
        piece.writes.set(StateSpace::Dedupe, entry, None);
    }
    Ok(())
}

fn dropped_collections(view: &dyn View, piece: &mut SweepPiece) -> Result<(), StateFault> {
    let mut dropped = Vec::new();
    view.scan(StateSpace::Meta, RowSpan::of(&collection::DROPPED_PREFIX), &mut |key, _| {
        dropped.push(collection::decode_dropped_key(key)?);
        Ok(if dropped.len() < SWEEP_KEYS_MAX { Flow::Continue(()) } else { Flow::Break(()) })
    })?;
    for number in dropped {
        for space in [StateSpace::Docs, StateSpace::Index] {
            // Documents and index entries both begin with the collection's number.
            view.scan(space, RowSpan::of(&doc::prefix(number)), &mut |key, _| {
                piece.writes.set(space, key.to_vec(), None);
                piece.more = piece.writes.len() >= SWEEP_KEYS_MAX;
                Ok(if piece.more { Flow::Break(()) } else { Flow::Continue(()) })
            })?;
            if piece.more {
                return Ok(());
            }
        }
        // Last, with the piece that removes the last document: after a crash before it, the sweep starts over.
        piece.writes.set(StateSpace::Meta, collection::dropped_key(number), None);
    }
    Ok(())
}
