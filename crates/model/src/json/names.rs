//! The names of open objects, to find a name that comes twice.

use std::borrow::Cow;

use super::{JsonError, JsonFault, fail};

/// Up to this many names are compared one by one, which is fastest; more names are sorted when the object
/// closes.
const COMPARED_MAX: usize = 8;

/// The names of all open objects by their position in the text, outermost object first. Takes no memory until
/// the first object.
#[derive(Default)]
pub(super) struct OpenNames {
    /// Before the names of each object is an entry that says where the names of the object around it begin.
    spans: Vec<NameSpan>,
    /// Where the names of the innermost object begin.
    start: usize,
}

/// The position of a name, without its quotes.
#[derive(Clone, Copy)]
struct NameSpan {
    from: usize,
    to: usize,
    escaped: bool,
}

impl OpenNames {
    #[inline(always)]
    pub(super) fn open(&mut self) {
        if self.spans.capacity() == 0 {
            self.spans.reserve(16);
        }
        self.spans.push(NameSpan { from: self.start, to: 0, escaped: false });
        self.start = self.spans.len();
    }

    /// Adds the name between two quotes; `from` is after the first, `to` is the second.
    #[inline(always)]
    pub(super) fn add(&mut self, text: &str, from: usize, to: usize) -> Result<(), JsonError> {
        let escaped = text.as_bytes().get(from..to).is_some_and(|name| name.contains(&b'\\'));
        let name = NameSpan { from, to, escaped };
        let before = self.spans.get(self.start..).unwrap_or_default();
        if before.len() <= COMPARED_MAX && before.iter().any(|other| other.is_same(&name, text)) {
            return fail(JsonFault::Twice, from - 1).map(drop);
        }
        self.spans.push(name);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn close(&mut self, text: &str) -> Result<(), JsonError> {
        let names = self.spans.get(self.start..).unwrap_or_default();
        // The name after the first `COMPARED_MAX` was compared with them too.
        if names.len() > COMPARED_MAX + 1 {
            check_sorted(names, text)?;
        }
        self.spans.truncate(self.start);
        self.start = self.spans.pop().map_or(0, |around| around.from);
        Ok(())
    }
}

impl NameSpan {
    #[inline(always)]
    fn is_same(&self, other: &Self, text: &str) -> bool {
        if self.escaped || other.escaped {
            return self.plain(text) == other.plain(text);
        }
        self.raw(text) == other.raw(text)
    }

    #[inline(always)]
    fn raw<'a>(&self, text: &'a str) -> &'a str {
        text.get(self.from..self.to).unwrap_or_default()
    }

    /// The name without escapes.
    #[cold]
    fn plain<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let raw = self.raw(text);
        if !self.escaped {
            return Cow::Borrowed(raw);
        }
        // The string was checked before, so it can be read.
        serde_json::from_str(&format!("\"{raw}\"")).map_or(Cow::Borrowed(raw), Cow::Owned)
    }
}

/// Refuses the first name that comes a second time.
#[inline(never)]
fn check_sorted(names: &[NameSpan], text: &str) -> Result<(), JsonError> {
    let mut sorted: Vec<(Cow<'_, str>, usize)> = Vec::with_capacity(names.len());
    sorted.extend(names.iter().map(|name| {
        let said = if name.escaped { name.plain(text) } else { Cow::Borrowed(name.raw(text)) };
        (said, name.from)
    }));
    sorted.sort_unstable();
    let pairs = sorted.iter().zip(sorted.iter().skip(1));
    let twice = pairs.filter(|((a, _), (b, _))| a == b).map(|(_, (_, from))| *from).min();
    twice.map_or(Ok(()), |from| fail(JsonFault::Twice, from - 1).map(drop))
}
