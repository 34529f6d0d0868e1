//! An alarm that says when retention waits for a projector or a compactor, so that a person acts before space
//! runs out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use promethean_model::{GroupName, TopicName};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::compactor::CompactorHandle;
use crate::projections::ProjectionContext;

/// How often the alarm looks; as often as retention runs.
const EVERY: Duration = Duration::from_secs(1);

/// The number of events, by topic, that retention keeps only because a projector or compactor has yet to read
/// them.
pub(crate) type HeldEvents = BTreeMap<TopicName, u64>;

/// Looks at the topics of projectors and compactors until the server stops.
pub(crate) struct RetentionAlarm {
    pub(crate) context: Arc<ProjectionContext>,
    /// Projectors, and the topics they read.
    pub(crate) projectors: Vec<(GroupName, TopicName)>,
    /// Compactors. A compactor lags by a round as a rule, so it counts only if its rounds fail.
    pub(crate) compactors: Vec<CompactorHandle>,
    pub(crate) held: watch::Sender<HeldEvents>,
}

impl RetentionAlarm {
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        while tokio::time::timeout(EVERY, stop.wait_for(|stop| *stop)).await.is_err() {
            let held = self.look().await;
            self.log_changes(&held);
            self.held.send_replace(held);
        }
    }

    /// The readers that retention should not have to wait for.
    fn readers(&self) -> impl Iterator<Item = (&GroupName, &TopicName)> {
        let fails = |compactor: &&CompactorHandle| compactor.status.borrow().last_error.is_some();
        let compactors = self.compactors.iter().filter(fails);
        let projectors = self.projectors.iter().map(|(group, topic)| (group, topic));
        projectors.chain(compactors.map(|compactor| (&compactor.group, &compactor.topic)))
    }

    async fn look(&self) -> HeldEvents {
        let topics: BTreeSet<&TopicName> = self.readers().map(|(_, topic)| topic).collect();
        let mut held = HeldEvents::new();
        for topic in topics {
            // An error is passed over: every reader of the topic gets the same error.
            if let Ok(Some(info)) = self.context.store.topic_info(topic).await
                && info.held > 0
            {
                held.insert(topic.clone(), info.held);
            }
        }
        held
    }

    fn log_changes(&self, now: &HeldEvents) {
        let before = self.held.borrow();
        for (topic, events) in now.iter().filter(|(topic, _)| !before.contains_key(*topic)) {
            let readers = self.readers().filter(|(_, read)| *read == topic);
            let readers: Vec<&str> = readers.map(|(group, _)| group.as_str()).collect();
            warn!(%topic, events, ?readers, "retention waits until these have read the topic, or space runs out");
        }
        for topic in before.keys().filter(|topic| !now.contains_key(*topic)) {
            info!(%topic, "retention no longer waits");
        }
    }
}
