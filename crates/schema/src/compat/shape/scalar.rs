//! Numbers and strings of a shape.

use serde_json::Value;

use super::{SchemaPair, ValueShape};
use crate::compat::number::{ExactNumber, RangeEnd};
use crate::compat::types::TypeSet;

/// Whole numbers between two bounds that are listed one by one, at most.
const COUNTED_MAX: i128 = 64;

impl<'a> ValueShape<'a> {
    /// Whether its numbers are whole.
    pub(crate) fn is_whole(&self) -> bool {
        !self.types.meets(TypeSet::FRACTION)
    }

    /// The tightest low end.
    pub(crate) fn low(&self) -> Option<RangeEnd> {
        let ends = self.ends("minimum", "exclusiveMinimum");
        ends.into_iter().reduce(|one, two| if one.low_implies(two, false) { one } else { two })
    }

    /// The tightest high end.
    pub(crate) fn high(&self) -> Option<RangeEnd> {
        let ends = self.ends("maximum", "exclusiveMaximum");
        ends.into_iter().reduce(|one, two| if one.high_implies(two, false) { one } else { two })
    }

    fn ends(&self, inclusive: &str, exclusive: &str) -> Vec<RangeEnd> {
        let mut ends = Vec::new();
        for (keyword, exclusive) in [(inclusive, false), (exclusive, true)] {
            ends.extend(
                self.all(keyword).filter_map(ExactNumber::of_value).map(|at| RangeEnd { at, exclusive }),
            );
        }
        ends
    }

    /// The steps that its numbers are multiples of.
    pub(crate) fn steps(&self) -> Vec<ExactNumber> {
        let whole = self.is_whole().then_some(ExactNumber::Whole(1));
        self.all("multipleOf").filter_map(ExactNumber::of_value).chain(whole).collect()
    }

    /// All values, if the shape has only types with few values.
    pub(super) fn counted(&self) -> Option<Vec<Value>> {
        if !self.types.within(TypeSet::of_keyword(Some(&serde_json::json!(["null", "boolean", "integer"])))) {
            return None;
        }
        let mut values = Vec::new();
        if self.types.meets(TypeSet::NULL) {
            values.push(Value::Null);
        }
        if self.types.meets(TypeSet::BOOLEAN) {
            values.extend([Value::Bool(false), Value::Bool(true)]);
        }
        if self.types.meets(TypeSet::INTEGER) {
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

    /// The largest value of a keyword such as `minLength`.
    pub(crate) fn at_least(&self, keyword: &str) -> u64 {
        self.parts.iter().filter_map(|part| part.count(keyword)).max().unwrap_or(0)
    }

    /// The smallest value of a keyword such as `maxLength`.
    pub(crate) fn at_most(&self, keyword: &str) -> Option<u64> {
        self.parts.iter().filter_map(|part| part.count(keyword)).min()
    }

    /// Whether a part has that text under a keyword.
    pub(crate) fn says(&self, keyword: &str, text: &str) -> bool {
        self.all(keyword).any(|value| value.as_str() == Some(text))
    }

    /// Whether its strings are of a format, by the rules of a draft.
    pub(crate) fn has_format(&self, docs: &SchemaPair<'a>, name: &str, draft: jsonschema::Draft) -> bool {
        let same = |part: &super::SchemaNode<'a>| {
            part.get("format").and_then(Value::as_str) == Some(name) && docs.of(part.side).draft() == draft
        };
        // The formats that both drafts know are the same in both.
        let known = |part: &super::SchemaNode<'a>| {
            part.get("format").and_then(Value::as_str) == Some(name) && docs.of(part.side).knows_format(name)
        };
        self.parts.iter().any(|part| same(part) || known(part))
    }
}
