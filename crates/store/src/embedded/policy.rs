//! Topic settings as the log understands them.

use promethean_log::{Topic, TopicPolicy};
use promethean_model::{IgnorePoison, TopicName, TopicSettings};

use super::parts::Parts;
use crate::state::{StateFault, read};

/// The part of the settings that the log carries out.
pub(super) fn policy(settings: &TopicSettings) -> TopicPolicy {
    let retention = settings.retention;
    TopicPolicy {
        age_ms: retention.age.map(promethean_model::Millis::get),
        bytes: retention.bytes,
        count: retention.count,
        compacted: settings.compacted,
        dedupe_window_ms: settings.dedupe_window.get(),
        ..TopicPolicy::default()
    }
}

impl Parts {
    /// Gives the log what is set for a topic, if the topic exists.
    ///
    /// Called after a change of settings is applied and after a batch has made the topic: whichever is later finds
    /// both.
    pub(super) fn push_policy(&self, name: &TopicName) -> Result<(), StateFault> {
        match self.log.topic(name) {
            Some(topic) => self.push_policy_to(&topic),
            None => Ok(()),
        }
    }

    /// As `push_policy`, for topics that an accepted batch has made.
    pub(super) fn push_policies(&self, made: &[TopicName]) {
        for topic in made {
            if let Err(fault) = self.push_policy(topic) {
                // The batch is accepted all the same; it is the engine that cannot be trusted any more.
                self.overlay.fail(&fault.to_string());
            }
        }
    }

    pub(super) fn push_policy_to(&self, topic: &Topic) -> Result<(), StateFault> {
        // Read and set under one lock, or of two changes the older could be set last.
        let _one_at_a_time = self.policies.lock().ignore_poison();
        let settings = read::settings(&self.engine, topic.name())?.unwrap_or_default();
        self.log.set_policy(topic, policy(&settings));
        Ok(())
    }
}
