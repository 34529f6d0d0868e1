//! Writes Rust, formatted as `rustfmt` does.

use std::collections::BTreeSet;

use serde_json::Value;

use super::model::{ItemId, ItemKind, Object, TopicTypes, Type, TypeField, TypeItem, TypeModel};
use super::names::{TypeNames, pascal, snake, upper, words};
use super::text::{json_escaped, shown};

const LINE_MAX: usize = 100;
/// Longest text between the brackets of an attribute that `rustfmt` leaves on one line.
const ATTRIBUTE_MAX: usize = 70;
const DERIVE: &str = "#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]";
const UNION_NOTE: &str = "Several types fit, so this is any JSON value; its schema tells which do.";
/// Keywords of every edition. Those of `NEVER_RAW` cannot be escaped with `r#`.
const KEYWORDS: &str = " abstract as async await become box break const continue do dyn else enum extern false final \
                        fn for gen if impl in let loop macro match mod move mut override priv pub ref return static \
                        struct trait true try type typeof unsafe unsized use virtual where while yield ";
const NEVER_RAW: [&str; 5] = ["self", "super", "crate", "Self", "_"];

pub(super) fn write(model: &TypeModel, head: &str) -> String {
    let reach = Reach::of(model);
    let mut body = String::new();
    for (index, item) in model.items.iter().enumerate() {
        body.push('\n');
        RustWriter { model, reach: &reach, id: ItemId(index), out: &mut body }.item(item);
    }
    let mut out = format!("// {head}\n");
    if body.contains("BTreeMap<") {
        out.push_str("\nuse std::collections::BTreeMap;\n");
    }
    if body.contains(DERIVE) {
        out.push_str("\nuse serde::{Deserialize, Serialize};\n");
    }
    out.push_str(&body);
    let mut names = TypeNames::empty();
    let constants: Vec<String> = model.topics.iter().map(|topic| names.take(&upper(&topic.words))).collect();
    let all = || constants.iter().zip(&model.topics);
    module(&mut out, "topics", "The names of topics.", all(), |topic| ("&str", literal(topic.name.as_str())));
    module(&mut out, "versions", "The versions of schemas that the types are made from.", all(), |topic| {
        ("u32", topic.version.to_string())
    });
    let doc = "The JSON Schemas themselves, for any validator.";
    module(&mut out, "schemas", doc, all(), |topic| ("&str", raw(&topic.schema)));
    out
}

fn module<'a>(
    out: &mut String,
    name: &str,
    doc: &str,
    all: impl Iterator<Item = (&'a String, &'a TopicTypes)>,
    value: impl Fn(&TopicTypes) -> (&'static str, String),
) {
    out.push_str(&format!("\n/// {doc}\npub mod {name} {{\n"));
    let mut between = "";
    for (constant, topic) in all {
        let (of, value) = value(topic);
        out.push_str(&format!("{between}    /// `{}`\n", topic.name));
        let begin = format!("    pub const {constant}: {of} =");
        // Of a text over several lines, only the first one counts.
        let fits = begin.len() + 2 + value.lines().next().unwrap_or_default().len() <= LINE_MAX;
        out.push_str(&format!("{begin}{}{value};\n", if fits { " " } else { "\n        " }));
        between = "\n";
    }
    if between.is_empty() {
        // `rustfmt` leaves an empty module on one line.
        out.truncate(out.trim_end().len());
    }
    out.push_str("}\n");
}

struct RustWriter<'a> {
    model: &'a TypeModel,
    reach: &'a Reach,
    /// The type that is being written.
    id: ItemId,
    out: &'a mut String,
}

