//! What an operator should know about the log.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::LogCore;

/// A message for the operator; its text says what happens and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogNotice {
    /// The wall clock leapt, and is not followed yet.
    ClockLeapt {
        /// By so many milliseconds; negative: back.
        by_ms: i64,
    },
    /// Stamps agree with the wall clock again after a leap: the clock went back, or they follow it.
    ClockSettled,
    /// Topics have stamps that the clock has not reached.
    StampsAhead {
        /// How many topics.
        topics: usize,
        /// How far the highest stamp is ahead.
        by_ms: i64,
    },
    /// Something that the log needs has become short. It is said once, until it is said that it is over.
    ShortOf(LogNeed),
    /// There is enough of it again.
    EnoughOf(LogNeed),
    /// Append times lay in the future and were set to the present.
    AppendTimesClamped {
        /// In so many segments.
        segments: usize,
    },
}

impl fmt::Display for LogNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockLeapt { by_ms } => write!(
                f,
                "the clock of this machine leapt by {} s; stamps and retention follow it if it stays so for 10 minutes",
                by_ms / 1000
            ),
            Self::ClockSettled => f.write_str(
                "stamps agree with the clock of this machine again; if it stayed where it leapt to, the ages that \
                 retention counts follow it at ten times the speed of time",
            ),
            Self::StampsAhead { topics, by_ms } => write!(
                f,
                "{topics} topics have stamps up to {} s ahead of the clock of this machine; their new events get the \
                 last stamp until the clock reaches it",
                by_ms / 1000
            ),
            Self::ShortOf(need) => f.write_str(need.short()),
            Self::EnoughOf(need) => f.write_str(need.enough()),
            Self::AppendTimesClamped { segments } => write!(
                f,
                "events in {segments} segments were appended at times that the clock of this machine has not reached; \
                 for retention they are as new as the events of now"
            ),
        }
    }
}

/// A thing that the log needs and can be short of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogNeed {
    /// Bytes and files on the disk.
    Space,
    /// File descriptors.
    Descriptors,
    /// A disk and a state engine that answer in time.
    Speed,
    /// Space for merging index runs, beside the reserve.
    MergeSpace,
    /// Space for compaction, beside the reserve.
    CompactionSpace,
}

impl LogNeed {
    pub(crate) const ALL: [LogNeed; 5] =
        [Self::Space, Self::Descriptors, Self::Speed, Self::MergeSpace, Self::CompactionSpace];

    fn short(self) -> &'static str {
        match self {
            Self::Space => {
                "the disk of the data directory is full, or its quota is used up; publishing is refused with \
                 `storage_full` until there is more space than the reserve"
            }
            Self::Descriptors => {
                "no file descriptor is left; publishes that need a file are refused with `busy`, and the log tries \
                 again every second; raise the limit of open files (`LimitNOFILE`, `ulimit -n`)"
            }
            Self::Speed => {
                "writing the journal or applying state has taken more than 5 s so far; publishes wait, and are \
                 refused with `busy`; check the disk"
            }
            Self::MergeSpace => {
                "index runs are not merged, because that would use the disk's reserve; lookups get slower until \
                 there is more space"
            }
            Self::CompactionSpace => {
                "topics are not compacted, because that would use the disk's reserve; free some space"
            }
        }
    }

    fn enough(self) -> &'static str {
        match self {
            Self::Space => "the disk of the data directory has space again",
            Self::Descriptors => "there are file descriptors again",
            Self::Speed => "the disk and the state engine answer in time again",
            Self::MergeSpace => "index runs are merged again",
            Self::CompactionSpace => "topics are compacted again",
        }
    }
}

/// The needs whose shortage the operator was told of, and not of its end.
#[derive(Debug, Default)]
pub(crate) struct ToldNeeds([AtomicBool; LogNeed::ALL.len()]);

impl LogCore {
    /// Tells the operator of shortages that have begun or ended since the last call. Waits for no disk.
    pub(crate) fn tell_shortages(&self) {
        for (need, told) in LogNeed::ALL.into_iter().zip(&self.space.told.0) {
            let short = self.is_short_of(need);
            if told.swap(short, Ordering::Relaxed) != short {
                let notice = if short { LogNotice::ShortOf(need) } else { LogNotice::EnoughOf(need) };
                self.observer.notice(notice);
            }
        }
    }

    fn is_short_of(&self, need: LogNeed) -> bool {
        match need {
            LogNeed::Space => self.space.is_full(),
            LogNeed::Descriptors => self.space.lacks_descriptors(),
            LogNeed::Speed => self.hanging().is_some(),
            LogNeed::MergeSpace => self.space.merge_waits.load(Ordering::Relaxed),
            LogNeed::CompactionSpace => self.space.compaction_waits.load(Ordering::Relaxed),
        }
    }
}
