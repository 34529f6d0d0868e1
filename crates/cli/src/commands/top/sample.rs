//! What the server says at one time.

use anyhow::Result;
use futures_util::stream::{StreamExt, TryStreamExt};
use promethean_client::{Client, GroupDescription, TopicDescription};
use promethean_model::TopicName;
use serde_json::Value;
use tokio::time::Instant;

/// Groups and topics that are asked for, at most: each page is a request.
const GROUPS_MAX: usize = 2_000;
const TOPICS_MAX: usize = 10_000;
const DEAD_LETTERS: &str = ".dlq";

/// The state of a server at one time.
#[derive(Debug)]
pub(super) struct TopSample {
    pub(super) taken: Instant,
    pub(super) health: String,
    pub(super) groups: Vec<GroupDescription>,
    /// The topics of users.
    pub(super) topics: Vec<TopicDescription>,
    /// The events of all topics of dead letters.
    pub(super) dead: u64,
}

impl TopSample {
    pub(super) async fn take(client: &Client) -> Result<Self> {
        let admin = client.admin();
        let health = admin.health().await?;
        let health = health.get("status").and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let groups = admin.groups(None).take(GROUPS_MAX).try_collect().await?;
        let all: Vec<TopicDescription> = admin.topics().take(TOPICS_MAX).try_collect().await?;
        let dead = all.iter().filter(|topic| topic.topic.ends_with(DEAD_LETTERS));
        let dead = dead.map(|topic| topic.end - topic.earliest).sum();
        let is_users =
            |topic: &TopicDescription| topic.topic.parse::<TopicName>().is_ok_and(|name| !name.is_system());
        let topics = all.into_iter().filter(is_users).collect();
        Ok(Self { taken: Instant::now(), health, groups, topics, dead })
    }
}
