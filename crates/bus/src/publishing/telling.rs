//! What is counted of publishes, and who hears of topics that are born by them.

use std::collections::BTreeSet;
use std::sync::Arc;

use promethean_model::TopicName;
use promethean_store::port::Placed;

use crate::core::Core;
use crate::metrics::TopicSeries;

/// Counts what was published; neighbours of one topic are counted with one look at the table.
pub(crate) struct Counts<'a> {
    core: &'a Core,
    last: Option<(TopicName, Arc<TopicSeries>)>,
}

impl<'a> Counts<'a> {
    pub(crate) const fn new(core: &'a Core) -> Self {
        Self { core, last: None }
    }

    pub(crate) fn add(&mut self, topic: &TopicName, placed: Placed) {
        let last = self.last.take().filter(|(last, _)| last == topic);
        let (_, series) =
            self.last.insert(last.unwrap_or_else(|| (topic.clone(), self.core.metrics.topic(topic))));
        if placed.duplicate {
            series.duplicates.inc();
        } else {
            series.published.inc();
        }
        // A duplicate too: the first publisher may not have lived to tell.
        if placed.offset.get() == 0 {
            // Nobody may be following patterns.
            let _ = self.core.births.send(topic.clone());
        }
    }
}

/// Topics that may be born by a publish whose publisher goes away: the store goes on, and those who follow patterns
/// would never hear.
pub(super) struct Unheard<'a> {
    core: &'a Core,
    topics: BTreeSet<TopicName>,
}

impl<'a> Unheard<'a> {
    pub(super) fn new<'p>(core: &'a Core, pending: impl IntoIterator<Item = &'p TopicName>) -> Self {
        let (mut topics, mut last) = (BTreeSet::new(), None);
        for topic in pending {
            // A topic with events has been born and announced.
            if last.replace(topic) != Some(topic) && core.store.durable_end(topic).get() == 0 {
                topics.insert(topic.clone());
            }
        }
        Self { core, topics }
    }

    /// The outcome is known, and will be told by `count`.
    pub(super) fn heard(mut self) {
        self.topics.clear();
    }
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        for topic in std::mem::take(&mut self.topics) {
            // Nobody may be following patterns.
            let _ = self.core.births.send(topic);
        }
    }
}
