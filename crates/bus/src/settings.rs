//! The settings of all topics that have any, in memory.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use promethean_model::{IgnorePoison, TopicName, TopicSettings};
use promethean_store::port::Store;

use crate::error::BusError;

/// Settings read at once.
const PAGE: usize = 1000;

/// What every publish asks for. As large as there are topics with settings, which the store bounds.
#[derive(Debug, Default)]
pub(crate) struct SettingsMirror {
    set: RwLock<HashMap<TopicName, Arc<TopicSettings>>>,
    /// What all other topics have.
    defaults: Arc<TopicSettings>,
}

impl SettingsMirror {
    /// Reads what is stored.
    pub(crate) async fn load(store: &dyn Store) -> Result<Self, BusError> {
        let mut set = HashMap::new();
        let mut after: Option<TopicName> = None;
        loop {
            let page = store.settings_page(after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.topic.clone());
            set.extend(page.into_iter().map(|config| (config.topic, Arc::new(config.settings))));
        }
        Ok(Self { set: RwLock::new(set), defaults: Arc::default() })
    }

    /// What a topic has.
    pub(crate) fn get(&self, topic: &TopicName) -> Arc<TopicSettings> {
        let set = self.set.read().ignore_poison();
        Arc::clone(set.get(topic).unwrap_or(&self.defaults))
    }

    /// Follows a change that is stored.
    pub(crate) fn put(&self, topic: &TopicName, settings: Option<TopicSettings>) {
        let mut set = self.set.write().ignore_poison();
        match settings {
            Some(settings) => drop(set.insert(topic.clone(), Arc::new(settings))),
            None => drop(set.remove(topic)),
        }
    }
}
