//! `/dedupe`: marks of events that a group has handled.

use axum::http::StatusCode;
use promethean_bus::DedupeStore;
use promethean_model::EventId;
use serde_json::json;

use crate::http::call::Call;
use crate::http::operation::{Answer, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};
use crate::refusal::Refusal;

const TTL_MS_DEFAULT: u64 = 7 * 24 * 60 * 60 * 1000;
const TTL_MS_MAX: i64 = 100 * 365 * 24 * 60 * 60 * 1000;

const TOPIC: Param = Param::path("topic", ParamType::Topic, "the topic");
const GROUP: Param = Param::path("group", ParamType::Group, "the group");
const ID: Param = Param::path("id", ParamType::Id, "the event");

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/dedupe/{topic}/{group}/{id}",
        id: "seen",
        summary: "Whether a group has handled an event: 200 if it is marked, 404 if not. HEAD answers the same.",
        params: &[TOPIC, GROUP, ID],
        body: None,
        answer: Answer::json("Mark", "The event is marked"),
        refusals: &[404],
        need: Need::SubscribeAs,
        handler: |call| Box::pin(seen(call)),
    },
    Operation {
        verb: Verb::Put,
        path: "/dedupe/{topic}/{group}/{id}",
        id: "mark",
        summary: "Mark an event as handled by a group",
        params: &[
            TOPIC,
            GROUP,
            ID,
            Param::query("ttl_ms", ParamType::Int(1, TTL_MS_MAX), "for how long, in ms; 7 days if left out"),
        ],
        body: None,
        answer: Answer::json("Mark", "The event is marked, durably"),
        refusals: &[507],
        need: Need::SubscribeAs,
        handler: |call| Box::pin(mark(call)),
    },
];

async fn seen(call: &mut Call) -> Reply {
    let (topic, group, id) = (call.topic()?, call.group()?, call.args.need::<EventId>("id")?);
    match call.app.bus.dedupe().seen(&topic, &group, id).await? {
        true => reply::json(&json!({"topic": topic, "group": group, "id": id, "seen": true})),
        false => {
            let message = "the event is not marked; handle it, then mark it with PUT";
            Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", message))
        }
    }
}

async fn mark(call: &mut Call) -> Reply {
    let (topic, group, id) = (call.topic()?, call.group()?, call.args.need::<EventId>("id")?);
    let ttl_ms = call.args.parse("ttl_ms")?.unwrap_or(TTL_MS_DEFAULT);
    call.app.bus.dedupe().mark(&topic, &group, id, ttl_ms).await?;
    reply::json(&json!({"topic": topic, "group": group, "id": id, "seen": true}))
}
