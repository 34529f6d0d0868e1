//! The types to generate, independent of the language.

use promethean_model::TopicName;

use super::names::TypeNames;

/// The topics and types of one run.
#[derive(Debug, Default)]
pub(super) struct TypeModel {
    pub(super) topics: Vec<TopicTypes>,
    /// Named types; the types of a topic are together.
    pub(super) items: Vec<TypeItem>,
    /// The names of `items`.
    pub(super) names: TypeNames,
}

/// A topic and the latest version of its schema.
#[derive(Debug)]
pub(super) struct TopicTypes {
    pub(super) name: TopicName,
    pub(super) version: u32,
    /// The text of the schema as it was given.
    pub(super) schema: String,
    /// The words of its constant, such as `orders placed`; each language has its own case.
    pub(super) words: Vec<String>,
    /// The type of its payload.
    pub(super) payload: ItemId,
}

/// An index into [`TypeModel::items`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ItemId(pub(super) usize);

/// A named type.
#[derive(Debug)]
pub(super) struct TypeItem {
    pub(super) name: String,
    pub(super) doc: Vec<String>,
    pub(super) kind: ItemKind,
}

#[derive(Debug)]
pub(super) enum ItemKind {
    Object(Object),
    /// An enum of texts.
    Words(Vec<String>),
    /// Objects that differ by a property: the name of the property, and for each of its values the rest of
    /// the object.
    Tagged {
        tag: String,
        branches: Vec<(String, ItemId)>,
    },
    /// Another name for a type.
    Alias(Type),
}

#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) fields: Vec<TypeField>,
    /// Whether other properties are refused.
    pub(super) closed: bool,
    /// The type of other properties, if the schema has one.
    pub(super) others: Option<Type>,
}

#[derive(Debug)]
pub(super) struct TypeField {
    /// The name in JSON.
    pub(super) name: String,
    pub(super) doc: Vec<String>,
    pub(super) required: bool,
    pub(super) of: Type,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type {
    Any,
    /// No value fits.
    Never,
    Null,
    Bool,
    Integer {
        negative: bool,
    },
    Number,
    Text,
    List(Box<Type>),
    Map(Box<Type>),
    /// The type or null.
    Maybe(Box<Type>),
    Named(ItemId),
    /// One JSON value that is not text.
    Only(serde_json::Value),
    /// Several types without a property that tells them apart.
    Union(Vec<Type>),
}

impl Type {
    pub(super) fn maybe(self) -> Self {
        match self {
            Self::Maybe(_) | Self::Any | Self::Null => self,
            of => Self::Maybe(Box::new(of)),
        }
    }

    /// Whether some part of the type is a union without a name.
    pub(super) fn has_union(&self) -> bool {
        match self {
            Self::Union(_) => true,
            Self::List(of) | Self::Map(of) | Self::Maybe(of) => of.has_union(),
            _ => false,
        }
    }
}

impl TypeModel {
    pub(super) fn item(&self, id: ItemId) -> Option<&TypeItem> {
        self.items.get(id.0)
    }

    /// Adds an item whose kind is filled in later, so that it can refer to itself.
    pub(super) fn reserve(&mut self, wish: &str) -> ItemId {
        let name = self.names.take(wish);
        self.items.push(TypeItem { name, doc: Vec::new(), kind: ItemKind::Alias(Type::Any) });
        ItemId(self.items.len() - 1)
    }

    pub(super) fn fill(&mut self, id: ItemId, doc: Vec<String>, kind: ItemKind) {
        if let Some(item) = self.items.get_mut(id.0) {
            (item.doc, item.kind) = (doc, kind);
        }
    }

    pub(super) fn name(&self, id: ItemId) -> String {
        self.item(id).map(|item| item.name.clone()).unwrap_or_default()
    }
}
