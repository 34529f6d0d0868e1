//! Reading the events of one topic, page by page.

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

/// A scan of one topic, up to the end that the topic had when the scan began.
#[derive(Debug)]
pub struct Scan {
    groups: Arc<Groups>,
    normalize: bool,
    topic: TopicName,
    next: Offset,
    end: Offset,
}

impl Bus {
    /// Starts a scan. A topic that does not exist counts as empty.
    pub async fn scan(&self, topic: &TopicName, from: StartPosition) -> Result<Scan, BusError> {
        let (next, end) = resolve_start(&self.groups.topics, topic, from).await?;
        Ok(Scan { groups: Arc::clone(&self.groups), normalize: false, topic: topic.clone(), next, end })
    }
}

impl Scan {
    /// Sets whether events of old schema versions are lifted to the latest version.
    #[must_use]
    pub fn normalize(mut self, normalize: bool) -> Self {
        self.normalize = normalize;
        self
    }

    /// The offset that is read next.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// The offset before which the scan stops.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// Skips all events below an offset.
    pub fn skip_to(&mut self, offset: Offset) {
        self.next = self.next.max(offset);
    }

    /// The next events: at most `events` of them and about `bytes` bytes, but at least one. `None` when all
    /// are read. Cancel-safe: after an error, or if the call is dropped, the next call goes on where this one
    /// began.
    pub async fn next_page(&mut self, events: usize, bytes: usize) -> Result<Option<ReplayPage>, BusError> {
        while self.next < self.end {
            let limit = PageLimit { events: events.max(1), bytes };
            let EventPage { mut events, next, expired } =
                self.groups.base.store.read(&self.topic, self.next, limit).await?;
            events.retain(|event| event.offset < self.end);
            if self.normalize {
                events = lift_events(&self.groups.schemas, events).await;
            }
            // Only after the last `await`: a dropped call has lost no events.
            self.move_to(next);
            if !events.is_empty() || expired > 0 {
                return Ok(Some(ReplayPage { topic: self.topic.clone(), events, next: self.next, expired }));
            }
        }
        Ok(None)
    }

    /// Like `next_page`, but `render` appends every event to `out`. A result without events does not mean the
    /// end: only `None` does.
    pub async fn next_rendered(
        &mut self,
        events: usize,
        bytes: usize,
        mut out: Vec<u8>,
        render: &Arc<Render>,
    ) -> Result<Option<Vec<u8>>, BusError> {
        if self.normalize {
            let from = self.next;
            let Some(page) = self.next_page(events, bytes).await? else { return Ok(None) };
            let written = page.events.iter().try_for_each(|event| render(&mut out, &event.as_ref()));
            if let Err(error) = written {
                self.next = from;
                return Err(ReadError::from(error).into());
            }
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

    /// Moves to the next offset. If a read did not advance, the topic was deleted meanwhile, and the scan
    /// ends here: it would never reach its end.
    fn move_to(&mut self, next: Offset) {
        self.next = if next > self.next { next.min(self.end) } else { self.end };
    }
}
