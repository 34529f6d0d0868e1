//! The plan of a batch: its state changes as puts and deletes. Planning writes nothing: a refused batch leaves no trace.

mod check;
mod collections;
mod cursors;
pub(crate) mod docs;
pub(crate) mod sweep;
mod tables;
mod topics;

use std::collections::BTreeMap;
use std::rc::Rc;

use promethean_model::{CollectionName, Offset, TopicName};

pub(crate) use check::{check, check_event};

use super::{StagedState, StateSpace, View, Writes};
use crate::port::{Class, CommitError, StateOp};
use crate::state::keys::collection::DeclaredCollection;
use crate::state::keys::counter::{self, StateCounter};

/// The state and topics that a batch is planned against.
pub(crate) struct PlanContext<'a> {
    /// The state that the batch is applied to.
    pub(crate) view: &'a dyn View,
    pub(crate) topics: &'a dyn TopicLookup,
}

/// Figures of topics that planning needs.
pub(crate) trait TopicLookup {
    /// The durable end of a topic; 0 for an unknown topic.
    fn end(&self, topic: &TopicName) -> Offset;

    /// Whether a change of a topic is noted in the state first and then made in the log.
    fn change_in_two_steps(&self) -> bool;

    /// The number of a topic in the log.
    fn number(&self, topic: &TopicName) -> Option<u32>;
}

/// Declarations that this batch has read: most batches write many documents of few collections.
type Declarations = BTreeMap<CollectionName, Rc<DeclaredCollection>>;

/// Plans the changes in their order. Each change sees the changes before it.
pub(crate) fn plan(class: Class, ops: &[StateOp], context: &PlanContext<'_>) -> Result<Writes, CommitError> {
    let mut staged = StagedState::new(context.view);
    let mut declarations = Declarations::default();
    for op in ops {
        match op {
            StateOp::Cursor(op) => cursors::apply(&mut staged, op, context.topics)?,
            StateOp::Doc(op) => docs::apply(&mut staged, &mut declarations, class, op)?,
            StateOp::Collection(op) => {
                declarations.clear();
                collections::apply(&mut staged, class, op)?;
            }
            StateOp::Dedupe(mark) => tables::mark(&mut staged, mark)?,
            StateOp::Forget(mark) => tables::forget(&mut staged, mark)?,
            StateOp::Settings(op) => tables::apply_settings(&mut staged, op)?,
            StateOp::Topic(op) => topics::apply(&mut staged, op, context.topics)?,
            StateOp::Outbox(op) => tables::apply_outbox(&mut staged, op)?,
            StateOp::Row(op) => tables::apply_row(&mut staged, op)?,
        }
    }
    Ok(staged.into_writes())
}

/// Takes the next number of a sequence, from 0.
fn take_number(staged: &mut StagedState<'_>, counter: StateCounter) -> Result<u64, CommitError> {
    let key = counter::key(counter);
    let number = staged.get(StateSpace::Meta, &key)?.map_or(Ok(0), |value| counter::decode(&value))?;
    staged.put(StateSpace::Meta, key, counter::value(number + 1));
    Ok(number)
}
