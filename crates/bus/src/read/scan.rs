//! Reading a part of one topic, page by page.

use std::sync::Arc;

use promethean_model::{Offset, TopicName};
use promethean_store::port::{EventPage, PageLimit, ReadError, Render};

use super::replay::ReplayPage;
use crate::bus::Bus;
use crate::error::BusError;
use crate::groups::Groups;
use crate::rows::StartPosition;
use crate::schemas::lift_events;
use crate::topics::resolve_start;

/// A scan of one topic up to where it ended when the scan began.
#[derive(Debug)]
pub struct Scan {
    groups: Arc<Groups>,
    normalize: bool,
    topic: TopicName,
    next: Offset,
    end: Offset,
}

impl Bus {
    /// Starts a scan. A topic that does not exist is an empty one.
    pub async fn scan(&self, topic: &TopicName, from: StartPosition) -> Result<Scan, BusError> {
        let (next, end) = resolve_start(&self.groups.topics, topic, from).await?;
        Ok(Scan { groups: Arc::clone(&self.groups), normalize: false, topic: topic.clone(), next, end })
    }
}

impl Scan {
    /// Lifts events of old schema versions to the latest, or no longer.
    #[must_use]
    pub fn normalize(mut self, normalize: bool) -> Self {
        self.normalize = normalize;
        self
    }

    /// Where it goes on.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// The offset it stops before.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// TopicEntries over everything below an offset.
    pub fn skip_to(&mut self, offset: Offset) {
        self.next = self.next.max(offset);
    }

    /// The next events, at most so many and about so many bytes, at least one; `None` when all are read.
    pub async fn next_page(&mut self, events: usize, bytes: usize) -> Result<Option<ReplayPage>, BusError> {
        while self.next < self.end {
            let limit = PageLimit { events: events.max(1), bytes };
            let EventPage { mut events, next, expired } =
                self.groups.base.store.read(&self.topic, self.next, limit).await?;
            events.retain(|event| event.offset < self.end);
            self.move_to(next);
            if self.normalize {
                events = lift_events(&self.groups.schemas, events).await;
            }
            if !events.is_empty() || expired > 0 {
                return Ok(Some(ReplayPage { topic: self.topic.clone(), events, next: self.next, expired }));
            }
        }
        Ok(None)
    }

    /// As `next_page`, with every event appended to `out` by `render` instead of being kept; there may be none, and
    /// still more to come.
    pub async fn next_rendered(
        &mut self,
        events: usize,
        bytes: usize,
        mut out: Vec<u8>,
        render: &Arc<Render>,
    ) -> Result<Option<Vec<u8>>, BusError> {
        if self.normalize {
            let Some(page) = self.next_page(events, bytes).await? else { return Ok(None) };
            let written = page.events.iter().try_for_each(|event| render(&mut out, &event.as_ref()));
            written.map_err(ReadError::from)?;
            return Ok(Some(out));
        }
        if self.next >= self.end {
            return Ok(None);
        }
        let (end, render) = (self.end, Arc::clone(render));
        let below_end: Arc<Render> =
            Arc::new(move |out, event| if event.offset < end { render(out, event) } else { Ok(()) });
        let limit = PageLimit { events: events.max(1), bytes };
        let page =
            self.groups.base.store.read_rendered(&self.topic, self.next, limit, out, below_end).await?;
        self.move_to(page.next);
        Ok(Some(page.out))
    }

    /// A topic that was deleted meanwhile has nothing more; its end would never be reached.
    fn move_to(&mut self, next: Offset) {
        self.next = if next > self.next { next.min(self.end) } else { self.end };
    }
}
