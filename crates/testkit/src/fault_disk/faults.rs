//! Faults, and the operations that they meet.

use std::io;

use crate::rng::SeededRng;

/// The kinds of disk operation a [`Matcher`] tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// `Disk::create`
    Create,
    /// `DiskFile::write_at`
    Write,
    /// `DiskFile::set_len`
    SetLen,
    /// `DiskFile::sync`
    Sync,
    /// `Disk::rename`; its path is `from` and `to` with a space between
    Rename,
    /// `Disk::link`; its path is `from` and `to` with a space between
    Link,
    /// `Disk::remove`
    Remove,
    /// `Disk::sync_dir`
    SyncDir,
    /// `Disk::sync_all`; its path is empty
    SyncAll,
    /// `Disk::make_dir`
    MakeDir,
    /// `Disk::open`
    Open,
    /// `DiskFile::read_at`
    Read,
    /// `DiskFile::len`
    Len,
    /// `Disk::list`
    List,
    /// `Disk::free_bytes`; its path is empty
    FreeBytes,
    /// `Disk::lock`
    Lock,
}

impl OpKind {
    /// Whether it changes the disk or what is durable; only these are counted by `FaultDisk::ops`.
    #[must_use]
    pub fn mutates(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::Len | Self::List | Self::FreeBytes | Self::Lock)
    }
}

/// The operations that a fault meets: a kind, a part of the path, and which of the operations that fit both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    /// The kind, or any.
    pub op: Option<OpKind>,
    /// A part of the path; empty fits every path.
    pub path: String,
    /// Counted from 1, beginning when the rule is set.
    pub nth: u64,
}

impl Matcher {
    /// The next operation of this kind.
    #[must_use]
    pub fn op(op: OpKind) -> Self {
        Self { op: Some(op), ..Self::any() }
    }

    /// The next operation of any kind.
    #[must_use]
    pub fn any() -> Self {
        Self { op: None, path: String::new(), nth: 1 }
    }

    /// Only on paths that contain this.
    #[must_use]
    pub fn path(mut self, part: &str) -> Self {
        part.clone_into(&mut self.path);
        self
    }

    /// The n-th that fits, counted from 1.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.nth = nth;
        self
    }

    fn fits(&self, op: OpKind, path: &str) -> bool {
        self.op.is_none_or(|wanted| wanted == op) && path.contains(&self.path)
    }
}

/// What a failing operation returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFailure {
    /// An operating system error number, such as [`DiskFailure::EIO`].
    Errno(i32),
    /// An error without a number.
    Kind(io::ErrorKind),
}

impl DiskFailure {
    /// The device failed.
    pub const EIO: Self = Self::Errno(5);
    /// No space left on the device, or no inodes.
    pub const ENOSPC: Self = Self::Errno(28);
    /// The quota is used up.
    pub const EDQUOT: Self = Self::Errno(122);
    /// The process has no descriptor left.
    pub const EMFILE: Self = Self::Errno(24);
    /// The system has no descriptor left.
    pub const ENFILE: Self = Self::Errno(23);

    pub(super) fn error(self) -> io::Error {
        match self {
            Self::Errno(number) => io::Error::from_raw_os_error(number),
            Self::Kind(kind) => kind.into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultEffect {
    Fail(DiskFailure),
    /// A write that accepts this many bytes.
    Short(u64),
    /// A sync of bytes that does nothing and says it did.
    LieAboutBytes,
    /// A sync of names that does nothing and says it did.
    LieAboutNames,
}

impl FaultEffect {
    fn suits(self, op: OpKind) -> bool {
        match self {
            Self::Fail(_) => true,
            Self::Short(_) => op == OpKind::Write,
            Self::LieAboutBytes => op == OpKind::Sync,
            Self::LieAboutNames => op == OpKind::SyncDir,
        }
    }

    fn is_lie(self) -> bool {
        matches!(self, Self::LieAboutBytes | Self::LieAboutNames)
    }
}

#[derive(Debug, Clone)]
struct FaultRule {
    matcher: Matcher,
    met: u64,
    /// Goes on after the n-th.
    lasting: bool,
    effect: FaultEffect,
}

impl FaultRule {
    /// Counts one operation that fits and says whether the rule is due.
    fn count(&mut self) -> bool {
        self.met += 1;
        self.met == self.matcher.nth || (self.lasting && self.met > self.matcher.nth)
    }
}

/// The faults that wait for their operation.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    rules: Vec<FaultRule>,
    short_writes: Option<(SeededRng, u64)>,
}

impl Rules {
    pub(super) fn add(&mut self, matcher: Matcher, effect: FaultEffect, lasting: bool) {
        self.rules.push(FaultRule { matcher, met: 0, lasting, effect });
    }

    pub(super) fn shorten(&mut self, seed: u64, percent: u64) {
        self.short_writes = (percent > 0).then(|| (SeededRng::new(seed), percent));
    }

    /// The faults that remain after a restart: lies of the device; all other faults are gone.
    pub(super) fn lies_only(&self) -> Self {
        Self {
            rules: self.rules.iter().filter(|rule| rule.effect.is_lie()).cloned().collect(),
            short_writes: None,
        }
    }

    /// Counts this operation in the rules it fits, up to and including the one that is due and so decides.
    pub(super) fn meet(&mut self, op: OpKind, path: &str, len: u64) -> Option<FaultEffect> {
        let mut due = None;
        self.rules.retain_mut(|rule| {
            if due.is_some() || !rule.effect.suits(op) || !rule.matcher.fits(op, path) || !rule.count() {
                return true;
            }
            due = Some(rule.effect);
            rule.lasting
        });
        due.or_else(|| self.chance_short(op, len))
    }

    /// The lies a sync of everything tells: it covers many paths, so each of them is asked about afterwards.
    pub(super) fn lies_of_sync_all(&mut self) -> Vec<(FaultEffect, String)> {
        let lies = self.rules.iter_mut().filter(|rule| rule.effect.is_lie());
        let lies = lies.filter(|rule| rule.matcher.op.is_none_or(|op| op == OpKind::SyncAll));
        lies.filter_map(|rule| rule.count().then(|| (rule.effect, rule.matcher.path.clone()))).collect()
    }

    fn chance_short(&mut self, op: OpKind, len: u64) -> Option<FaultEffect> {
        let (rng, percent) = self.short_writes.as_mut().filter(|_| op == OpKind::Write && len > 1)?;
        rng.chance(*percent).then(|| FaultEffect::Short(rng.range(1..len)))
    }
}

/// The operation at which the power goes, and the dice for how far it gets.
#[derive(Debug, Clone)]
pub(super) struct StopFault {
    pub(super) at: u64,
    pub(super) rng: SeededRng,
}
