//! Collections: declared, dropped and renamed.

use std::collections::BTreeSet;

use promethean_model::CollectionName;

use super::super::keys::collection::{self, DeclaredCollection};
use super::super::keys::counter::StateCounter;
use super::super::{StagedState, StateSpace, read};
use super::take_number;
use crate::port::{
    Class, Collection, CollectionOp, CommitError, INDEX_FIELDS_MAX, INDEXES_MAX, Index, Keeping,
};

/// The most declared fields.
const FIELDS_MAX: usize = 256;
/// The longest name of a field.
const FIELD_NAME_BYTES_MAX: usize = 255;

pub(super) fn apply(
    staged: &mut StagedState<'_>,
    class: Class,
    op: &CollectionOp,
) -> Result<(), CommitError> {
    match op {
        CollectionOp::Declare(wanted) => declare(staged, class, wanted),
        CollectionOp::Drop(name) => drop_if_there(staged, class, name),
        CollectionOp::Rename { from, to } => rename(staged, class, from, to),
    }
}

fn drop_if_there(
    staged: &mut StagedState<'_>,
    class: Class,
    name: &CollectionName,
) -> Result<(), CommitError> {
    let Some(declared) = read::declared(staged, name)? else { return Ok(()) };
    check_class(class, &declared.collection)?;
    staged.delete(StateSpace::Meta, collection::key(name));
    staged.delete(StateSpace::Meta, collection::count_key(declared.number));
    staged.put(StateSpace::Meta, collection::dropped_key(declared.number), Vec::new());
    Ok(())
}

/// Gives a collection another name. Documents and index entries hold the collection's number, which stays.
fn rename(
    staged: &mut StagedState<'_>,
    class: Class,
    from: &CollectionName,
    to: &CollectionName,
) -> Result<(), CommitError> {
    let unknown = || CommitError::UnknownCollection { collection: from.clone() };
    let DeclaredCollection { number, collection } = read::declared(staged, from)?.ok_or_else(unknown)?;
    check_class(class, &collection)?;
    if from == to {
        return Ok(());
    }
    drop_if_there(staged, class, to)?;
    staged.delete(StateSpace::Meta, collection::key(from));
    let renamed = DeclaredCollection { number, collection: Collection { name: to.clone(), ..collection } };
    staged.put(StateSpace::Meta, collection::key(to), collection::value(&renamed));
    Ok(())
}

/// Refuses a batch of the wrong class. With both classes mixed, a power cut could undo a derived declaration and leave
/// durable documents under a number that is then given to another collection.
pub(super) fn check_class(class: Class, collection: &Collection) -> Result<(), CommitError> {
    let keeping = match (class, collection.keeping) {
        (Class::Derived, Keeping::Derived) | (Class::Durable(_), Keeping::Durable) => return Ok(()),
        (Class::Derived, Keeping::Durable) => "durable",
        (Class::Durable(_), Keeping::Derived) => "derived",
    };
    Err(CommitError::WrongKeeping { collection: collection.name.clone(), keeping })
}

fn declare(staged: &mut StagedState<'_>, class: Class, wanted: &Collection) -> Result<(), CommitError> {
    check_class(class, wanted)?;
    check_declaration(wanted)?;
    let number = match read::declared(staged, &wanted.name)? {
        None => {
            let number = take_number(staged, StateCounter::NextCollection)?;
            u32::try_from(number)
                .map_err(|_| bad(wanted, "too many collections were declared; start a new store"))?
        }
        Some(there) if there.collection == *wanted => return Ok(()),
        Some(there) if there.collection.keeping != wanted.keeping => {
            return Err(bad(wanted, "is kept by batches of the other class; drop it first"));
        }
        Some(there)
            if there.collection.indexes != wanted.indexes && read::count(staged, there.number)? > 0 =>
        {
            return Err(bad(
                wanted,
                "has documents, so its indexes cannot change; rebuild it under another name, or drop it first",
            ));
        }
        Some(there) => there.number,
    };
    let declared = DeclaredCollection { number, collection: wanted.clone() };
    staged.put(StateSpace::Meta, collection::key(&wanted.name), collection::value(&declared));
    Ok(())
}

fn check_declaration(wanted: &Collection) -> Result<(), CommitError> {
    if wanted.fields.len() > FIELDS_MAX || wanted.indexes.len() > INDEXES_MAX {
        let reason = format!("declare at most {FIELDS_MAX} fields and {INDEXES_MAX} indexes");
        return Err(bad(wanted, reason));
    }
    let mut names = BTreeSet::new();
    for field in &wanted.fields {
        if field.name.is_empty() || field.name.len() > FIELD_NAME_BYTES_MAX {
            return Err(bad(wanted, format!("give every field a name of 1 to {FIELD_NAME_BYTES_MAX} bytes")));
        }
        if !names.insert(field.name.as_str()) {
            return Err(bad(wanted, format!("field `{}` is declared twice; declare it once", field.name)));
        }
    }
    wanted.indexes.iter().try_for_each(|index| check_index(wanted, index, &names))
}

fn check_index(wanted: &Collection, index: &Index, names: &BTreeSet<&str>) -> Result<(), CommitError> {
    if index.fields.is_empty() || index.fields.len() > INDEX_FIELDS_MAX {
        return Err(bad(wanted, format!("give every index 1 to {INDEX_FIELDS_MAX} fields")));
    }
    let mut seen = BTreeSet::new();
    for (field, _) in &index.fields {
        if !names.contains(field.as_str()) {
            return Err(bad(
                wanted,
                format!("index ({}) names `{field}`; declare that field", index.label()),
            ));
        }
        if !seen.insert(field) {
            return Err(bad(
                wanted,
                format!("index ({}) names `{field}` twice; name it once", index.label()),
            ));
        }
    }
    Ok(())
}

fn bad(collection: &Collection, reason: impl Into<String>) -> CommitError {
    CommitError::BadIndex { collection: collection.name.clone(), reason: reason.into() }
}
