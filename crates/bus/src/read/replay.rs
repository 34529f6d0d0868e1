//! Reading the events of a topic, or of all topics of a pattern, from an offset, a time or an id.

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

/// The most events and bytes of a page.
const PAGE_EVENTS_MAX: usize = 10_000;
const PAGE_BYTES: usize = 4 << 20;

/// A page of events, and the offset of the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayPage {
    /// The topic.
    pub topic: TopicName,
    /// In offset order.
    pub events: Vec<StoredEvent>,
    /// The offset at which the next page starts.
    pub next: Offset,
    /// How many events retention removed before they were read.
    pub expired: u64,
}

/// A replay of one or more topics. Each topic is read up to the end that it had when the replay reached it.
#[derive(Debug)]
pub struct Replay {
    groups: Arc<Groups>,
    normalize: bool,
    from: StartPosition,
    /// Topics not begun yet, the next one last.
    topics: Vec<TopicName>,
    /// The topic being read, the next offset, and the end.
    current: Option<(TopicName, Offset, Offset)>,
}

impl Bus {
    /// Starts a replay. The topics of a pattern are read one after the other, ordered by name.
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
    /// Sets whether events of old schema versions are lifted to the latest version.
    #[must_use]
    pub fn normalize(mut self, normalize: bool) -> Self {
        self.normalize = normalize;
        self
    }

    /// The next events: at most `limit`, and never more than 10,000. `None` when all are read. Cancel-safe: after an
    /// error, or if the call is dropped, the next call goes on where this one began.
    pub async fn next_page(&mut self, limit: usize) -> Result<Option<ReplayPage>, BusError> {
        loop {
            let Some((topic, from, end)) = self.current.clone() else {
                let Some(topic) = self.topics.last().cloned() else { return Ok(None) };
                let begun = self.begin(topic).await?;
                // Changed only after the last `await` that can fail or be dropped, here and below.
                self.topics.pop();
                self.current = Some(begun);
                continue;
            };
            if from >= end {
                self.current = None;
                continue;
            }
            let limit = PageLimit { events: limit.clamp(1, PAGE_EVENTS_MAX), bytes: PAGE_BYTES };
            let EventPage { mut events, next, expired } =
                self.groups.base.store.read(&topic, from, limit).await?;
            events.retain(|event| event.offset < end);
            let next = next.min(end);
            if self.normalize {
                events = lift_events(&self.groups.schemas, events).await;
            }
            // A read that did not advance means that the topic was deleted meanwhile.
            self.current = (next > from).then(|| (topic.clone(), next, end));
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
