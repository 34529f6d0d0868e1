//! Positions in a topic: where a group begins, where a seek moves it, where a reader starts.

use promethean_model::wire::{SeekOpts, SubscribeOpts};
use promethean_model::{EventId, Offset};

/// A position in a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFrom {
    /// The end: only events that are published from now on.
    Latest,
    /// The first event that is kept.
    Earliest,
    /// The first event with this time or a later one, in milliseconds since 1970.
    Ts(i64),
    /// After the event with this id.
    AfterId(EventId),
    /// This offset.
    Offset(u64),
}

impl StartFrom {
    /// The word of the protocol.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Earliest => "earliest",
            Self::Ts(_) => "ts",
            Self::AfterId(_) => "afterId",
            Self::Offset(_) => "offset",
        }
    }

    /// The parameter beside the word, as it is in queries.
    pub(crate) fn parameter(self) -> Option<(&'static str, String)> {
        match self {
            Self::Latest | Self::Earliest => None,
            Self::Ts(ts) => Some(("ts", ts.to_string())),
            Self::AfterId(id) => Some(("afterId", id.to_string())),
            Self::Offset(offset) => Some(("offset", offset.to_string())),
        }
    }

    const fn parts(self) -> (Option<i64>, Option<EventId>, Option<Offset>) {
        match self {
            Self::Latest | Self::Earliest => (None, None, None),
            Self::Ts(ts) => (Some(ts), None, None),
            Self::AfterId(id) => (None, Some(id), None),
            Self::Offset(offset) => (None, None, Some(Offset(offset))),
        }
    }

    pub(crate) fn set(self, opts: &mut SubscribeOpts<'static>) {
        opts.from = Some(self.word().into());
        (opts.ts, opts.after_id, opts.offset) = self.parts();
    }

    pub(crate) fn seek_opts(self, dry_run: bool) -> SeekOpts<'static> {
        let (ts, after_id, offset) = self.parts();
        SeekOpts { from: Some(self.word().into()), ts, after_id, offset, dry_run }
    }
}
