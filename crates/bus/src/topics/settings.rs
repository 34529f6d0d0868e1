//! The settings of all topics that have any, in memory.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use promethean_model::{IgnorePoison, TopicName, TopicSettings};
use promethean_store::port::Store;

use super::Topics;
use crate::error::BusError;

/// Settings read at once.
const SETTINGS_PAGE: usize = 1000;

/// The settings of topics, in memory, since every publish needs them. The store bounds how many topics have settings.
#[derive(Debug, Default)]
pub(crate) struct SettingsMirror {
    set: RwLock<HashMap<TopicName, Arc<TopicSettings>>>,
    /// The settings of all other topics.
    defaults: Arc<TopicSettings>,
}

impl SettingsMirror {
    /// Reads the stored settings.
    pub(crate) async fn load(store: &dyn Store) -> Result<Self, BusError> {
        let mut set = HashMap::new();
        let mut after: Option<TopicName> = None;
        loop {
            let page = store.settings_page(after.as_ref(), SETTINGS_PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.topic.clone());
            set.extend(page.into_iter().map(|config| (config.topic, Arc::new(config.settings))));
        }
        Ok(Self { set: RwLock::new(set), defaults: Arc::default() })
    }

    /// The settings of a topic.
    pub(crate) fn get(&self, topic: &TopicName) -> Arc<TopicSettings> {
        let set = self.set.read().ignore_poison();
        Arc::clone(set.get(topic).unwrap_or(&self.defaults))
    }

    /// Repeats a change that the store has committed.
    pub(crate) fn put(&self, topic: &TopicName, settings: Option<TopicSettings>) {
        let mut set = self.set.write().ignore_poison();
        match settings {
            Some(settings) => drop(set.insert(topic.clone(), Arc::new(settings))),
            None => drop(set.remove(topic)),
        }
    }
}

/// Looks settings up once for neighbouring events of one topic.
pub(crate) struct LastSettings<'a> {
    topics: &'a Topics,
    last: Option<(TopicName, Arc<TopicSettings>)>,
}

impl<'a> LastSettings<'a> {
    pub(crate) const fn new(topics: &'a Topics) -> Self {
        Self { topics, last: None }
    }

    pub(crate) fn get(&mut self, topic: &TopicName) -> &TopicSettings {
        let last = self.last.take().filter(|(last, _)| last == topic);
        &self.last.insert(last.unwrap_or_else(|| (topic.clone(), self.topics.settings.get(topic)))).1
    }
}
