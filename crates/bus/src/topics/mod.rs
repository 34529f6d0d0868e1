//! Topics: what is set for them, who may enter them, how they are created and announced.
//!
//! | module | holds |
//! | --- | --- |
//! | `settings` | the settings of all topics that have any, in memory |
//! | `gate` | entries into topics, and the gate that a deletion closes |
//! | `births` | news of new topics for the followers of patterns, and the counts of published events |
//! | `start` | from a start that a user names to an offset |
//!
//! Deleting a topic concerns its groups and schemas too, so it is above them: see `topic_deletion`.

mod births;
mod gate;
mod settings;
mod start;

use std::sync::Arc;

use promethean_delivery::Pattern;
use promethean_model::{TopicName, TopicSettings};
use promethean_store::port::{Batch, SettingsOp, TopicInfo, TopicOp, TopicPage};
use tokio::sync::broadcast;

pub(crate) use self::births::{PendingBirths, PublishCounts};
pub(crate) use self::gate::{ClosedGate, TopicEntries, TopicEntry, TopicGates};
pub(crate) use self::settings::{LastSettings, SettingsMirror};
pub(crate) use self::start::{floor_of, resolve_start};
use crate::base::Base;
use crate::error::BusError;
use crate::limits::BucketSet;
use crate::locks::StripedLock;

/// Topics read at once.
const TOPICS_PAGE: usize = 1000;
/// New topics that a slow follower of a pattern has not heard of yet. Beyond this it lists all topics again.
const BIRTHS_MAX: usize = 1024;

/// The topic layer of one bus.
#[derive(Debug)]
pub(crate) struct Topics {
    pub(crate) base: Arc<Base>,
    pub(crate) settings: SettingsMirror,
    pub(crate) gates: TopicGates,
    /// Held while the settings of a topic change, and while it is created or deleted.
    pub(crate) locks: StripedLock,
    /// Names of topics that came into being.
    pub(crate) births: broadcast::Sender<TopicName>,
    /// Publish rates of single topics, where a rate is set.
    pub(crate) rates: Option<BucketSet<TopicName>>,
}

impl Topics {
    /// Reads the stored settings.
    pub(crate) async fn load(base: Arc<Base>) -> Result<Self, BusError> {
        let settings = SettingsMirror::load(&*base.store).await?;
        let (options, now_ms) = (&base.options, base.clock.monotonic_ms());
        let rates = options.topic_rate.map(|rate| BucketSet::new(rate, options.rated_topics_max, now_ms));
        Ok(Self {
            settings,
            gates: TopicGates::default(),
            locks: StripedLock::default(),
            births: broadcast::channel(BIRTHS_MAX).0,
            rates,
            base,
        })
    }

    /// One topic, which must exist.
    pub(crate) async fn require(&self, topic: &TopicName) -> Result<TopicInfo, BusError> {
        let info = self.base.store.topic_info(topic).await?;
        info.ok_or_else(|| BusError::UnknownTopic { topic: topic.clone() })
    }

