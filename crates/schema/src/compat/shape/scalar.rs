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
        ends.extend(self.all("not").filter_map(|denied| denied_end(denied, inclusive)));
        ends
    }

    /// The steps that its numbers are multiples of.
    pub(crate) fn steps(&self) -> Vec<ExactNumber> {
        let whole = self.is_whole().then_some(ExactNumber::Whole(1));
        self.all("multipleOf").filter_map(ExactNumber::of_value).chain(whole).collect()
    }

    /// All values, if the shape has only types with few values.
    pub(super) fn counted(&self, docs: &SchemaPair<'a>) -> Option<Vec<Value>> {
        let mut values = Vec::new();
        if self.types.meets(TypeSet::FRACTION) {
            return None;
        }
        if self.types.meets(TypeSet::STRING) {
            (self.at_most("maxLength")? == 0).then(|| values.push("".into()))?;
        }
        if self.types.meets(TypeSet::ARRAY) {
            (self.items_max(docs) == 0).then(|| values.push(Value::Array(Vec::new())))?;
        }
        if self.types.meets(TypeSet::OBJECT) {
            self.has_no_properties().then(|| values.push(Value::Object(serde_json::Map::new())))?;
        }
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

    /// Whether its only object is the empty one.
    fn has_no_properties(&self) -> bool {
        let names_none = |part: &super::SchemaNode<'a>, keyword: &str| {
            part.get(keyword).is_none_or(|names| names.as_object().is_some_and(serde_json::Map::is_empty))
        };
        self.at_most("maxProperties") == Some(0)
            || self.parts.iter().any(|part| {
                part.get("additionalProperties") == Some(&Value::Bool(false))
                    && names_none(part, "properties")
                    && names_none(part, "patternProperties")
            })
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

/// The end of a range that a `not` of one bound leaves: `{"minimum": 5}` leaves the numbers below 5.
fn denied_end(denied: &Value, inclusive: &str) -> Option<RangeEnd> {
    let mut keywords = denied.as_object()?.iter();
    let ((keyword, at), None) = (keywords.next()?, keywords.next()) else { return None };
    let exclusive = match (inclusive, keyword.as_str()) {
        ("maximum", "minimum") | ("minimum", "maximum") => true,
        ("maximum", "exclusiveMinimum") | ("minimum", "exclusiveMaximum") => false,
        _ => return None,
    };
    ExactNumber::of_value(at).map(|at| RangeEnd { at, exclusive })
}
