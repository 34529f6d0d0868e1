//! Reading events without a group: by offset, time or id, of one topic or of all that match a pattern.

use std::sync::Arc;

use promethean_delivery::Subject;
use promethean_model::{Offset, TopicName};
use promethean_store::port::{EventPage, PageLimit, StoredEvent};

use crate::bus::Bus;
use crate::error::BusError;
use crate::groups::Groups;
use crate::rows::StartPosition;
use crate::schemas::lift_events;
use crate::topics::resolve_start;

/// Most events and bytes of a page.
const PAGE_EVENTS_MAX: usize = 10_000;
const PAGE_BYTES: usize = 4 << 20;

/// Events of a page, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayPage {
    /// The topic.
    pub topic: TopicName,
    /// In offset order.
    pub events: Vec<StoredEvent>,
    /// Where to go on.
    pub next: Offset,
    /// Offsets that retention dropped before they were read.
    pub expired: u64,
}

/// A scan. It ends where its topics ended when it reached them.
#[derive(Debug)]
pub struct Replay {
    groups: Arc<Groups>,
    normalize: bool,
    from: StartPosition,
    /// Topics not begun yet, the next one last.
    topics: Vec<TopicName>,
    /// The topic being read, from where, up to where.
    current: Option<(TopicName, Offset, Offset)>,
}

impl Bus {
    /// Starts a scan. A pattern's topics are read one after the other, by name.
    pub async fn replay(&self, subject: &Subject, from: StartPosition) -> Result<Replay, BusError> {
        let mut topics = match subject {
            Subject::Topic(topic) => vec![topic.clone()],
            Subject::Pattern(pattern) => self.groups.topics.matching(pattern).await?,
        };
        if let (Subject::Pattern(_), StartPosition::AfterId(_) | StartPosition::Offset(_)) = (subject, from) {
            let reason = "a pattern has many topics; use earliest, latest or ts".to_owned();
            return Err(BusError::BadSeek { reason });
        }
        topics.reverse();
        Ok(Replay { groups: Arc::clone(&self.groups), normalize: false, from, topics, current: None })
    }
}

impl Replay {
    /// Lifts events of old schema versions to the latest, or no longer.
    #[must_use]
    pub fn normalize(mut self, normalize: bool) -> Self {
        self.normalize = normalize;
        self
    }

    /// The next events, at most `limit` and 10,000; `None` when all are read.
    pub async fn next_page(&mut self, limit: usize) -> Result<Option<ReplayPage>, BusError> {
        loop {
            let Some((topic, from, end)) = self.current.take() else {
                let Some(topic) = self.topics.pop() else { return Ok(None) };
                self.current = Some(self.begin(topic).await?);
                continue;
            };
            if from >= end {
                continue;
            }
            let limit = PageLimit { events: limit.clamp(1, PAGE_EVENTS_MAX), bytes: PAGE_BYTES };
            let EventPage { mut events, next, expired } =
                self.groups.base.store.read(&topic, from, limit).await?;
            events.retain(|event| event.offset < end);
            let next = next.min(end);
            if next > from {
                self.current = Some((topic.clone(), next, end));
            }
            if self.normalize {
                events = lift_events(&self.groups.schemas, events).await;
            }
            if !events.is_empty() || expired > 0 {
                return Ok(Some(ReplayPage { topic, events, next, expired }));
            }
        }
    }

    async fn begin(&self, topic: TopicName) -> Result<(TopicName, Offset, Offset), BusError> {
        let (from, end) = resolve_start(&self.groups.topics, &topic, self.from).await?;
        Ok((topic, from, end))
    }
}