    /// Calls `see` for every topic, in the order of their names.
    pub(crate) async fn each(&self, mut see: impl FnMut(TopicInfo)) -> Result<(), BusError> {
        let mut after: Option<TopicName> = None;
        loop {
            let page = self.base.store.topics(after.as_ref(), TOPICS_PAGE).await?;
            page.topics.into_iter().for_each(&mut see);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Topics that are wanted, by name, after `after`, at most `limit`. `next` names only a topic that is wanted: a client
    /// must not learn the names of others.
    pub(crate) async fn page(
        &self,
        after: Option<&TopicName>,
        limit: usize,
        wanted: impl Fn(&TopicName) -> bool,
    ) -> Result<TopicPage, BusError> {
        let mut after = after.cloned();
        let mut topics = Vec::new();
        loop {
            let page = self.base.store.topics(after.as_ref(), TOPICS_PAGE).await?;
            for info in page.topics {
                if !wanted(&info.name) {
                    continue;
                }
                if topics.len() == limit {
                    return Ok(TopicPage { next: last_name(&topics), topics });
                }
                topics.push(info);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(TopicPage { topics, next: None }),
            }
        }
    }

    /// All topics that a pattern matches.
    pub(crate) async fn matching(&self, pattern: &Pattern) -> Result<Vec<TopicName>, BusError> {
        Ok(self.matching_after(pattern, None, usize::MAX).await?.0)
    }

    /// Topics that a pattern matches, by name, after `after`, at most `limit`, and how many topics were looked at. Looks
    /// only at topics that begin with the pattern's first words: at all topics, if it begins with `*`.
    pub(crate) async fn matching_after(
        &self,
        pattern: &Pattern,
        after: Option<&TopicName>,
        limit: usize,
    ) -> Result<(Vec<TopicName>, usize), BusError> {
        let prefix = pattern.prefix();
        // No topic has the prefix as its name and matches: something must take the place of the first `*`.
        let mut after = after.cloned().or_else(|| prefix.parse().ok());
        let (mut found, mut looked) = (Vec::new(), 0);
        let mut page_topics = TOPICS_PAGE.min(limit);
        loop {
            let page = self.base.store.topics(after.as_ref(), page_topics).await?;
            looked += page.topics.len();
            page_topics = TOPICS_PAGE;
            for TopicInfo { name, .. } in page.topics {
                if !name.as_str().starts_with(prefix) && name.as_str() > prefix {
                    return Ok((found, looked));
                }
                if pattern.matches(&name) {
                    found.push(name);
                }
                if found.len() >= limit {
                    return Ok((found, looked));
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok((found, looked)),
            }
        }
    }

    /// Creates a topic, empty. A topic that exists stays as it is.
    pub(crate) async fn create(self: &Arc<Self>, topic: &TopicName) -> Result<(), BusError> {
        TopicName::parse_user(topic.as_str())?;
        let (topics, topic) = (Arc::clone(self), topic.clone());
        let create = async move {
            let _lock = topics.locks.lock(&topic).await;
            topics.base.store.commit(Batch::new().with(TopicOp::Create(topic.clone()))).await?;
            topics.announce(topic);
            Ok(())
        };
        self.base.run_to_end(create).await
    }

    /// Creates a topic with settings, or sets a topic that exists: both or nothing.
    pub(crate) async fn create_with(
        self: &Arc<Self>,
        topic: &TopicName,
        settings: TopicSettings,
    ) -> Result<(), BusError> {
        TopicName::parse_user(topic.as_str())?;
        settings.validate()?;
        let (topics, topic) = (Arc::clone(self), topic.clone());
        let create = async move {
            let _lock = topics.locks.lock(&topic).await;
            let batch = Batch::new().with(TopicOp::Create(topic.clone()));
            let batch = batch.with(SettingsOp::Put(topic.clone(), settings.clone()));
            topics.base.store.commit(batch).await?;
            topics.settings.put(&topic, Some(settings));
            topics.announce(topic);
            Ok(())
        };
        self.base.run_to_end(create).await
    }

    /// Sets everything that can be set for a topic.
    pub(crate) async fn set(
        self: &Arc<Self>,
        topic: &TopicName,
        settings: TopicSettings,
    ) -> Result<(), BusError> {
        settings.validate()?;
        let (topics, topic) = (Arc::clone(self), topic.clone());
        let set = async move {
            // Under the lock, so that the settings in memory follow the store in its order.
            let _lock = topics.locks.lock(&topic).await;
            let op = SettingsOp::Put(topic.clone(), settings.clone());
            topics.base.store.commit(Batch::new().with(op)).await?;
            topics.settings.put(&topic, Some(settings));
            Ok(())
        };
        self.base.run_to_end(set).await
    }

    /// Tells the followers of patterns that a topic came into being, or may have.
    pub(crate) fn announce(&self, topic: TopicName) {
        // An error means that there are no followers now.
        let _ = self.births.send(topic);
    }
}

fn last_name(topics: &[TopicInfo]) -> Option<TopicName> {
    topics.last().map(|last| last.name.clone())
}