impl RustWriter<'_> {
    fn item(&mut self, item: &TypeItem) {
        self.doc("", &item.doc);
        match &item.kind {
            ItemKind::Object(object) => self.object(&item.name, object),
            ItemKind::Words(listed) => self.words(&item.name, listed),
            ItemKind::Tagged { tag, branches } => self.tagged(&item.name, tag, branches),
            ItemKind::Alias(of) => {
                self.note("", of);
                let (begin, of) = (format!("pub type {} =", item.name), self.text(of, false));
                let fits = begin.len() + of.len() + 2 <= LINE_MAX;
                self.out.push_str(&format!("{begin}{}{of};\n", if fits { " " } else { "\n    " }));
            }
        }
    }

    fn object(&mut self, name: &str, object: &Object) {
        self.out.push_str(DERIVE);
        self.out.push('\n');
        if object.closed {
            self.out.push_str("#[serde(deny_unknown_fields)]\n");
        }
        if object.fields.is_empty() && object.others.is_none() {
            self.out.push_str(&format!("pub struct {name} {{}}\n"));
            return;
        }
        self.out.push_str(&format!("pub struct {name} {{\n"));
        let mut names = TypeNames::empty();
        for field in &object.fields {
            self.field(&mut names, field);
        }
        if let Some(others) = &object.others {
            self.out.push_str("    /// All other properties.\n    #[serde(flatten)]\n");
            let name = names.take("others");
            let of = Type::Map(Box::new(others.clone()));
            self.note("    ", &of);
            self.line(&name, &self.text(&of, false));
        }
        self.out.push_str("}\n");
    }

    fn field(&mut self, names: &mut TypeNames, field: &TypeField) {
        self.doc("    ", &field.doc);
        self.note("    ", &field.of);
        let name = names.take(&snake(&words(&field.name)));
        let name = match name.as_str() {
            word if NEVER_RAW.contains(&word) => names.take(&format!("{name}_")),
            word if KEYWORDS.contains(&format!(" {word} ")) => format!("r#{name}"),
            _ => name,
        };
        let mut attributes = Vec::new();
        if name.trim_start_matches("r#") != field.name {
            attributes.push(format!("rename = {}", literal(&field.name)));
        }
        let of = match (field.required, &field.of) {
            (false, of @ (Type::Any | Type::Null)) => Type::Maybe(Box::new(of.clone())),
            (false, of) => of.clone().maybe(),
            (true, of) => of.clone(),
        };
        if !field.required {
            attributes.push("skip_serializing_if = \"Option::is_none\"".to_owned());
        }
        self.attributes("    ", attributes);
        self.line(&name, &self.text(&of, true));
    }

    fn line(&mut self, name: &str, of: &str) {
        let begin = format!("    pub {name}:");
        let fits = begin.len() + of.len() + 2 <= LINE_MAX;
        self.out.push_str(&format!("{begin}{}{of},\n", if fits { " " } else { "\n        " }));
    }

    fn words(&mut self, name: &str, listed: &[String]) {
        self.out.push_str(&format!("{DERIVE}\npub enum {name} {{\n"));
        let mut names = TypeNames::empty();
        for word in listed {
            let variant = variant(&mut names, word);
            if variant != *word {
                self.attributes("    ", vec![format!("rename = {}", literal(word))]);
            }
            self.out.push_str(&format!("    {variant},\n"));
        }
        self.out.push_str("}\n");
    }

    fn tagged(&mut self, name: &str, tag: &str, branches: &[(String, ItemId)]) {
        self.out.push_str(&format!("{DERIVE}\n"));
        self.attributes("", vec![format!("tag = {}", literal(tag))]);
        self.out.push_str(&format!("pub enum {name} {{\n"));
        let mut names = TypeNames::empty();
        for (word, id) in branches {
            let variant = variant(&mut names, word);
            if variant != *word {
                self.attributes("    ", vec![format!("rename = {}", literal(word))]);
            }
            self.out.push_str(&format!("    {variant}({}),\n", self.model.name(*id)));
        }
        self.out.push_str("}\n");
    }

    /// Writes attributes, on one line if `rustfmt` leaves them there.
    fn attributes(&mut self, indent: &str, attributes: Vec<String>) {
        let together = attributes.join(", ");
        let lines = if together.len() <= ATTRIBUTE_MAX { vec![together] } else { attributes };
        for line in lines.iter().filter(|line| !line.is_empty()) {
            if line.len() <= ATTRIBUTE_MAX {
                self.out.push_str(&format!("{indent}#[serde({line})]\n"));
            } else {
                self.out.push_str(&format!("{indent}#[serde(\n{indent}    {line}\n{indent})]\n"));
            }
        }
    }

    fn doc(&mut self, indent: &str, lines: &[String]) {
        for line in lines {
            let mut line = shown(line);
            for char in ["[", "]", "<", ">"] {
                // Escaped, so that rustdoc takes it neither for a link nor for a tag.
                line = line.replace(char, &format!("\\{char}"));
            }
            let space = if line.is_empty() { "" } else { " " };
            self.out.push_str(&format!("{indent}///{space}{line}\n"));
        }
    }

    fn note(&mut self, indent: &str, of: &Type) {
        let note = match of {
            of if of.has_union() => UNION_NOTE,
            Type::Never => "Nothing fits here.",
            Type::Only(value) if value.is_object() || value.is_array() => {
                "One value fits; its schema has it."
            }
            Type::Only(value) => &format!("Always `{value}`."),
            _ => return,
        };
        self.out.push_str(&format!("{indent}/// {note}\n"));
    }

    /// The text of a type; `direct` says that it is held in the memory of the type that is being written.
    fn text(&self, of: &Type, direct: bool) -> String {
        match of {
            Type::Null => "()".to_owned(),
            Type::Bool => "bool".to_owned(),
            Type::Integer { negative: true } => "i64".to_owned(),
            Type::Integer { negative: false } => "u64".to_owned(),
            Type::Number => "f64".to_owned(),
            Type::Text => "String".to_owned(),
            Type::List(of) => format!("Vec<{}>", self.text(of, false)),
            Type::Map(of) => format!("BTreeMap<String, {}>", self.text(of, false)),
            Type::Maybe(of) => format!("Option<{}>", self.text(of, direct)),
            Type::Named(id) if direct && self.reach.holds(*id, self.id) => {
                format!("Box<{}>", self.model.name(*id))
            }
            Type::Named(id) => self.model.name(*id),
            Type::Only(Value::Bool(_)) => "bool".to_owned(),
            Type::Only(Value::Number(number)) if number.is_u64() => "u64".to_owned(),
            Type::Only(Value::Number(number)) if number.is_i64() => "i64".to_owned(),
            Type::Only(Value::Number(_)) => "f64".to_owned(),
            Type::Any | Type::Never | Type::Only(_) | Type::Union(_) => "serde_json::Value".to_owned(),
        }
    }
}

