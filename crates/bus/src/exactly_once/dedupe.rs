//! What is remembered of events that were handled.

use std::sync::Arc;

use async_trait::async_trait;
use promethean_model::{EventId, GroupName, TopicName};
use promethean_store::port::{Batch, DedupeMark};

use crate::error::BusError;
use crate::groups::Groups;
use crate::rows::dedupe_scope;

/// Remembers which events a group has handled. Best kept where the handler's effects are.
#[async_trait]
pub trait DedupeStore: Send + Sync + 'static {
    /// Whether the event is marked.
    async fn seen(&self, topic: &TopicName, group: &GroupName, id: EventId) -> Result<bool, BusError>;
    /// Marks the event for so long, durably.
    async fn mark(
        &self,
        topic: &TopicName,
        group: &GroupName,
        id: EventId,
        ttl_ms: u64,
    ) -> Result<(), BusError>;
}

/// The marks of the bus's own store.
#[derive(Debug, Clone)]
pub struct StoreDedupe {
    groups: Arc<Groups>,
}

impl StoreDedupe {
    pub(super) fn new(groups: Arc<Groups>) -> Self {
        Self { groups }
    }
}

#[async_trait]
impl DedupeStore for StoreDedupe {
    async fn seen(&self, topic: &TopicName, group: &GroupName, id: EventId) -> Result<bool, BusError> {
        let (scope, now) = (dedupe_scope(topic, group), self.groups.base.clock.wall_ms());
        Ok(self.groups.base.store.seen(&scope, &id.to_string(), now).await?)
    }

    async fn mark(
        &self,
        topic: &TopicName,
        group: &GroupName,
        id: EventId,
        ttl_ms: u64,
    ) -> Result<(), BusError> {
        let expires_at = expires_at(&self.groups, ttl_ms);
        let scope = dedupe_scope(topic, group);
        let mark = DedupeMark { scope, id: id.to_string(), expires_at, unless_seen_at: None };
        self.groups.base.store.commit(Batch::new().with(mark)).await?;
        Ok(())
    }
}

pub(super) fn expires_at(groups: &Groups, ttl_ms: u64) -> i64 {
    groups.base.clock.wall_ms().saturating_add(i64::try_from(ttl_ms).unwrap_or(i64::MAX))
}
