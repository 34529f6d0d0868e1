//! From schemas to named types.

use std::cell::Cell;
use std::collections::BTreeMap;

use promethean_model::TopicName;
use serde_json::Value;

use super::model::{Field, ItemId, Kind, Model, Object, Topic, Type};
use super::names::{pascal, words};
use super::sort::{Document, Parts, STEPS_MAX, Sort};

/// Characters of a type that is written in place. What is longer gets a name.
const TYPE_CHARS_MAX: usize = 80;

const ANYTHING: &Value = &Value::Bool(true);

/// Adds a topic and the types of its payload.
pub(super) fn add(model: &mut Model, name: TopicName, version: u32, schema: String, value: &Value) {
    let wish = pascal(&words(name.as_str()));
    let steps = Cell::new(STEPS_MAX);
    let mut reader = Reader {
        document: Document { root: value, steps: &steps },
        prefix: wish.clone(),
        named: BTreeMap::new(),
        under_way: Vec::new(),
        model,
    };
    let payload = reader.payload(&name, version, &wish);
    let words = words(name.as_str());
    model.topics.push(Topic { name, version, schema, words, payload });
}

struct Reader<'a> {
    document: Document<'a>,
    /// What the names of the topic's definitions begin with.
    prefix: String,
    /// What references stand for.
    named: BTreeMap<String, Type>,
    /// References to what has no name, which must not lead to themselves.
    under_way: Vec<String>,
    model: &'a mut Model,
}

impl<'a> Reader<'a> {
    fn payload(&mut self, topic: &TopicName, version: u32, wish: &str) -> ItemId {
        let schema = self.document.root;
        let id = self.model.reserve(wish);
        let sort = self.document.sort(schema);
        let mut doc = doc(schema);
        if !doc.is_empty() {
            doc.push(String::new());
        }
        doc.push(format!("The payload of `{topic}`, version {version}."));
        let kind = match sort {
            sort @ (Sort::Object(_) | Sort::Words(_) | Sort::Tagged { .. }) => {
                self.named.insert("#".to_owned(), Type::Named(id));
                self.kind(sort, wish)
            }
            sort => {
                self.under_way.push("#".to_owned());
                // A named type inside would have the name of the payload.
                Kind::Alias(self.of_sort(sort, &doc, &format!("{wish}Value")))
            }
        };
        self.model.fill(id, doc, kind);
        id
    }

    fn of(&mut self, schema: &'a Value, wish: &str) -> Type {
        self.of_sort(self.document.sort(schema), &doc(schema), wish)
    }

    fn of_sort(&mut self, sort: Sort<'a>, doc: &[String], wish: &str) -> Type {
        match sort {
            Sort::Any => Type::Any,
            Sort::Never => Type::Never,
            Sort::Null => Type::Null,
            Sort::Bool => Type::Bool,
            Sort::Integer { negative } => Type::Integer { negative },
            Sort::Number => Type::Number,
            Sort::Text => Type::Text,
            Sort::List(items) => Type::List(Box::new(self.part(items, &format!("{wish}Item")))),
            Sort::Map(values) => Type::Map(Box::new(self.part(values, &format!("{wish}Value")))),
            Sort::Nullable(sort) => self.of_sort(*sort, doc, wish).maybe(),
            Sort::Reference(to) => self.reference(to),
            Sort::Values(values) => {
                let mut values: Vec<Type> = values.into_iter().cloned().map(Type::Only).collect();
                match values.len() {
                    1 => values.pop().unwrap_or(Type::Any),
                    _ => Type::Union(values),
                }
            }
            Sort::Union(sorts) => {
                let number = |number: usize| format!("{wish}{}", number + 1);
                let of = |(index, sort)| self.of_sort(sort, &[], &number(index));
                Type::Union(sorts.into_iter().enumerate().map(of).collect())
            }
            sort @ (Sort::Object(_) | Sort::Words(_) | Sort::Tagged { .. }) => {
                let id = self.model.reserve(&short(wish));
                let kind = self.kind(sort, wish);
                self.model.fill(id, doc.to_vec(), kind);
                Type::Named(id)
            }
        }
    }

