//! The scan of a whole document, before it is compared.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value};

use super::document::SchemaDocument;
use super::node::{SchemaNode, join};

/// Keywords that say nothing about which instances are accepted, in both drafts.
pub(super) const ANNOTATIONS: [&str; 14] = [
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$schema",
    "$id",
    "$anchor",
    "$defs",
    "definitions",
    "contentSchema",
];

pub(super) fn is_annotation(keyword: &str) -> bool {
    ANNOTATIONS.contains(&keyword)
}

/// Keywords whose value is data.
pub(super) const DATA: [&str; 4] = ["const", "enum", "default", "examples"];
/// Keywords whose value is a map from names to schemas.
pub(super) const MAPS: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Keywords whose value is a schema, or a list of schemas, about the same place of an instance.
const IN_PLACE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];

/// What the scan of a document found.
#[derive(Default)]
pub(super) struct DocumentScan<'a> {
    /// Anchors, and the pointers of their schemas.
    pub(super) anchors: HashMap<&'a str, String>,
    /// A keyword whose meaning depends on more than its place: (pointer of the schema it is in, keyword).
    pub(super) odd: Option<(String, String)>,
}

/// Collects anchors, and finds a keyword that keeps parts of the document from being looked at one by one.
pub(super) fn look_at(root: &Value) -> DocumentScan<'_> {
    let mut seen = DocumentScan::default();
    let mut open = vec![(Rc::<str>::from(""), root, false)];
    while let Some((at, value, names)) = open.pop() {
        match value {
            Value::Array(list) => {
                for (index, value) in list.iter().enumerate() {
                    open.push((join(&at, &[&format!("{index}")]), value, false));
                }
            }
            Value::Object(map) => {
                if !names {
                    note(&mut seen, &at, map);
                }
                for (key, value) in map {
                    if names || !DATA.contains(&key.as_str()) {
                        let below_names = !names && MAPS.contains(&key.as_str());
                        open.push((join(&at, &[key]), value, below_names));
                    }
                }
            }
            _ => {}
        }
    }
    seen
}

fn note<'a>(seen: &mut DocumentScan<'a>, at: &str, schema: &'a Map<String, Value>) {
    for keyword in ["$anchor", "$dynamicAnchor"] {
        if let Some(name) = schema.get(keyword).and_then(Value::as_str) {
            seen.anchors.insert(name, at.to_owned());
        }
    }
    let below_root = ["$id", "$schema"].into_iter().filter(|_| !at.is_empty());
    let odd = ["$dynamicRef", "$recursiveRef"]
        .into_iter()
        .chain(below_root)
        .find(|key| schema.get(*key).is_some_and(Value::is_string));
    if let Some(keyword) = odd {
        seen.odd.get_or_insert_with(|| (at.to_owned(), keyword.to_owned()));
    }
}

/// Finds a schema that refers to itself for the same place of an instance, which has no meaning.
pub(super) fn find_loop(doc: &SchemaDocument<'_>) -> Option<(String, String)> {
    let mut done = HashSet::new();
    let mut roots = vec![doc.root()];
    let mut known = HashSet::new();
    while let Some(root) = roots.pop() {
        if !known.insert(root.at.clone()) {
            continue;
        }
        roots.extend(below(&root));
        roots.extend(in_place(doc, &root));
        if let Some(at) = loop_from(doc, root, &mut done) {
            return Some((at.to_string(), "$ref".into()));
        }
    }
    None
}

fn loop_from<'a>(
    doc: &SchemaDocument<'a>,
    root: SchemaNode<'a>,
    done: &mut HashSet<Rc<str>>,
) -> Option<Rc<str>> {
    let mut path: Vec<(Rc<str>, Vec<SchemaNode<'a>>)> = Vec::new();
    let mut on_path = HashSet::new();
    let mut next = Some(root);
    loop {
        if let Some(node) = next.take() {
            if on_path.contains(&node.at) {
                return Some(node.at);
            }
            if !done.contains(&node.at) {
                on_path.insert(node.at.clone());
                path.push((node.at.clone(), in_place(doc, &node)));
            }
        }
        let (at, rest) = path.last_mut()?;
        next = rest.pop();
        if next.is_none() {
            on_path.remove(at);
            done.insert(at.clone());
            path.pop();
        }
    }
}

/// The schemas that a schema applies to the same place of an instance.
fn in_place<'a>(doc: &SchemaDocument<'a>, node: &SchemaNode<'a>) -> Vec<SchemaNode<'a>> {
    let Some(schema) = node.object() else { return Vec::new() };
    let target = doc.reference(schema).and_then(Result::ok);
    if target.is_some() && doc.is_draft_7() {
        return target.into_iter().collect();
    }
    let mut nodes: Vec<_> = target.into_iter().collect();
    for keyword in IN_PLACE {
        nodes.extend(node.child(keyword));
        nodes.extend(node.list(keyword));
    }
    for keyword in ["dependentSchemas", "dependencies"] {
        nodes.extend(node.names(keyword).filter_map(|name| node.entry(keyword, name)));
    }
    nodes
}

/// The schemas that a schema applies to places below.
fn below<'a>(node: &SchemaNode<'a>) -> Vec<SchemaNode<'a>> {
    let mut nodes = Vec::new();
    for keyword in ["properties", "patternProperties"] {
        nodes.extend(node.names(keyword).filter_map(|name| node.entry(keyword, name)));
    }
    for keyword in [
        "additionalProperties",
        "propertyNames",
        "items",
        "additionalItems",
        "contains",
        "unevaluatedItems",
        "unevaluatedProperties",
    ] {
        nodes.extend(node.child(keyword));
    }
    for keyword in ["items", "prefixItems"] {
        nodes.extend(node.list(keyword));
    }
    nodes
}
