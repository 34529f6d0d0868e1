//! The effects of a handler, as a value.

use promethean_model::{EventId, GroupName, TopicName};
use promethean_store::port::{DedupeMark, DocOp, StateOp};

use super::dedupe::expires_at;
use crate::error::BusError;
use crate::groups::Groups;
use crate::publish::{Publish, commit, prepare_batch};
use crate::rows::dedupe_scope;
use crate::subscription::Lease;

/// The writes that follow from one event. They are committed together with the event's mark.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    publishes: Vec<Publish<'static>>,
    documents: Vec<DocOp>,
}

impl Effects {
    /// No effects: only the mark is written.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds an event to publish. If the event has no id, its id is computed from the handled event and from
    /// its position among the events published here. If it has no cause, the handled event becomes its cause.
    #[must_use]
    pub fn publish(mut self, event: Publish<'static>) -> Self {
        self.publishes.push(event);
        self
    }

    /// Adds a change of a document in a durable collection.
    #[must_use]
    pub fn document(mut self, op: impl Into<DocOp>) -> Self {
        self.documents.push(op.into());
        self
    }

    /// Commits all effects with the mark, or nothing if the event is marked already.
    pub(super) async fn commit(self, groups: &Groups, lease: &Lease, ttl_ms: u64) -> Result<(), BusError> {
        let event = &lease.event;
        let derived = |(publish, n): (Publish<'static>, u32)| publish.derived(lease.produced_id(n), event.id);
        let publishes = self.publishes.into_iter().zip(0..).map(derived).collect();
        let batch = prepare_batch(&groups.schemas, publishes)
            .inspect_err(|error| groups.base.metrics.rejected(error))?;
        // The mark comes first, so that a repeated commit is refused because of the mark and not because a
        // document has changed.
        let mut state = vec![mark(groups, lease, ttl_ms).into()];
        state.extend(self.documents.into_iter().map(StateOp::from));
        match commit(&groups.schemas, batch, state, None).await {
            Err(BusError::Store { code: "already_seen", .. }) => Ok(()),
            committed => committed.map(drop).inspect_err(|error| groups.base.metrics.rejected(error)),
        }
    }
}

fn mark(groups: &Groups, lease: &Lease, ttl_ms: u64) -> DedupeMark {
    DedupeMark {
        scope: dedupe_scope(&lease.event.topic, lease.group()),
        id: lease.event.id.to_string(),
        expires_at: expires_at(groups, ttl_ms),
        unless_seen_at: Some(groups.base.clock.wall_ms()),
    }
}

impl Lease {
    /// The id of the `n`th event that a handler publishes because of this event; see [`produced_id`].
    pub fn produced_id(&self, n: u32) -> EventId {
        produced_id(self.group(), &self.event.topic, &self.event.id, n)
    }
}

/// The id of the `n`th event that a group publishes because of an event. It is the same at every delivery of
/// that event, so publishing again is a duplicate and adds nothing. A handler must publish the same payload
/// each time, or the publish is refused with `id_conflict`.
pub fn produced_id(group: &GroupName, topic: &TopicName, id: &EventId, n: u32) -> EventId {
    let names = [group.as_str().as_bytes(), &[0], topic.as_str().as_bytes(), &[0]].concat();
    let name = [names.as_slice(), id.as_bytes(), &n.to_be_bytes()].concat();
    EventId::derive(b"produced", &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_depend_on_group_event_and_number() {
        let id = |group: &str, topic: &str, id: u8, n| {
            produced_id(&group.parse().unwrap(), &topic.parse().unwrap(), &EventId::from_bytes([id; 16]), n)
        };
        let first = id("g", "a.b", 7, 0);
        assert_eq!(first, id("g", "a.b", 7, 0));
        for other in [id("h", "a.b", 7, 0), id("g", "a.c", 7, 0), id("g", "a.b", 8, 0), id("g", "a.b", 7, 1)]
        {
            assert_ne!(first, other);
        }
    }
}
