//! From schemas to named types.

use std::cell::Cell;
use std::collections::BTreeMap;

use promethean_model::TopicName;
use serde_json::Value;

use super::model::{ItemId, ItemKind, Object, TopicTypes, Type, TypeField, TypeModel};
use super::names::{pascal, words};
use super::shape::{Document, HOPS_MAX, STEPS_MAX, SchemaParts, Shape};

/// Longest text of a type that is written in place; a longer one gets a name.
const TYPE_CHARS_MAX: usize = 80;

const ANYTHING: &Value = &Value::Bool(true);

/// Adds a topic and the types of its payload.
pub(super) fn add(model: &mut TypeModel, name: TopicName, version: u32, schema: String, value: &Value) {
    let wish = pascal(&words(name.as_str()));
    let steps = Cell::new(STEPS_MAX);
    let mut reader = SchemaReader {
        document: Document { root: value, steps: &steps, hops: HOPS_MAX },
        prefix: wish.clone(),
        named: BTreeMap::new(),
        under_way: Vec::new(),
        model,
    };
    let payload = reader.payload(&name, version, &wish);
    let words = words(name.as_str());
    model.topics.push(TopicTypes { name, version, schema, words, payload });
}

struct SchemaReader<'a> {
    document: Document<'a>,
    /// The start of the names of the topic's definitions.
    prefix: String,
    /// The types of references that were read.
    named: BTreeMap<String, Type>,
    /// References that are being read and get no name; one of these inside itself becomes `Any`.
    under_way: Vec<String>,
    model: &'a mut TypeModel,
}

impl<'a> SchemaReader<'a> {
    fn payload(&mut self, topic: &TopicName, version: u32, wish: &str) -> ItemId {
        let schema = self.document.root;
        let id = self.model.reserve(wish);
        let shape = self.document.shape(schema);
        let mut doc = doc(schema);
        if !doc.is_empty() {
            doc.push(String::new());
        }
        doc.push(format!("The payload of `{topic}`, version {version}."));
        let kind = match shape {
            shape @ (Shape::Object(_) | Shape::Words(_) | Shape::Tagged { .. }) => {
                self.named.insert("#".to_owned(), Type::Named(id));
                self.kind(shape, wish)
            }
            shape => {
                self.under_way.push("#".to_owned());
                // With another name, because the payload has this one.
                ItemKind::Alias(self.of_shape(shape, &doc, &format!("{wish}Value")))
            }
        };
        self.model.fill(id, doc, kind);
        id
    }

    fn of(&mut self, schema: &'a Value, wish: &str) -> Type {
        self.of_shape(self.document.shape(schema), &doc(schema), wish)
    }

    fn of_shape(&mut self, shape: Shape<'a>, doc: &[String], wish: &str) -> Type {
        match shape {
            Shape::Any => Type::Any,
            Shape::Never => Type::Never,
            Shape::Null => Type::Null,
            Shape::Bool => Type::Bool,
            Shape::Integer { negative } => Type::Integer { negative },
            Shape::Number => Type::Number,
            Shape::Text => Type::Text,
            Shape::List(items) => Type::List(Box::new(self.part(items, &format!("{wish}Item")))),
            Shape::Map(values) => Type::Map(Box::new(self.part(values, &format!("{wish}Value")))),
            Shape::Nullable(shape) => self.of_shape(*shape, doc, wish).maybe(),
            Shape::Reference(to) => self.reference(to),
            Shape::Values(values) => {
                let mut values: Vec<Type> = values.into_iter().cloned().map(Type::Only).collect();
                match values.len() {
                    1 => values.pop().unwrap_or(Type::Any),
                    _ => Type::Union(values),
                }
            }
            Shape::Union(shapes) => {
                let number = |number: usize| format!("{wish}{}", number + 1);
                let of = |(index, shape)| self.of_shape(shape, &[], &number(index));
                Type::Union(shapes.into_iter().enumerate().map(of).collect())
            }
            shape @ (Shape::Object(_) | Shape::Words(_) | Shape::Tagged { .. }) => {
                let id = self.model.reserve(&short(wish));
                let kind = self.kind(shape, wish);
                self.model.fill(id, doc.to_vec(), kind);
                Type::Named(id)
            }
        }
    }

