//! Lookups: the latest event of a key, the cursors and the lag of groups.

use std::collections::BTreeMap;

use promethean_bus::groups::GroupQuery;
use promethean_bus::rows::GroupKey;
use promethean_bus::{Bus, StoredEvent};
use promethean_delivery::Subject;
use promethean_model::{EventId, GroupName, Offset, TopicName};
use serde::Serialize;
use serde_json::json;

use super::params::{GROUP, GROUPS_AFTER, GROUPS_LIMIT, TOPIC, group_text, groups_page, page_of};
use super::views::{self, BlockerReads, ProgressView};
use crate::http::call::Call;
use crate::http::operation::{Answer, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};
use crate::refusal::Refusal;

/// Keys of one request, at most.
const KEYS_MAX: usize = 100;

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/latest-by-key",
        id: "latestByKey",
        summary: "The latest event of each key, or null",
        params: &[
            TOPIC,
            Param::query("key", ParamType::Text, "a key; repeat it for more, up to 100").times(1, KEYS_MAX),
        ],
        body: None,
        answer: Answer::json("LatestByKey", "The events, by key"),
        refusals: &[],
        need: Need::Subscribe,
        handler: |call| Box::pin(latest_by_key(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/cursors",
        id: "cursors",
        summary: "How far the groups of a topic are. While there is `next`, go on with `after=next`.",
        params: &[TOPIC, GROUPS_AFTER, GROUPS_LIMIT],
        body: None,
        answer: Answer::json("Cursors", "The cursors, by group"),
        refusals: &[],
        need: Need::Subscribe,
        handler: |call| Box::pin(cursors(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/lag",
        id: "lag",
        summary: "How far one group is behind, in events and in milliseconds",
        params: &[TOPIC, GROUP],
        body: None,
        answer: Answer::json(
            "Lag",
            "The group's last finished event, the topic's last event, and what is between",
        ),
        refusals: &[404],
        need: Need::SubscribeAs,
        handler: |call| Box::pin(lag(call)),
    },
];

async fn latest_by_key(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    let mut keys: Vec<String> = call.args.all("key").map(str::to_owned).collect();
    keys.sort_unstable();
    keys.dedup();
    let found = call.app.bus.latest_by_key(&topic, &keys).await?;
    let mut events = BTreeMap::new();
    for (key, event) in keys.into_iter().zip(found) {
        events.insert(key, event.as_ref().map(views::event).transpose()?);
    }
    #[derive(Serialize)]
    struct Latest<E> {
        topic: TopicName,
        events: E,
    }
    reply::json(&Latest { topic, events })
}

/// An event's position in a topic.
#[derive(Debug, Serialize)]
struct At {
    offset: Offset,
    id: EventId,
    ts: i64,
}

impl At {
    fn of(event: &StoredEvent) -> Self {
        Self { offset: event.offset, id: event.id, ts: event.ts }
    }
}

/// The event before an offset, if it is still kept.
async fn before(bus: &Bus, topic: &TopicName, offset: Offset) -> Result<Option<At>, Refusal> {
    let Some(last) = offset.prev() else { return Ok(None) };
    Ok(bus.event_at(topic, last).await?.as_ref().map(At::of))
}

async fn cursors(call: &mut Call) -> Reply {
    #[derive(Serialize)]
    struct CursorView {
        group: GroupName,
        #[serde(skip_serializing_if = "Option::is_none")]
        last: Option<At>,
        #[serde(flatten)]
        progress: ProgressView,
    }
    let topic = call.topic()?;
    let subject = Subject::Topic(topic.clone());
    let (after, limit) = groups_page(&call.args)?;
    let query = GroupQuery { topic: Some(&topic), after: after.as_ref() };
    let viewer = call.viewer();
    let wanted = |key: &GroupKey| viewer.may_see_group(&subject, &key.group);
    let page = viewer.app.bus.groups_page(query, limit, wanted).await?;
    let (mut cursors, mut reads) = (Vec::new(), BlockerReads::new(&call.app.bus));
    for info in page.groups {
        for progress in info.topics {
            let last = before(&call.app.bus, &topic, progress.floor).await?;
            cursors.push(CursorView {
                group: info.group.clone(),
                last,
                progress: ProgressView::read(&mut reads, progress).await,
            });
        }
    }
    let mut answer = page_of("cursors", cursors, page.next.as_ref().map(group_text));
    answer.insert("topic".to_owned(), json!(topic));
    reply::json(&answer)
}

async fn lag(call: &mut Call) -> Reply {
    let (topic, group) = (call.topic()?, call.group()?);
    let progress = call.app.bus.group(&topic, &group).await?;
    let cursor = before(&call.app.bus, &topic, progress.floor).await?;
    let tail = before(&call.app.bus, &topic, progress.end).await?;
    let lag_ms = match (&cursor, &tail) {
        _ if progress.lag == 0 => Some(0),
        (Some(cursor), Some(tail)) => Some(tail.ts.saturating_sub(cursor.ts).max(0)),
        // No finished event is kept to measure from.
        _ => None,
    };
    reply::json(&json!({
        "topic": topic, "group": group, "cursor": cursor, "tail": tail, "lag_ms": lag_ms,
        "lag": progress.lag, "floor": progress.floor, "end": progress.end,
    }))
}
