//! The answer of a check: a verdict, with findings.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::{CompatDirection, Undeclared};

/// The answer of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was proved.
    Compatible,
    /// An instance was found that the one schema accepts and the other refuses.
    Incompatible,
    /// Neither a proof nor an instance was found.
    Undecidable,
}

impl Verdict {
    /// The worst of several; compatible if there is none.
    #[must_use]
    pub fn worst(verdicts: impl IntoIterator<Item = Self>) -> Self {
        verdicts.into_iter().fold(Self::Compatible, |worst, verdict| match (worst, verdict) {
            (Self::Incompatible, _) | (_, Self::Incompatible) => Self::Incompatible,
            (Self::Undecidable, _) | (_, Self::Undecidable) => Self::Undecidable,
            (Self::Compatible, Self::Compatible) => Self::Compatible,
        })
    }
}

/// The rule that a finding is about. The words are stable, and are said from the schema that writes an instance to the one
/// that reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words say it; docs/compatibility.md has a row for each")]
pub enum CompatRule {
    TypeNarrowed,
    EnumValueRemoved,
    ConstChanged,
    NothingAccepted,
    RequiredAdded,
    PropertyAddedToOpenObject,
    PropertyRemovedFromClosedObject,
    AdditionalClosed,
    AdditionalNarrowed,
    PropertyNamesNarrowed,
    PropertyCountTightened,
    DependencyAdded,
    BoundTightened,
    MultipleOfChanged,
    LengthTightened,
    PatternChanged,
    FormatAdded,
    ContentChanged,
    ItemsNarrowed,
    ItemCountTightened,
    UniqueItemsAdded,
    ContainsChanged,
    UnionMemberRemoved,
    UnionOverlap,
    NotAdded,
    ConditionChanged,
    ReferenceUnresolvable,
    UnsupportedKeyword,
    InvalidSchema,
    TooComplex,
}

impl CompatRule {
    /// The stable word.
    #[must_use]
    pub fn word(self) -> String {
        match serde_json::to_value(self) {
            Ok(Value::String(word)) => word,
            _ => String::new(),
        }
    }
}

/// One reason why schemas are not compatible, or why that could not be decided.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompatFinding {
    /// `incompatible` or `undecidable`.
    pub verdict: Verdict,
    /// The direction of the check.
    pub direction: CompatDirection,
    /// The rule.
    pub rule: CompatRule,
    /// Where the offending keyword is, as a JSON pointer into the schema that reads: the new one backward, the old
    /// one forward.
    pub path: String,
    /// Where in an instance, as a JSON pointer with `*` for any item or name.
    pub instance_path: String,
    /// What the old schema says there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// What the new schema says there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
    /// What to change so that it passes.
    pub fix: String,
    /// An instance that the one schema accepts and the other refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<Value>,
}

/// The answer of a check, with its reasons.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompatReport {
    /// The worst of the findings; compatible when there is none.
    pub verdict: Verdict,
    /// The reasons; empty when compatible.
    pub findings: Vec<CompatFinding>,
}

impl CompatReport {
    pub(super) fn of(mut findings: Vec<CompatFinding>) -> Self {
        findings.sort_by_key(|finding| finding.verdict != Verdict::Incompatible);
        let verdict = findings.first().map_or(Verdict::Compatible, |finding| finding.verdict);
        Self { verdict, findings }
    }
}

/// Characters of a value that a line shows, at most.
const SHOWN_MAX: usize = 160;

