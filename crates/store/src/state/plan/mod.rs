//! How a batch's changes of state become puts and deletes. Planning writes nothing: a refused batch leaves no trace.

mod check;
mod collections;
mod cursors;
mod dedupe;
pub(crate) mod docs;
mod outbox;
mod rows;
mod settings;
pub(crate) mod sweep;
mod topics;

use std::collections::BTreeMap;
use std::rc::Rc;

use promethean_model::{CollectionName, Offset, TopicName};

pub(crate) use check::{check, check_event};

use super::{Space, Staged, View, Writes};
use crate::port::{Class, CommitError, StateOp};
use crate::state::keys::collection::Declared;
use crate::state::keys::counter::{self, Counter};

/// What planning needs beside the batch.
pub(crate) struct Context<'a> {
    /// The state that the batch will find.
    pub(crate) view: &'a dyn View,
    pub(crate) topics: &'a dyn Topics,
}

/// What planning asks about topics.
pub(crate) trait Topics {
    /// The durable end; 0 of an unknown topic.
    fn end(&self, topic: &TopicName) -> Offset;

    /// Whether the state must note what is then to be done in the log.
    fn change_in_two_steps(&self) -> bool;

    /// The number of a topic in the log.
    fn number(&self, topic: &TopicName) -> Option<u32>;
}

/// Declarations met by this batch: most batches write many documents of few collections.
type Declarations = BTreeMap<CollectionName, Rc<Declared>>;

/// Plans the changes in their order, each seeing those before it.
pub(crate) fn plan(class: Class, ops: &[StateOp], context: &Context<'_>) -> Result<Writes, CommitError> {
    let mut staged = Staged::new(context.view);
    let mut declarations = Declarations::default();
    for op in ops {
        match op {
            StateOp::Cursor(op) => cursors::apply(&mut staged, op, context.topics)?,
            StateOp::Doc(op) => docs::apply(&mut staged, &mut declarations, class, op)?,
            StateOp::Collection(op) => {
                declarations.clear();
                collections::apply(&mut staged, class, op)?;
            }
            StateOp::Dedupe(mark) => dedupe::apply(&mut staged, mark)?,
            StateOp::Forget(mark) => dedupe::forget(&mut staged, mark)?,
            StateOp::Settings(op) => settings::apply(&mut staged, op)?,
            StateOp::Topic(op) => topics::apply(&mut staged, op, context.topics)?,
            StateOp::Outbox(op) => outbox::apply(&mut staged, op)?,
            StateOp::Row(op) => rows::apply(&mut staged, op)?,
        }
    }
    Ok(staged.into_writes())
}

/// Takes the next number of a sequence, from 0.
fn take_number(staged: &mut Staged<'_>, counter: Counter) -> Result<u64, CommitError> {
    let key = counter::key(counter);
    let number = staged.get(Space::Meta, &key)?.map_or(Ok(0), |value| counter::decode(&value))?;
    staged.put(Space::Meta, key, counter::value(number + 1));
    Ok(number)
}
