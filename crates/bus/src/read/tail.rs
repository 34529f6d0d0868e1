//! Following a topic without a group: what there is, then what comes.

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

/// Most events and bytes of a page.
const PAGE_EVENTS_MAX: usize = 1_000;
const PAGE_BYTES: usize = 1 << 20;

/// A reader that waits at the end of its topic. It costs nobody anything but itself.
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
    /// Follows a topic, which need not exist yet, from a place that is not beyond its end.
    pub async fn tail(&self, topic: &TopicName, from: StartPosition) -> Result<Tail, BusError> {
        let groups = Arc::clone(&self.groups);
        // Before the place is looked up: what is published between the two must wake us.
        let watch = groups.base.store.watch(topic);
        let (next, end) = resolve_start(&groups.topics, topic, from).await?;
        if next > end {
            let reason =
                format!("topic `{topic}` ends at {end}, before {next}; it may have been created anew");
            return Err(BusError::BadSeek { reason });
        }
        let shutdown = groups.base.shutdown.subscribe();
        Ok(Tail { groups, normalize: false, topic: topic.clone(), next, watch, shutdown })
    }
}

impl Tail {
    /// Lifts events of old schema versions to the latest, or no longer.
    #[must_use]
    pub fn normalize(mut self, normalize: bool) -> Self {
        self.normalize = normalize;
        self
    }

    /// The offset of the next event.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// The next events, as soon as there are any; `None` when the topic is deleted or the bus closes. Cancel-safe.
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
                // After the last wait: whoever gives up waiting is given these again.
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
