//! Types that hold themselves: in Rust a pointer must be in between.

use std::collections::BTreeSet;

use super::model::{ItemId, Kind, Model, Type};

/// For each type, what it holds in its own memory, however deep.
#[derive(Debug)]
pub(super) struct Reach(Vec<BTreeSet<ItemId>>);

impl Reach {
    pub(super) fn of(model: &Model) -> Self {
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
    pub(super) fn holds(&self, from: ItemId, to: ItemId) -> bool {
        self.0.get(from.0).is_some_and(|found| found.contains(&to))
    }
}

fn held(kind: &Kind) -> BTreeSet<ItemId> {
    match kind {
        Kind::Object(object) => object.fields.iter().filter_map(|field| direct(&field.of)).collect(),
        Kind::Tagged { branches, .. } => branches.iter().map(|(_, id)| *id).collect(),
        Kind::Alias(of) => direct(of).into_iter().collect(),
        Kind::Words(_) => BTreeSet::new(),
    }
}

/// Lists and maps keep what they hold elsewhere.
fn direct(of: &Type) -> Option<ItemId> {
    match of {
        Type::Named(id) => Some(*id),
        Type::Maybe(of) => direct(of),
        _ => None,
    }
}
