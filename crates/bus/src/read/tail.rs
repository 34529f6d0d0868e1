//! Following a topic without a group: first its stored events, then each new event.

use std::sync::Arc;

use promethean_model::{Offset, TopicName};
use promethean_store::port::{EndWatch, EventPage, PageLimit};
use tokio::sync::watch;

use super::replay::ReplayPage;
use crate::bus::Bus;
use crate::error::BusError;
use crate::groups::Groups;
use crate::rows::StartPosition;
use crate::schemas::lift_events;
use crate::topics::resolve_start;

/// The most events and bytes of a page.
const PAGE_EVENTS_MAX: usize = 1_000;
const PAGE_BYTES: usize = 1 << 20;

/// A reader that waits at the end of its topic for new events. It does not slow down publishers or groups.
#[derive(Debug)]
pub struct Tail {
    groups: Arc<Groups>,
    normalize: bool,
    topic: TopicName,
    next: Offset,
    watch: EndWatch,
    shutdown: watch::Receiver<bool>,
}

impl Bus {
    /// Follows a topic from a start position that is not beyond its end. The topic need not exist yet.
    pub async fn tail(&self, topic: &TopicName, from: StartPosition) -> Result<Tail, BusError> {
        let groups = Arc::clone(&self.groups);
        // Watches before it resolves the start position, so that an event published in between wakes the
        // tail.
        let watch = groups.base.store.watch(topic);
        let (next, end) = resolve_start(&groups.topics, topic, from).await?;
        if next > end {
            let reason = format!(
                "topic `{topic}` ends at {end}, before {next}; it may have been deleted and created again"
            );
            return Err(BusError::BadSeek { reason });
        }
        let shutdown = groups.base.shutdown.subscribe();
        Ok(Tail { groups, normalize: false, topic: topic.clone(), next, watch, shutdown })
    }
}

impl Tail {
    /// Sets whether events of old schema versions are lifted to the latest version.
    #[must_use]
    pub fn normalize(mut self, normalize: bool) -> Self {
        self.normalize = normalize;
        self
    }

    /// The offset of the next event.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// Waits for the next events. `None` when the topic is deleted or the bus closes. Cancel-safe.
    pub async fn next_page(&mut self) -> Result<Option<ReplayPage>, BusError> {
        loop {
            let end = self.watch.end();
            if end < self.next || *self.shutdown.borrow() {
                return Ok(None);
            }
            if end > self.next {
                let from = self.next;
                let limit = PageLimit { events: PAGE_EVENTS_MAX, bytes: PAGE_BYTES };
                let EventPage { mut events, next, expired } =
                    self.groups.base.store.read(&self.topic, from, limit).await?;
                if self.normalize {
                    events = lift_events(&self.groups.schemas, events).await;
                }
                // Set only after the last `await`: a cancelled call has lost no events.
                self.next = next.max(from);
                if !events.is_empty() || expired > 0 {
                    return Ok(Some(ReplayPage {
                        topic: self.topic.clone(),
                        events,
                        next: self.next,
                        expired,
                    }));
                }
                if self.next > from {
                    continue;
                }
            }
            tokio::select! {
                changed = self.watch.changed() => if changed.is_none() { return Ok(None) },
                _ = self.shutdown.wait_for(|closed| *closed) => return Ok(None),
            }
        }
    }
}
