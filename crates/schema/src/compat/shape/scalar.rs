//! Numbers and strings of a shape.

use serde_json::Value;

use super::{Docs, Shape};
use crate::compat::number::{End, Exact};
use crate::compat::types::Types;

/// Whole numbers between two bounds that are listed one by one, at most.
const COUNTED_MAX: i128 = 64;

impl<'a> Shape<'a> {
    /// Whether its numbers are whole.
    pub(in super::super) fn is_whole(&self) -> bool {
        !self.types.meets(Types::FRACTION)
    }

    /// The tightest low end.
    pub(in super::super) fn low(&self) -> Option<End> {
        let ends = self.ends("minimum", "exclusiveMinimum");
        ends.into_iter().reduce(|one, two| if one.low_implies(two, false) { one } else { two })
    }

    /// The tightest high end.
    pub(in super::super) fn high(&self) -> Option<End> {
        let ends = self.ends("maximum", "exclusiveMaximum");
        ends.into_iter().reduce(|one, two| if one.high_implies(two, false) { one } else { two })
    }

    fn ends(&self, inclusive: &str, exclusive: &str) -> Vec<End> {
        let mut ends = Vec::new();
        for (keyword, exclusive) in [(inclusive, false), (exclusive, true)] {
            ends.extend(self.all(keyword).filter_map(Exact::of_value).map(|at| End { at, exclusive }));
        }
        ends
    }

    /// What its numbers are multiples of.
    pub(in super::super) fn steps(&self) -> Vec<Exact> {
        let whole = self.is_whole().then_some(Exact::Whole(1));
        self.all("multipleOf").filter_map(Exact::of_value).chain(whole).collect()
    }

    /// The values of types that have few.
    pub(super) fn counted(&self) -> Option<Vec<Value>> {
        if !self.types.within(Types::of_keyword(Some(&serde_json::json!(["null", "boolean", "integer"])))) {
            return None;
        }
        let mut values = Vec::new();
        if self.types.meets(Types::NULL) {
            values.push(Value::Null);
        }
        if self.types.meets(Types::BOOLEAN) {
            values.extend([Value::Bool(false), Value::Bool(true)]);
        }
        if self.types.meets(Types::INTEGER) {
            let (first, last) = (self.low()?.first_whole()?, self.high()?.last_whole()?);
            if last.checked_sub(first)? >= COUNTED_MAX {
                return None;
            }
            for whole in first..=last {
                values.push(Value::from(i64::try_from(whole).ok()?));
            }
        }
        Some(values)
    }

    /// The largest of a counting keyword that asks for at least so many.
    pub(in super::super) fn at_least(&self, keyword: &str) -> u64 {
        self.parts.iter().filter_map(|part| part.count(keyword)).max().unwrap_or(0)
    }

    /// The smallest of a counting keyword that asks for at most so many.
    pub(in super::super) fn at_most(&self, keyword: &str) -> Option<u64> {
        self.parts.iter().filter_map(|part| part.count(keyword)).min()
    }

    /// Whether a part has that text under a keyword.
    pub(in super::super) fn says(&self, keyword: &str, text: &str) -> bool {
        self.all(keyword).any(|value| value.as_str() == Some(text))
    }

    /// Whether its strings are of a format, by the rules of a draft.
    pub(in super::super) fn has_format(&self, docs: &Docs<'a>, name: &str, draft: jsonschema::Draft) -> bool {
        let same = |part: &super::Node<'a>| {
            part.get("format").and_then(Value::as_str) == Some(name) && docs.of(part.side).draft() == draft
        };
        // The formats that both drafts know are the same in both.
        let known = |part: &super::Node<'a>| {
            part.get("format").and_then(Value::as_str) == Some(name) && docs.of(part.side).knows_format(name)
        };
        self.parts.iter().any(|part| same(part) || known(part))
    }
}
