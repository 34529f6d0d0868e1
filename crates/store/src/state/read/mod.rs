//! Reads of state, over any view.

mod cursors;
mod docs;
mod query;
mod tables;

pub(crate) use cursors::{all_cursors, cursor, cursors_of_group, cursors_of_topic};
pub(crate) use docs::{collection, collections, count, declared, doc, doc_in, docs_by_key};
pub(crate) use query::query;
pub(crate) use tables::{
    counter, marks, outbox, outbox_row, row, rows, seen, settings, settings_page, topic_intent,
    topics_with_intents,
};

use super::{Flow, RowSpan, StateFault, StateSpace, View};

type TakeVisit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), StateFault> + 'a;

/// Visits at most `limit` keys.
fn take(
    view: &dyn View,
    space: StateSpace,
    span: RowSpan<'_>,
    limit: usize,
    visit: &mut TakeVisit<'_>,
) -> Result<(), StateFault> {
    if limit == 0 {
        return Ok(());
    }
    let mut taken = 0;
    view.scan(space, span, &mut |key, value| {
        visit(key, value)?;
        taken += 1;
        Ok(if taken < limit { Flow::Continue(()) } else { Flow::Break(()) })
    })
}
