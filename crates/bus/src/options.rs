//! The options of a bus.

use std::collections::BTreeMap;

use promethean_model::{Limits, TopicName, TopicSettings};

use crate::limits::Rate;
use crate::metrics::BusMetrics;

/// The limits and rules of a bus. The defaults suit a server.
#[derive(Debug, Clone)]
pub struct BusOptions {
    /// The limits of published events.
    pub limits: Limits,
    /// Whether publishing to a topic that does not exist creates it. Default: true.
    pub auto_create: bool,
    /// The publish rate of each topic. Default: no limit.
    pub topic_rate: Option<Rate>,
    /// How many topics have a rate limit of their own. Topics beyond this number share one, until the limit
    /// of an idle topic is dropped. Default: 10,000.
    pub rated_topics_max: usize,
    /// Configured settings by topic name. They are stored again when a topic of this name is deleted, for the
    /// next topic of the name. Storing them when the bus is opened is the caller's task. Default: none.
    pub topics: BTreeMap<TopicName, TopicSettings>,
    /// How many topics, and how many groups, get metrics of their own. Default: 1,000.
    pub series_max: usize,
    /// The bytes of events that are being read for groups, all groups together. A larger page is read alone. Default:
    /// 64 MiB. Maximum: 4 GiB.
    pub group_page_bytes_max: usize,
}

impl Default for BusOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            auto_create: true,
            topic_rate: None,
            rated_topics_max: 10_000,
            topics: BTreeMap::new(),
            series_max: BusMetrics::SERIES_MAX_DEFAULT,
            group_page_bytes_max: 64 << 20,
        }
    }
}
