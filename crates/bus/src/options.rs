//! How a bus is opened.

use std::collections::BTreeMap;

use promethean_model::{Limits, TopicName, TopicSettings};

use crate::limits::Rate;
use crate::metrics::BusMetrics;

/// Bounds and rules of a bus. `Default` suits a server.
#[derive(Debug, Clone)]
pub struct BusOptions {
    /// Caps on what is published.
    pub limits: Limits,
    /// Whether a topic comes into being when something is published to it. Default: true.
    pub auto_create: bool,
    /// How fast any one topic may be published to. Default: any.
    pub topic_rate: Option<Rate>,
    /// Topics whose rate is counted apart; a topic beyond waits for an idle one to be forgotten. Default: 10,000.
    pub rated_topics_max: usize,
    /// What is set for topics by name, also for another of that name after one is deleted. Setting it when the bus is opened
    /// is up to the caller. Default: nothing.
    pub topics: BTreeMap<TopicName, TopicSettings>,
    /// Topics, and groups, that get metrics of their own. Default: 1,000.
    pub series_max: usize,
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
        }
    }
}
