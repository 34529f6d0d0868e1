//! Says when retention waits for a projector or a compactor, so that somebody sees to it before space runs out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use promethean_model::{GroupName, TopicName};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::compactor::CompactorStatus;
use crate::runner::Parts;

/// As often as retention looks.
const EVERY: Duration = Duration::from_secs(1);

/// Events that retention would have taken, by topic, but for those who have still to read them.
pub(crate) type Held = BTreeMap<TopicName, u64>;

/// Looks at topics until told to stop.
pub(crate) struct Alarm {
    pub(crate) parts: Arc<Parts>,
    /// Projectors.
    pub(crate) projectors: Vec<(GroupName, TopicName)>,
    /// Compactors, which lag by a round as a rule, and are a reason to worry only if that fails.
    pub(crate) compactors: Vec<(GroupName, TopicName, watch::Receiver<CompactorStatus>)>,
    pub(crate) held: watch::Sender<Held>,
}

impl Alarm {
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        while tokio::time::timeout(EVERY, stop.wait_for(|stop| *stop)).await.is_err() {
            let held = self.look().await;
            self.tell(&held);
            self.held.send_replace(held);
        }
    }

    /// Those that retention should not have to wait for.
    fn readers(&self) -> impl Iterator<Item = (&GroupName, &TopicName)> {
        let fails = |status: &watch::Receiver<CompactorStatus>| status.borrow().last_error.is_some();
        let compactors = self.compactors.iter().filter(move |(.., status)| fails(status));
        let projectors = self.projectors.iter().map(|(group, topic)| (group, topic));
        projectors.chain(compactors.map(|(group, topic, _)| (group, topic)))
    }

    async fn look(&self) -> Held {
        let topics: BTreeSet<&TopicName> = self.readers().map(|(_, topic)| topic).collect();
        let mut held = Held::new();
        for topic in topics {
            // A store that cannot tell says so to whoever reads.
            if let Ok(Some(info)) = self.parts.store.topic_info(topic).await
                && info.held > 0
            {
                held.insert(topic.clone(), info.held);
            }
        }
        held
    }

    fn tell(&self, now: &Held) {
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