fn variant(names: &mut TypeNames, word: &str) -> String {
    match pascal(&words(word)).as_str() {
        // The only name in this case that is a keyword.
        "Self" => names.take("Itself"),
        name => names.take(name),
    }
}

/// A string literal in ASCII.
fn literal(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            ' '..='~' => quoted.push(char),
            _ => quoted.extend(char.escape_unicode()),
        }
    }
    quoted.push('"');
    quoted
}

/// JSON as a raw string literal, with as many `#` as it needs.
fn raw(json: &str) -> String {
    let json = json_escaped(json);
    let mut fence = String::from("#");
    while json.contains(&format!("\"{fence}")) {
        fence.push('#');
    }
    format!("r{fence}\"{json}\"{fence}")
}

/// For each type, the types it holds in its own memory, at any depth. A type that holds itself needs a `Box`.
#[derive(Debug)]
struct Reach(Vec<BTreeSet<ItemId>>);

impl Reach {
    fn of(model: &TypeModel) -> Self {
        let direct: Vec<BTreeSet<ItemId>> = model.items.iter().map(|item| held(&item.kind)).collect();
        let nothing = BTreeSet::new();
        let reach = |start: &BTreeSet<ItemId>| {
            let mut found = BTreeSet::new();
            let mut next: Vec<ItemId> = start.iter().copied().collect();
            while let Some(id) = next.pop() {
                if found.insert(id) {
                    next.extend(direct.get(id.0).unwrap_or(&nothing));
                }
            }
            found
        };
        Self(direct.iter().map(reach).collect())
    }

    /// Whether `from` holds `to`.
    fn holds(&self, from: ItemId, to: ItemId) -> bool {
        self.0.get(from.0).is_some_and(|found| found.contains(&to))
    }
}

fn held(kind: &ItemKind) -> BTreeSet<ItemId> {
    match kind {
        ItemKind::Object(object) => object.fields.iter().filter_map(|field| direct(&field.of)).collect(),
        ItemKind::Tagged { branches, .. } => branches.iter().map(|(_, id)| *id).collect(),
        ItemKind::Alias(of) => direct(of).into_iter().collect(),
        ItemKind::Words(_) => BTreeSet::new(),
    }
}

/// The type that is held in place; lists and maps hold theirs on the heap.
fn direct(of: &Type) -> Option<ItemId> {
    match of {
        Type::Named(id) => Some(*id),
        Type::Maybe(of) => direct(of),
        _ => None,
    }
}
