//! The checks of objects.

use serde_json::Value;

use super::findings::ProofFailure;
use super::proof::{Prover, through_name};
use crate::compat::example::{self, InstanceFrame, InstanceStep};
use crate::compat::node::{Conjunction, SchemaNode};
use crate::compat::report::CompatRule;
use crate::compat::shape::{ValueShape, additional, dependent_names, dependent_schemas, flatten};
use crate::compat::types::TypeSet;

impl<'a> Prover<'_, 'a> {
    pub(super) fn objects(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>, hops: usize) -> bool {
        let shape = &shape.only(TypeSet::OBJECT);
        if shape.types.is_empty() {
            return true;
        }
        let mut proved = true;
        for check in [
            Self::required,
            Self::property_count,
            Self::properties,
            Self::pattern_properties,
            Self::additional_properties,
            Self::property_names,
            Self::dependent_required,
            Self::unevaluated_properties,
        ] {
            if !proved && self.quiet > 0 {
                return false;
            }
            proved &= check(self, shape, reads);
        }
        proved && self.dependent_schemas(shape, reads, hops)
    }

    fn required(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>) -> bool {
        let own = shape.required(self.docs);
        let asked =
            reads.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let missing: Vec<&str> = asked.filter(|name| !own.contains(name)).collect();
        let writes = Some(Value::from(own.iter().copied().collect::<Vec<_>>()));
        let mut proved = true;
        for name in missing {
            // The path of the finding ends at the keyword, so the subject names the property.
            let without = ValueShape { absent: [name.to_owned()].into(), ..shape.clone() };
            let fail = ProofFailure {
                rule: CompatRule::RequiredAdded,
                node: reads,
                at: &["required"],
                writes: writes.clone(),
                tries: Vec::new(),
            };
            self.subject = Some(name.to_owned());
            proved &= self.fail(fail, &without);
        }
        proved
    }

    fn property_count(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>) -> bool {
        let mut proved = true;
        for (keyword, implied) in [
            (
                "minProperties",
                reads.count("minProperties").is_none_or(|asked| shape.properties_min(self.docs) >= asked),
            ),
            (
                "maxProperties",
                reads.count("maxProperties").is_none_or(|asked| shape.properties_max(self.docs) <= asked),
            ),
        ] {
            if !implied {
                let asked = reads.count(keyword).unwrap_or(0);
                let tries = example::objects_of_size(self.docs, shape, asked, keyword == "maxProperties");
                let writes = shape.all(keyword).next().cloned();
                let fail = ProofFailure {
                    rule: CompatRule::PropertyCountTightened,
                    node: reads,
                    at: &[keyword],
                    writes,
                    tries,
                };
                proved &= self.fail(fail, shape);
            }
        }
        proved
    }

    fn properties(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>) -> bool {
        let mut proved = true;
        for name in reads.names("properties") {
            let Some(asked) = reads.entry("properties", name) else { continue };
            let own = shape.property(self.docs, name);
            proved &= self.one_property(shape, &own, name, name, &asked);
            if !proved && self.quiet > 0 {
                return false;
            }
        }
        proved
    }

    /// Checks one property. With `*` as `shown`, it stands for many.
    fn one_property(
        &mut self,
        shape: &ValueShape<'a>,
        own: &Conjunction<'a>,
        name: &str,
        shown: &str,
        asked: &SchemaNode<'a>,
    ) -> bool {
        let added = shown != "*" && own.is_anything() && !says_anything_of(shape, name);
        if !added || self.quiet > 0 {
            return self.below(through_name(shape, name, shown), own, asked);
        }
        if self.quietly(|prover| prover.below(through_name(shape, name, shown), own, asked)) {
            return true;
        }
        // The schema that reads declares a property that the open object which writes does not declare.
        self.frames.push(through_name(shape, name, shown));
        let anything = ValueShape::new(TypeSet::ALL, None);
        let tries = example::anything_but(self.docs, asked);
        self.subject = Some(name.to_owned());
        let fail = ProofFailure {
            rule: CompatRule::PropertyAddedToOpenObject,
            node: asked,
            at: &[],
            writes: None,
            tries,
        };
        self.fail(fail, &anything);
        self.frames.pop();
        false
    }

    fn pattern_properties(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>) -> bool {
        let mut proved = true;
        for pattern in reads.names("patternProperties") {
            let Some(asked) = reads.entry("patternProperties", pattern) else { continue };
            let named: Vec<String> = shape.named(self.docs).into_iter().map(str::to_owned).collect();
            for name in named {
                let matches = self.docs.of(reads.side).matches(pattern, &name);
                if matches != Some(false) {
                    let own = shape.property(self.docs, &name);
                    proved &= self.one_property(shape, &own, &name, &name, &asked);
                }
            }
            for other in shape.others(self.docs, Some(pattern)) {
                let name = example::name_like(self.docs, shape, Some(pattern));
                proved &= self.one_property(shape, &other.all, &name, "*", &asked);
            }
            if !proved && self.quiet > 0 {
                return false;
            }
        }
        proved
    }

    fn additional_properties(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>) -> bool {
        let Some(asked) = additional(self.docs, reads) else { return true };
        let mut proved = true;
        let named: Vec<String> = shape.named(self.docs).into_iter().map(str::to_owned).collect();
        for name in named {
            let listed = reads.entry("properties", &name).is_some();
            // A pattern that cannot be compiled is taken for one that does not match, so the property is
            // checked here too.
            let mut patterns = reads.names("patternProperties");
            if listed
                || patterns.any(|pattern| self.docs.of(reads.side).matches(pattern, &name) == Some(true))
            {
                continue;
            }
            let own = shape.property(self.docs, &name);
            if own.is_nothing() {
                continue;
            }
            proved &= if asked.schema == &Value::Bool(false) {
                self.refused(shape, &own, &name, &name, &asked, CompatRule::PropertyRemovedFromClosedObject)
            } else {
                self.one_property(shape, &own, &name, &name, &asked)
            };
            if !proved && self.quiet > 0 {
                return false;
            }
        }
        for other in shape.others(self.docs, None) {
            let covered = other.pattern.is_some_and(|own| reads.entry("patternProperties", own).is_some());
            if covered {
                continue;
            }
            let name = example::name_like(self.docs, shape, other.pattern);
            proved &= if asked.schema == &Value::Bool(false) {
                self.refused(shape, &other.all, &name, "*", &asked, CompatRule::AdditionalClosed)
            } else {
                self.one_property(shape, &other.all, &name, "*", &asked)
            };
        }
        proved
    }

    /// Reports a property that the schema that reads does not allow at all.
    fn refused(
        &mut self,
        shape: &ValueShape<'a>,
        own: &Conjunction<'a>,
        name: &str,
        shown: &str,
        at: &SchemaNode<'a>,
        rule: CompatRule,
    ) -> bool {
        let shapes = flatten(self.docs, own);
        let Some(value) = shapes.iter().find(|shape| !self.is_empty(shape)).cloned() else { return true };
        self.frames.push(through_name(shape, name, shown));
        if shown != "*" {
            self.subject = Some(name.to_owned());
        }
        self.fail(ProofFailure { rule, node: at, at: &[], writes: None, tries: Vec::new() }, &value);
        self.frames.pop();
        false
    }

    fn property_names(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>) -> bool {
        let Some(asked) = reads.child("propertyNames") else { return true };
        let mut proved = true;
        let names = shape.named(self.docs);
        let possible = names.into_iter().filter(|name| !shape.property(self.docs, name).is_nothing());
        let refused = possible.filter(|name| self.docs.accepts(&asked, &Value::from(*name)) != Some(true));
        let refused: Vec<String> = refused.map(str::to_owned).collect();
        for name in refused {
            self.frames.push(through_name(shape, &name, &name));
            let value = flatten(self.docs, &shape.property(self.docs, &name)).into_iter().next();
            let value = value.unwrap_or_else(|| ValueShape::new(TypeSet::ALL, None));
            self.subject = Some(name);
            let fail = ProofFailure {
                rule: CompatRule::PropertyNamesNarrowed,
                node: &asked,
                at: &[],
                writes: None,
                tries: Vec::new(),
            };
            proved &= self.fail(fail, &value);
            self.frames.pop();
        }
        if shape.others(self.docs, None).is_empty() {
            return proved;
        }
        let own = shape.parts.iter().filter_map(|part| part.child("propertyNames")).collect();
        let own = Conjunction { types: TypeSet::STRING, ..Conjunction::of(own) };
        let frame = InstanceFrame { shape: shape.clone(), step: InstanceStep::Key, shown: "/*".into() };
        self.below(frame, &own, &asked) && proved
    }

    fn dependent_required(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>) -> bool {
        let mut proved = true;
        for (keyword, name, asked) in dependent_names(self.docs, reads) {
            if shape.property(self.docs, name).is_nothing() {
                continue;
            }
            let mut with = shape.clone();
            with.present.insert(name.to_owned());
            let own = with.required(self.docs);
            if let Some(missing) = asked.into_iter().find(|asked| !own.contains(asked)) {
                let mut without = with.clone();
                without.absent.insert(missing.to_owned());
                let at = &[keyword, name];
                let fail = ProofFailure {
                    rule: CompatRule::DependencyAdded,
                    node: reads,
                    at,
                    writes: None,
                    tries: Vec::new(),
                };
                proved &= self.is_empty(&with) || self.fail(fail, &without);
            }
        }
        proved
    }

    fn dependent_schemas(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>, hops: usize) -> bool {
        let mut proved = true;
        for (name, asked) in dependent_schemas(self.docs, reads) {
            if shape.property(self.docs, name).is_nothing() {
                continue;
            }
            let mut with = shape.clone();
            with.present.insert(name.to_owned());
            proved &= self.is_empty(&with) || self.node(&with, &asked, hops + 1);
        }
        proved
    }

    fn unevaluated_properties(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>) -> bool {
        let asked = reads.child("unevaluatedProperties").filter(|asked| asked.schema != &Value::Bool(true));
        let Some(asked) = asked else { return true };
        let plain = additional(self.docs, reads).is_some_and(|additional| additional.at == asked.at);
        // Beside `additionalProperties` no property is left unevaluated.
        if plain || reads.get("additionalProperties").is_some() || self.docs.of(reads.side).is_draft_7() {
            return true;
        }
        let at = &["unevaluatedProperties"];
        self.fail(
            ProofFailure {
                rule: CompatRule::UnsupportedKeyword,
                node: reads,
                at,
                writes: None,
                tries: Vec::new(),
            },
            shape,
        )
    }
}

/// Whether a shape mentions a property, even if only to allow any value.
fn says_anything_of(shape: &ValueShape<'_>, name: &str) -> bool {
    shape
        .parts
        .iter()
        .any(|part| part.entry("properties", name).is_some() || part.get("additionalProperties").is_some())
}