impl fmt::Display for CompatFinding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() { "the schema" } else { &self.path };
        let verdict = if self.verdict == Verdict::Incompatible { "incompatible" } else { "undecidable" };
        write!(out, "{verdict} at {place}: {}", self.rule.word())?;
        if self.old.is_some() || self.new.is_some() {
            write!(out, " ({} -> {})", shown(self.old.as_ref()), shown(self.new.as_ref()))?;
        }
        write!(out, ". {}", self.fix)?;
        if let Some(example) = &self.example {
            let (accepts, refuses) = self.direction.sides();
            write!(
                out,
                "\n  the {accepts} schema accepts and the {refuses} one refuses: {}",
                shown(Some(example))
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for CompatReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.findings.is_empty() {
            return out.write_str("compatible");
        }
        for (index, finding) in self.findings.iter().enumerate() {
            if index > 0 {
                out.write_str("\n")?;
            }
            finding.fmt(out)?;
        }
        Ok(())
    }
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".into() };
    let text = value.to_string();
    if text.chars().count() <= SHOWN_MAX {
        return text;
    }
    text.chars().take(SHOWN_MAX).chain("...".chars()).collect()
}

/// One sentence on what to change. `name` is the property, word or keyword that it is about.
pub(super) fn fix(
    rule: CompatRule,
    direction: CompatDirection,
    undeclared: Undeclared,
    name: &str,
) -> String {
    fix_object(rule, direction, undeclared, name)
        .or_else(|| fix_value(rule, direction))
        .unwrap_or_else(|| fix_unseen(rule, name))
}

/// Only the new schema can still be changed: backward it must accept more, forward it must allow less.
fn by(direction: CompatDirection, backward: &str, forward: &str) -> String {
    match direction {
        CompatDirection::Backward => backward.to_owned(),
        CompatDirection::Forward => forward.to_owned(),
    }
}

fn fix_value(rule: CompatRule, direction: CompatDirection) -> Option<String> {
    let (wider, narrower) = direction.sides();
    let by = |backward: &str, forward: &str| by(direction, backward, forward);
    Some(match rule {
        CompatRule::TypeNarrowed => by(
            "Keep every type of the old schema in the new one.",
            "Allow only types of the old schema in the new one.",
        ),
        CompatRule::EnumValueRemoved => {
            by("Keep every value of the old schema.", "Add no value that the old schema does not know.")
        }
        CompatRule::ConstChanged => {
            by("Keep the old constant, or list both in an enum.", "Keep the old constant.")
        }
        CompatRule::NothingAccepted => {
            format!("The {narrower} schema accepts nothing here: let it accept what the {wider} one does.")
        }
        CompatRule::BoundTightened => {
            by("Loosen the bound to the old one.", "Keep the bound at least as tight as the old one.")
        }
        CompatRule::MultipleOfChanged => {
            by("Use a divisor of the old step, or none.", "Use a multiple of the old step.")
        }
        CompatRule::LengthTightened => {
            by("Loosen the length to the old one.", "Keep the length at least as tight as the old one.")
        }
        CompatRule::PatternChanged => by("Keep the old pattern, or use none.", "Keep the old pattern."),
        CompatRule::FormatAdded => by("Keep the old format, or use none.", "Keep the old format."),
        CompatRule::ContentChanged => {
            by("Keep the old content keywords, or use none.", "Keep the old content keywords.")
        }
        CompatRule::ItemsNarrowed => {
            by("Let items be what they were.", "Let items be only what the old schema lets them.")
        }
        CompatRule::ItemCountTightened => {
            by("Loosen the number of items.", "Keep the number of items within the old limits.")
        }
        CompatRule::UniqueItemsAdded => by("Do not ask for unique items.", "Keep asking for unique items."),
        CompatRule::ContainsChanged => {
            by("Ask no more of contains than before.", "Ask as much of contains as the old schema.")
        }
        CompatRule::UnionMemberRemoved => by(
            "Keep a member of the union for everything that the old schema accepts.",
            "Add no member to the union that the old schema has none for.",
        ),
        CompatRule::UnionOverlap => format!(
            "An instance may match two members of the {narrower} schema's oneOf: use anyOf, or give each member a constant of its own."
        ),
        CompatRule::NotAdded => {
            by("Do not forbid what was allowed.", "Keep forbidding what the old schema forbids.")
        }
        CompatRule::ConditionChanged => by(
            "Keep if, then and else as they were, or ask for less.",
            "Keep if, then and else as they were, or ask for more.",
        ),
        _ => return None,
    })
}

