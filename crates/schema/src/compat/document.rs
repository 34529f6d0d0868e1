//! One schema document: its draft, its references and its validators.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use jsonschema::{Draft, Registry};
use serde_json::{Map, Value};

use super::node::{DocumentSide, SchemaNode};
use super::types::TypeSet;
use super::{number, scan};
use crate::error::BadSchema;
use crate::validator::{self, Validator};

/// The address of a document in its own registry.
const ADDRESS: &str = "urn:promethean:compared";
/// Parts of one document that are compiled, at most. Beyond it the check decides less, and never wrongly.
const PARTS_MAX: u32 = 1_000;
/// Steps that checking one example may take. Beyond it the check decides less, and never wrongly.
pub(in crate::compat) const STEPS_MAX: u64 = 1_000_000;

/// One of the two documents.
pub(super) struct SchemaDocument<'a> {
    root: &'a Value,
    side: DocumentSide,
    draft: Draft,
    whole: Validator,
    registry: Registry<'a>,
    anchors: HashMap<&'a str, String>,
    parts: RefCell<HashMap<Rc<str>, Option<Rc<Validator>>>>,
    patterns: RefCell<HashMap<String, Option<Rc<jsonschema::Validator>>>>,
    compiled: Cell<u32>,
    /// A keyword that keeps parts of the document from being looked at one by one: (pointer of its schema,
    /// keyword).
    odd: Option<(String, String)>,
}

impl<'a> SchemaDocument<'a> {
    pub(super) fn new(root: &'a Value, side: DocumentSide) -> Result<Self, BadSchema> {
        let draft = validator::draft_of(root)?;
        let whole = validator::compile(root)?;
        let invalid = |error: jsonschema::ReferencingError| BadSchema::whole(error.to_string());
        let registry =
            Registry::new().draft(draft).add(ADDRESS, root).map_err(invalid)?.prepare().map_err(invalid)?;
        let mut doc = Self {
            root,
            side,
            draft,
            whole,
            registry,
            anchors: HashMap::new(),
            parts: RefCell::default(),
            patterns: RefCell::default(),
            compiled: Cell::new(0),
            odd: None,
        };
        let seen = scan::look_at(root);
        doc.anchors = seen.anchors;
        doc.odd = seen.odd;
        if doc.odd.is_none() {
            doc.odd = scan::find_loop(&doc);
        }
        Ok(doc)
    }

    pub(super) fn root(&self) -> SchemaNode<'a> {
        SchemaNode { side: self.side, at: "".into(), schema: self.root }
    }

    pub(super) fn draft(&self) -> Draft {
        self.draft
    }

    pub(super) fn is_draft_7(&self) -> bool {
        self.draft == Draft::Draft7
    }

    pub(super) fn odd(&self) -> Option<&(String, String)> {
        self.odd.as_ref()
    }

    /// The validator of the whole document.
    pub(super) fn whole(&self) -> &Validator {
        &self.whole
    }

    /// The target of a schema's `$ref`, or the reference itself if it has no target here. In draft 7 a `$ref`
    /// hides all other keywords of the schema.
    pub(super) fn reference(
        &self,
        schema: &'a Map<String, Value>,
    ) -> Option<Result<SchemaNode<'a>, &'a str>> {
        let reference = schema.get("$ref")?.as_str()?;
        Some(self.resolve(reference).ok_or(reference))
    }

    fn resolve(&self, reference: &str) -> Option<SchemaNode<'a>> {
        let own = self.root.get("$id").and_then(Value::as_str).map_or("", |id| id.trim_end_matches('#'));
        let rest = if own.is_empty() { reference } else { reference.strip_prefix(own).unwrap_or(reference) };
        let fragment = if rest.is_empty() && !reference.is_empty() { "" } else { rest.strip_prefix('#')? };
        let pointer = percent_decoded(fragment)?;
        let pointer = if pointer.is_empty() || pointer.starts_with('/') {
            pointer
        } else {
            self.anchors.get(pointer.as_str())?.clone()
        };
        let schema = self.root.pointer(&pointer)?;
        (schema.is_object() || schema.is_boolean()).then(|| SchemaNode {
            side: self.side,
            at: pointer.into(),
            schema,
        })
    }

    /// Whether a part of the document accepts a value; `None` if the part cannot be compiled, or cannot tell soon.
    pub(super) fn accepts(&self, node: &SchemaNode<'a>, value: &Value) -> Option<bool> {
        if node.at.is_empty() {
            return self.whole.fits(value, STEPS_MAX).ok();
        }
        if let Some(answer) = self.accepts_plainly(node, value) {
            return Some(answer);
        }
        let known = self.parts.borrow().get(&node.at).cloned();
        let part = known.unwrap_or_else(|| {
            let part = self
                .may_compile()
                .then(|| validator::compile_part(&self.registry, self.draft, ADDRESS, &node.at));
            let part = part.flatten().map(Rc::new);
            self.parts.borrow_mut().insert(node.at.clone(), part.clone());
            part
        });
        part.and_then(|part| part.fits(value, STEPS_MAX).ok())
    }

    /// Answers without a validator, for schemas with no keywords but `type`, `enum` and `const`.
    fn accepts_plainly(&self, node: &SchemaNode<'a>, value: &Value) -> Option<bool> {
        let schema = match node.schema {
            Value::Bool(answer) => return Some(*answer),
            Value::Object(schema) => schema,
            _ => return None,
        };
        let mut answer = true;
        for (keyword, said) in schema {
            match keyword.as_str() {
                "type" => answer &= TypeSet::of_value(value).within(TypeSet::of_keyword(Some(said))),
                "const" => answer &= number::equal(said, value),
                "enum" => {
                    answer &=
                        said.as_array().is_some_and(|all| all.iter().any(|one| number::equal(one, value)))
                }
                other if scan::is_annotation(other) => {}
                _ => return None,
            }
        }
        Some(answer)
    }

    /// Whether a pattern matches a text; `None` if the pattern cannot be compiled.
    pub(super) fn matches(&self, pattern: &str, text: &str) -> Option<bool> {
        let known = self.patterns.borrow().get(pattern).cloned();
        let compiled = known.unwrap_or_else(|| {
            let schema = serde_json::json!({ "pattern": pattern });
            let compiled = self.may_compile().then(|| validator::options(self.draft).build(&schema).ok());
            let compiled = compiled.flatten().map(Rc::new);
            self.patterns.borrow_mut().insert(pattern.to_owned(), compiled.clone());
            compiled
        });
        compiled.map(|compiled| compiled.is_valid(&Value::from(text)))
    }

    fn may_compile(&self) -> bool {
        self.compiled.set(self.compiled.get().saturating_add(1));
        self.compiled.get() <= PARTS_MAX
    }

    /// Whether this draft checks a format of that name.
    pub(super) fn knows_format(&self, name: &str) -> bool {
        validator::options(self.draft).is_known_format(self.draft, name)
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}