    /// What a list or map holds.
    fn part(&mut self, schema: Option<&'a Value>, wish: &str) -> Type {
        let of = schema.map_or(Type::Any, |schema| self.of(schema, wish));
        if self.chars(&of) + "BTreeMap<String, >".len() <= TYPE_CHARS_MAX {
            return of;
        }
        let id = self.model.reserve(&short(wish));
        self.model.fill(id, Vec::new(), Kind::Alias(of));
        Type::Named(id)
    }

    /// How long it is, in the wordier of the languages.
    fn chars(&self, of: &Type) -> usize {
        match of {
            Type::List(of) => 5 + self.chars(of),
            Type::Map(of) => 18 + self.chars(of),
            Type::Maybe(of) => 8 + self.chars(of),
            Type::Named(id) => self.model.name(*id).len(),
            _ => "serde_json::Value".len(),
        }
    }

    /// What has a name; everything else was dealt with.
    fn kind(&mut self, sort: Sort<'a>, wish: &str) -> Kind {
        match sort {
            Sort::Object(parts) => Kind::Object(self.object(parts, wish)),
            Sort::Words(words) => Kind::Words(words.into_iter().map(str::to_owned).collect()),
            Sort::Tagged { tag, branches } => {
                let mut tagged = Vec::new();
                for (word, parts) in branches {
                    let wish = format!("{wish}{}", pascal(&words(word)));
                    let id = self.model.reserve(&short(&wish));
                    let object = self.object(parts, &wish);
                    self.model.fill(id, vec![format!("Where `{tag}` is `{word}`.")], Kind::Object(object));
                    tagged.push((word.to_owned(), id));
                }
                Kind::Tagged { tag: tag.to_owned(), branches: tagged }
            }
            _ => Kind::Alias(Type::Any),
        }
    }

    fn object(&mut self, parts: Parts<'a>, wish: &str) -> Object {
        let Parts { mut properties, required, closed, others } = parts;
        // What must be there and is not described can be anything.
        for name in &required {
            properties.entry(name).or_insert(ANYTHING);
        }
        let mut fields = Vec::new();
        for (name, schema) in properties {
            let of = self.of(schema, &format!("{wish}{}", pascal(&words(name))));
            let required = required.contains(name);
            if of != Type::Never || required {
                fields.push(Field { name: name.to_owned(), doc: doc(schema), required, of });
            }
        }
        let others = others.map(|others| self.of(others, &format!("{wish}Other")));
        Object { fields, closed, others }
    }

    fn reference(&mut self, to: &str) -> Type {
        if let Some(known) = self.named.get(to) {
            return known.clone();
        }
        // A definition of nothing but itself, or one that only a type without a name could hold.
        if self.under_way.iter().any(|known| known == to) {
            return Type::Any;
        }
        let Some(schema) = self.document.target(to) else { return Type::Any };
        let last = to.rsplit(['/', '#']).next().unwrap_or_default();
        let wish = format!("{}{}", self.prefix, pascal(&words(last)));
        let sort = self.document.sort(schema);
        if !sort.is_named() {
            self.under_way.push(to.to_owned());
            let of = self.of_sort(sort, &doc(schema), &wish);
            self.under_way.pop();
            return of;
        }
        let id = self.model.reserve(&short(&wish));
        let (sort, of) = match sort {
            Sort::Nullable(sort) => (*sort, Type::Named(id).maybe()),
            sort => (sort, Type::Named(id)),
        };
        self.named.insert(to.to_owned(), of.clone());
        let kind = self.kind(sort, &wish);
        self.model.fill(id, doc(schema), kind);
        of
    }
}

/// A name made of many is not longer than one.
fn short(wish: &str) -> String {
    pascal(&[wish.to_owned()])
}

/// Title and description, in lines.
fn doc(schema: &Value) -> Vec<String> {
    let lines = |name: &str| -> Vec<String> {
        let text = schema.get(name).and_then(Value::as_str).unwrap_or_default();
        text.trim().lines().map(|line| line.trim_end().to_owned()).collect()
    };
    let (title, description) = (lines("title"), lines("description"));
    let between = !title.is_empty() && !description.is_empty();
    [title, between.then(String::new).into_iter().collect(), description].concat()
}
