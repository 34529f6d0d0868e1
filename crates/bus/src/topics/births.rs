//! News of new topics, and the counts of published events that they follow from.

use std::collections::BTreeSet;
use std::sync::Arc;

use promethean_model::TopicName;
use promethean_store::port::Placed;

use super::Topics;
use crate::metrics::TopicSeries;

/// Counts published events, and announces the topics whose first event is among them.
pub(crate) struct PublishCounts<'a> {
    topics: &'a Topics,
    /// The series of the last topic: neighbours of one topic take one look at the table.
    last: Option<(TopicName, Arc<TopicSeries>)>,
}

impl<'a> PublishCounts<'a> {
    pub(crate) const fn new(topics: &'a Topics) -> Self {
        Self { topics, last: None }
    }

    pub(crate) fn add(&mut self, topic: &TopicName, placed: Placed) {
        let last = self.last.take().filter(|(last, _)| last == topic);
        let look_up = || (topic.clone(), self.topics.base.metrics.topic(topic));
        let (_, series) = self.last.insert(last.unwrap_or_else(look_up));
        if placed.duplicate {
            series.duplicates.inc();
        } else {
            series.published.inc();
        }
        // Also for a duplicate: the first publisher may have died before it could announce the topic.
        if placed.offset.get() == 0 {
            self.topics.announce(topic.clone());
        }
    }
}

/// Topics that a publish may create. If the publisher goes away before the outcome is known, the store goes on; so the
/// topics are announced when this is dropped, unless [`PendingBirths::settle`] was called.
pub(crate) struct PendingBirths<'a> {
    topics: &'a Topics,
    names: BTreeSet<TopicName>,
}

impl<'a> PendingBirths<'a> {
    pub(crate) fn new<'p>(topics: &'a Topics, published: impl IntoIterator<Item = &'p TopicName>) -> Self {
        let (mut names, mut last) = (BTreeSet::new(), None);
        for topic in published {
            // A topic with events is already announced.
            if last.replace(topic) != Some(topic) && topics.base.store.durable_end(topic).get() == 0 {
                names.insert(topic.clone());
            }
        }
        Self { topics, names }
    }

    /// The outcome is known: [`PublishCounts`] announces what was created.
    pub(crate) fn settle(mut self) {
        self.names.clear();
    }
}

impl Drop for PendingBirths<'_> {
    fn drop(&mut self) {
        for topic in std::mem::take(&mut self.names) {
            self.topics.announce(topic);
        }
    }
}
