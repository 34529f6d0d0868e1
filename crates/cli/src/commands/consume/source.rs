//! Where events come from: topics that are only looked at, or a group.

use anyhow::{Result, ensure};
use futures_util::future::FutureExt;
use futures_util::stream::{SelectAll, StreamExt, TryStreamExt};
use promethean_client::{Client, EventStream, Lease, Leases, SettleAnswer, StartFrom};
use promethean_delivery::Subject;
use serde_json::value::RawValue;
use std::time::Duration;

use super::format::UntypedEvent;
use super::{AckMode, SubArgs};

/// Events that are printed at once, at most.
const BATCH: usize = 512;
/// Events that a member has at once, at most.
const IN_FLIGHT: usize = 2_000;
/// Topics that are followed without a group, at most: each takes a connection.
const TOPICS_MAX: usize = 64;
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// One event, with its lease if a group has it.
pub(super) enum IncomingEvent {
    Seen(UntypedEvent),
    Leased(Lease<Box<RawValue>>),
}

impl IncomingEvent {
    pub(super) fn event(&self) -> &UntypedEvent {
        match self {
            Self::Seen(event) => event,
            Self::Leased(lease) => lease.event(),
        }
    }

    /// Finishes the event for its group.
    pub(super) fn ack(self) -> Option<SettleAnswer> {
        match self {
            Self::Seen(_) => None,
            Self::Leased(lease) => Some(lease.ack()),
        }
    }
}

/// Events as they come.
pub(super) enum EventSource {
    Topics(SelectAll<EventStream<Box<RawValue>>>),
    Group(Leases<Box<RawValue>>),
}

impl EventSource {
    /// The events of a group.
    pub(super) async fn group(args: &SubArgs, client: &Client, group: &str) -> Result<Self> {
        let topic = args.topics.first().map(String::as_str).unwrap_or_default();
        let limit = args.limit.and_then(|limit| usize::try_from(limit).ok());
        let in_flight = limit.unwrap_or(IN_FLIGHT).min(IN_FLIGHT);
        let subscribe = client.subscribe(topic, group).max_in_flight(in_flight);
        // Without a position, a group that exists goes on where it was.
        let subscribe = match args.from {
            Some(from) => subscribe.from(from),
            None => subscribe,
        };
        let subscribe = match args.ack {
            AckMode::Auto => subscribe.auto_ack(),
            AckMode::Printed | AckMode::None => subscribe,
        };
        Ok(Self::Group(subscribe.leases().await?))
    }

    /// The events of topics, without a group. Patterns stand for the topics that there are now.
    pub(super) async fn topics(
        client: &Client,
        topics: &[String],
        from: StartFrom,
        note: &impl Fn(&str),
    ) -> Result<Self> {
        let (admin, reader) = (client.admin(), client.reader());
        let mut names = Vec::new();
        for topic in topics {
            match topic.parse::<Subject>()? {
                Subject::Topic(name) => {
                    match admin.topic(name.as_str()).await {
                        Err(error) if error.code() == "unknown_topic" => {
                            note(&format!("topic `{name}` does not exist yet; its first event creates it"));
                        }
                        known => drop(known?),
                    }
                    names.push(name.to_string());
                }
                Subject::Pattern(pattern) => {
                    let all: Vec<_> = admin.topics().try_collect().await?;
                    let matches = |name: &String| name.parse().is_ok_and(|name| pattern.matches(&name));
                    let found: Vec<String> = all.into_iter().map(|one| one.topic).filter(matches).collect();
                    ensure!(
                        !found.is_empty(),
                        "no topic matches `{topic}` yet; with --group, topics may come later"
                    );
                    note(&format!(
                        "`{topic}` is {}; with --group, topics that come later would count too",
                        found.join(", ")
                    ));
                    names.extend(found);
                }
            }
        }
        names.sort();
        names.dedup();
        ensure!(
            names.len() <= TOPICS_MAX,
            "{} topics are too many to follow without a group; add --group NAME, or name at most {TOPICS_MAX}",
            names.len()
        );
        Ok(Self::Topics(names.into_iter().map(|name| reader.follow(name, from)).collect()))
    }

    /// The next events: at least one, and all that are there already; `None` at the end.
    pub(super) async fn next_batch(&mut self) -> Result<Option<Vec<IncomingEvent>>> {
        let mut batch = Vec::new();
        let first = self.next().await.transpose()?;
        let Some(first) = first else { return Ok(None) };
        batch.push(first);
        while batch.len() < BATCH {
            match self.next().now_or_never() {
                Some(Some(next)) => batch.push(next?),
                Some(None) | None => break,
            }
        }
        Ok(Some(batch))
    }

    async fn next(&mut self) -> Option<Result<IncomingEvent>> {
        match self {
            Self::Topics(events) => {
                events.next().await.map(|event| event.map(IncomingEvent::Seen).map_err(Into::into))
            }
            Self::Group(leases) => {
                leases.next().await.map(|lease| lease.map(IncomingEvent::Leased).map_err(Into::into))
            }
        }
    }

    /// Leaves the group; other members get the events that were not finished.
    pub(super) async fn close(&self) -> Result<()> {
        match self {
            Self::Topics(_) => Ok(()),
            Self::Group(leases) => Ok(leases.close_within(CLOSE_WITHIN).await?),
        }
    }
}