fn fix_object(
    rule: CompatRule,
    direction: CompatDirection,
    undeclared: Undeclared,
    name: &str,
) -> Option<String> {
    let by = |backward: &str, forward: &str| by(direction, backward, forward);
    Some(match rule {
        CompatRule::RequiredAdded => by(
            &format!("Make {name} optional in the new schema; a default does not fill it in."),
            &format!("Keep {name} required in the new schema."),
        ),
        CompatRule::PropertyAddedToOpenObject if undeclared == Undeclared::Any => by(
            &format!(
                "The old object is open, so it may hold any {name}: close it with additionalProperties false in a version before this one, or set the topic's undeclared = \"absent\"."
            ),
            &format!(
                "The new object is open, so it may hold any {name}: keep {name} in it, close it with additionalProperties false, or set the topic's undeclared = \"absent\"."
            ),
        ),
        CompatRule::PropertyAddedToOpenObject => by(
            &format!("Let {name} accept every value, or declare it under the old schema's terms."),
            &format!("Keep {name} as the old schema has it."),
        ),
        CompatRule::PropertyRemovedFromClosedObject => by(
            &format!("Keep {name} in the new schema, or open the new object."),
            &format!("The old object is closed and does not know {name}: leave it out of the new schema."),
        ),
        CompatRule::AdditionalClosed => by(
            "Leave the new object open, or close the old one first; undeclared = \"absent\" on the topic says that nobody sends undeclared properties.",
            "Close the new object with additionalProperties false, as the old one is.",
        ),
        CompatRule::AdditionalNarrowed => by(
            "Let additional properties hold what they held.",
            "Let additional properties hold only what the old schema lets them.",
        ),
        CompatRule::PropertyNamesNarrowed => {
            by("Allow every name that was allowed.", "Allow only names that the old schema allows.")
        }
        CompatRule::PropertyCountTightened => {
            by("Loosen the number of properties.", "Keep the number of properties within the old limits.")
        }
        CompatRule::DependencyAdded => {
            by(&format!("Remove what {name} asks for."), &format!("Keep what {name} asks for."))
        }
        _ => return None,
    })
}

/// What to change where the check could not decide.
fn fix_unseen(rule: CompatRule, name: &str) -> String {
    match rule {
        CompatRule::ReferenceUnresolvable => format!("Point {name} at a part of the same document."),
        CompatRule::UnsupportedKeyword => format!("The check cannot see through {name}: keep it and its neighbours unchanged, or say the same with plain keywords."),
        CompatRule::TooComplex => "The schemas are too large or too entangled to compare within the limits: simplify unions and references here.".into(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::compat::check;

    #[test]
    fn a_finding_reads_as_a_sentence() {
        let old = json!({ "properties": { "id": { "type": "integer" } } });
        let new = json!({ "properties": { "id": { "type": "integer" } }, "required": ["id"] });
        let report = check(&old, &new, CompatDirection::Backward, Undeclared::Any);
        let text = report.to_string();
        assert!(
            text.starts_with(
                "incompatible at /required: required_added ([] -> [\"id\"]). Make `id` optional"
            ),
            "{text}"
        );
        assert!(text.contains("\n  the old schema accepts and the new one refuses: {}"), "{text}");
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!(value["verdict"], "incompatible");
        assert_eq!(value["findings"][0]["rule"], "required_added");
        assert_eq!(value["findings"][0]["direction"], "backward");
        let report = check(&new, &old, CompatDirection::Forward, Undeclared::Any);
        let text = report.to_string();
        assert!(text.contains("Keep `id` required in the new schema."), "{text}");
        assert!(text.contains("the new schema accepts and the old one refuses"), "{text}");
    }

    #[test]
    fn compatible_is_one_word() {
        assert_eq!(CompatReport::of(Vec::new()).to_string(), "compatible");
    }
}
