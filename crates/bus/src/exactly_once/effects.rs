//! What a handler wants written, as a value.

use promethean_model::{EventId, GroupName, TopicName};
use promethean_store::port::{DedupeMark, DocOp, StateOp};

use super::dedupe::expires_at;
use crate::error::BusError;
use crate::groups::Groups;
use crate::publish::{Publish, commit, prepare_batch};
use crate::rows::dedupe_scope;
use crate::subscription::Lease;

/// What comes of an event: all of it and the event's mark are written in one commit.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    publishes: Vec<Publish<'static>>,
    documents: Vec<DocOp>,
}

impl Effects {
    /// Nothing but the mark.
    pub fn none() -> Self {
        Self::default()
    }

    /// With an event to publish. Where it has none, it gets an id that follows from the event being handled and from
    /// its place among those published for it, and the event being handled as its cause.
    #[must_use]
    pub fn publish(mut self, event: Publish<'static>) -> Self {
        self.publishes.push(event);
        self
    }

    /// With a change of a document in a durable collection.
    #[must_use]
    pub fn document(mut self, op: impl Into<DocOp>) -> Self {
        self.documents.push(op.into());
        self
    }

    /// Writes it all, or nothing if the event is marked already.
    pub(super) async fn commit(self, groups: &Groups, lease: &Lease, ttl_ms: u64) -> Result<(), BusError> {
        let event = &lease.event;
        let derived = |(publish, n): (Publish<'static>, u32)| publish.derived(lease.produced_id(n), event.id);
        let publishes = self.publishes.into_iter().zip(0..).map(derived).collect();
        let batch = prepare_batch(&groups.schemas, publishes)
            .inspect_err(|error| groups.base.metrics.rejected(error))?;
        // The mark first: what was done already is told by it, not by what the documents have become.
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
    /// The id for the `n`th event that a handler publishes because of this one; see [`produced_id`].
    pub fn produced_id(&self, n: u32) -> EventId {
        produced_id(self.group(), &self.event.topic, &self.event.id, n)
    }
}

/// The id of the `n`th event that a group publishes because of an event: the same however often that event
/// is delivered, so that publishing again gives duplicates and nothing new. A handler must publish the same payloads
/// each time, or it is refused with `id_conflict`.
pub fn produced_id(group: &GroupName, topic: &TopicName, id: &EventId, n: u32) -> EventId {
    let names = [group.as_str().as_bytes(), &[0], topic.as_str().as_bytes(), &[0]].concat();
    let name = [names.as_slice(), id.as_bytes(), &n.to_be_bytes()].concat();
    EventId::derive(b"produced", &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_from_group_event_and_number() {
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