    /// The type that a list or map holds.
    fn part(&mut self, schema: Option<&'a Value>, wish: &str) -> Type {
        let of = schema.map_or(Type::Any, |schema| self.of(schema, wish));
        if self.chars(&of) + "BTreeMap<String, >".len() <= TYPE_CHARS_MAX {
            return of;
        }
        let id = self.model.reserve(&short(wish));
        self.model.fill(id, Vec::new(), ItemKind::Alias(of));
        Type::Named(id)
    }

    /// The length of a type's text in Rust, whose types are longer than those of TypeScript.
    fn chars(&self, of: &Type) -> usize {
        match of {
            Type::List(of) => 5 + self.chars(of),
            Type::Map(of) => 18 + self.chars(of),
            Type::Maybe(of) => 8 + self.chars(of),
            Type::Named(id) => self.model.name(*id).len(),
            _ => "serde_json::Value".len(),
        }
    }

    /// The kind of a named type; only objects, texts and tagged objects come here.
    fn kind(&mut self, shape: Shape<'a>, wish: &str) -> ItemKind {
        match shape {
            Shape::Object(parts) => ItemKind::Object(self.object(parts, wish)),
            Shape::Words(words) => ItemKind::Words(words.into_iter().map(str::to_owned).collect()),
            Shape::Tagged { tag, branches } => {
                let mut tagged = Vec::new();
                for (word, parts) in branches {
                    let wish = format!("{wish}{}", pascal(&words(word)));
                    let id = self.model.reserve(&short(&wish));
                    let object = self.object(parts, &wish);
                    self.model.fill(
                        id,
                        vec![format!("Where `{tag}` is `{word}`.")],
                        ItemKind::Object(object),
                    );
                    tagged.push((word.to_owned(), id));
                }
                ItemKind::Tagged { tag: tag.to_owned(), branches: tagged }
            }
            _ => ItemKind::Alias(Type::Any),
        }
    }

    fn object(&mut self, parts: SchemaParts<'a>, wish: &str) -> Object {
        let SchemaParts { mut properties, required, closed, others } = parts;
        // A required property without a schema can be anything.
        for name in &required {
            properties.entry(name).or_insert(ANYTHING);
        }
        let mut fields = Vec::new();
        for (name, schema) in properties {
            let of = self.of(schema, &format!("{wish}{}", pascal(&words(name))));
            let required = required.contains(name);
            if of != Type::Never || required {
                fields.push(TypeField { name: name.to_owned(), doc: doc(schema), required, of });
            }
        }
        let others = others.map(|others| self.of(others, &format!("{wish}Other")));
        Object { fields, closed, others }
    }

    fn reference(&mut self, to: &str) -> Type {
        if let Some(known) = self.named.get(to) {
            return known.clone();
        }
        // A definition that leads to itself without a named type in between.
        if self.under_way.iter().any(|known| known == to) {
            return Type::Any;
        }
        let Some(schema) = self.document.target(to) else { return Type::Any };
        let last = to.rsplit(['/', '#']).next().unwrap_or_default();
        let wish = format!("{}{}", self.prefix, pascal(&words(last)));
        let shape = self.document.shape(schema);
        if !shape.is_named() {
            self.under_way.push(to.to_owned());
            let of = self.of_shape(shape, &doc(schema), &wish);
            self.under_way.pop();
            return of;
        }
        let id = self.model.reserve(&short(&wish));
        let (shape, of) = match shape {
            Shape::Nullable(shape) => (*shape, Type::Named(id).maybe()),
            shape => (shape, Type::Named(id)),
        };
        self.named.insert(to.to_owned(), of.clone());
        let kind = self.kind(shape, &wish);
        self.model.fill(id, doc(schema), kind);
        of
    }
}

/// Cuts a name that is too long for an identifier.
fn short(wish: &str) -> String {
    pascal(&[wish.to_owned()])
}

/// The lines of title and description.
fn doc(schema: &Value) -> Vec<String> {
    let lines = |name: &str| -> Vec<String> {
        let text = schema.get(name).and_then(Value::as_str).unwrap_or_default();
        text.trim().lines().map(|line| line.trim_end().to_owned()).collect()
    };
    let (title, description) = (lines("title"), lines("description"));
    let between = !title.is_empty() && !description.is_empty();
    [title, between.then(String::new).into_iter().collect(), description].concat()
}
