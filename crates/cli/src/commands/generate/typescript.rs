//! Writes TypeScript: types, which compile to nothing, and constants.

use serde_json::Value;

use super::model::{ItemKind, Object, TopicTypes, Type, TypeItem, TypeModel};
use super::names::{TypeNames, camel};
use super::text::shown;

pub(super) fn write(model: &TypeModel, head: &str) -> String {
    let mut out = format!("// {head}\n");
    let mut names = TypeNames::empty();
    let constant = |topic: &TopicTypes| names.take(&camel(&topic.words));
    let constants: Vec<String> = model.topics.iter().map(constant).collect();
    let constants: Vec<(String, String)> = constants
        .into_iter()
        .zip(&model.topics)
        .map(|(name, topic)| (name, literal(topic.name.as_str())))
        .collect();
    table(&mut out, "The names of topics.", "export const topics = {", " as const;", &constants);
    out.push_str("\n/** The name of one of the topics. */\nexport type Topic = (typeof topics)[keyof typeof topics];\n");
    for item in &model.items {
        out.push('\n');
        write_item(&mut out, model, item);
    }
    let each = |value: &dyn Fn(&TopicTypes) -> String| -> Vec<(String, String)> {
        model.topics.iter().map(|topic| (literal(topic.name.as_str()), value(topic))).collect()
    };
    let payloads = each(&|topic| model.name(topic.payload));
    out.push_str("\n/** What is published to each topic. */\nexport interface Payloads {\n");
    for (topic, payload) in payloads {
        out.push_str(&format!("  {topic}: {payload};\n"));
    }
    out.push_str("}\n");
    let versions = each(&|topic| topic.version.to_string());
    let doc = "The versions of schemas that the types are made from.";
    table(&mut out, doc, "export const versions = {", " as const;", &versions);
    let schemas = each(&|topic| literal(&minified(&topic.schema)));
    let doc = "The JSON Schemas themselves, as text for any validator.";
    table(&mut out, doc, "export const schemas: Readonly<Record<Topic, string>> = {", ";", &schemas);
    out
}

fn table(out: &mut String, doc: &str, begin: &str, end: &str, entries: &[(String, String)]) {
    out.push_str(&format!("\n/** {doc} */\n{begin}\n"));
    for (name, value) in entries {
        out.push_str(&format!("  {name}: {value},\n"));
    }
    out.push_str(&format!("}}{end}\n"));
}

fn write_item(out: &mut String, model: &TypeModel, item: &TypeItem) {
    write_doc(out, "", &item.doc);
    let name = &item.name;
    match &item.kind {
        ItemKind::Object(object) => {
            out.push_str(&format!("export interface {name} {{\n"));
            write_fields(out, model, object, "  ");
            out.push_str("}\n");
        }
        ItemKind::Words(words) => {
            let words: Vec<String> = words.iter().map(|word| literal(word)).collect();
            out.push_str(&format!("export type {name} = {};\n", words.join(" | ")));
        }
        ItemKind::Tagged { tag, branches } => {
            out.push_str(&format!("export type {name} ="));
            for (word, id) in branches {
                let (tag, word) = (property(tag), literal(word));
                out.push_str(&format!("\n  | ({{ {tag}: {word} }} & {})", model.name(*id)));
            }
            out.push_str(";\n");
        }
        ItemKind::Alias(of) => out.push_str(&format!("export type {name} = {};\n", text(model, of))),
    }
}

fn write_fields(out: &mut String, model: &TypeModel, object: &Object, indent: &str) {
    for field in &object.fields {
        write_doc(out, indent, &field.doc);
        let optional = if field.required { "" } else { "?" };
        let (name, of) = (property(&field.name), text(model, &field.of));
        out.push_str(&format!("{indent}{name}{optional}: {of};\n"));
    }
    if object.others.is_some() {
        // The type of an index signature must cover the named properties too, so it cannot be narrower than
        // theirs.
        out.push_str(&format!("{indent}[other: string]: unknown;\n"));
    }
}

fn write_doc(out: &mut String, indent: &str, lines: &[String]) {
    let lines: Vec<String> = lines.iter().map(|line| shown(line).replace("*/", "* /")).collect();
    match lines.as_slice() {
        [] => {}
        [line] => out.push_str(&format!("{indent}/** {line} */\n")),
        lines => {
            out.push_str(&format!("{indent}/**\n"));
            for line in lines {
                out.push_str(format!("{indent} * {line}").trim_end());
                out.push('\n');
            }
            out.push_str(&format!("{indent} */\n"));
        }
    }
}

fn text(model: &TypeModel, of: &Type) -> String {
    match of {
        Type::Any => "unknown".to_owned(),
        Type::Never => "never".to_owned(),
        Type::Null => "null".to_owned(),
        Type::Bool => "boolean".to_owned(),
        Type::Integer { .. } | Type::Number => "number".to_owned(),
        Type::Text => "string".to_owned(),
        Type::List(of) => format!("Array<{}>", text(model, of)),
        Type::Map(of) => format!("Record<string, {}>", text(model, of)),
        Type::Maybe(of) => format!("{} | null", text(model, of)),
        Type::Named(id) => model.name(*id),
        Type::Only(value) => value_type(value),
        Type::Union(types) => {
            let mut texts: Vec<String> = Vec::new();
            for of in types.iter().map(|of| text(model, of)) {
                if !texts.contains(&of) {
                    texts.push(of);
                }
            }
            texts.join(" | ")
        }
    }
}

/// The type of one value.
fn value_type(value: &Value) -> String {
    match value {
        Value::String(text) => literal(text),
        Value::Array(_) => "Array<unknown>".to_owned(),
        Value::Object(_) => "Record<string, unknown>".to_owned(),
        scalar => scalar.to_string(),
    }
}

/// The name of a property, in quotes unless it is an identifier.
fn property(name: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '$';
    let begins = name.starts_with(|first: char| plain(first) && !first.is_ascii_digit());
    if begins && name.chars().all(plain) { name.to_owned() } else { literal(name) }
}

/// A string literal in ASCII.
fn literal(text: &str) -> String {
    let mut quoted = String::new();
    for char in Value::from(text).to_string().chars() {
        match char {
            ' '..='~' => quoted.push(char),
            _ => char
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| quoted.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    quoted
}

/// JSON without blanks; the text is known to be JSON.
fn minified(json: &str) -> String {
    promethean_model::json::minify(json).map_or_else(|_| json.to_owned(), |text| text.to_string())
}
