//! The state of keys and collections at a given time.

use promethean_model::{Moment, TopicName};
use promethean_projections::time_travel::feed::KeyPage;

use super::collections::COLLECTION;
use crate::http::call::Call;
use crate::http::operation::{Answer, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};
use crate::refusal::Refusal;

/// Documents of a page.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: i64 = 1_000;

const AT: Param = Param::query(
    "at",
    ParamType::Moment,
    "the time: milliseconds since 1970, a date such as `2027-01-31T12:00:00Z`, or `5m ago`; now if left out",
);
const FROM: Param = Param::needed("from", ParamType::Moment, "the earlier time, as for `at`");
const TO: Param = Param::query("to", ParamType::Moment, "the later time, as for `at`; now if left out");
const AFTER: Param =
    Param::query("after", ParamType::Text, "go on after this key: `next` of the page before");
const LIMIT: Param = Param::query("limit", ParamType::Int(1, LIMIT_MAX), "how many at most; default 100");

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/state/{topic}/{key}",
        id: "stateAt",
        summary: "The state of a key of a topic at a time: its events up to then, folded by the topic's reducer",
        params: &[
            Param::path("topic", ParamType::Topic, "the topic"),
            Param::path("key", ParamType::Text, "the key, percent-encoded"),
            AT,
        ],
        body: None,
        answer: Answer::json("StateAt", "The state, and the last event in it"),
        refusals: &[404, 410, 413, 422],
        need: Need::Subscribe,
        handler: |call| Box::pin(state(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/collections/{collection}/at",
        id: "collectionAt",
        summary: "The documents of a collection at a time, by key; of collections that keep their history",
        params: &[COLLECTION, AT, AFTER, LIMIT],
        body: None,
        answer: Answer::json("CollectionAt", "The documents"),
        refusals: &[404, 410, 413],
        need: Need::ReadCollection,
        handler: |call| Box::pin(collection_at(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/collections/{collection}/diff",
        id: "collectionDiff",
        summary: "What differs between a collection at one time and at another; of collections that keep their history",
        params: &[COLLECTION, FROM, TO, AFTER, LIMIT],
        body: None,
        answer: Answer::json("CollectionDiff", "Documents added, removed and changed, by key"),
        refusals: &[404, 410, 413],
        need: Need::ReadCollection,
        handler: |call| Box::pin(difference(call)),
    },
];

fn time(call: &Call, name: &str) -> Result<i64, Refusal> {
    let now = call.app.clock.wall_ms();
    match call.args.get(name) {
        None => Ok(now),
        Some(text) => Moment::parse(text, now)
            .map(Moment::ms)
            .map_err(|error| Refusal::bad_request(format!("`{name}`: {error}")).with("parameter", name)),
    }
}

fn part(call: &Call) -> Result<KeyPage<'_>, Refusal> {
    Ok(KeyPage { after: call.args.get("after"), limit: call.args.parse("limit")?.unwrap_or(LIMIT_DEFAULT) })
}

async fn state(call: &mut Call) -> Reply {
    let topic: TopicName = call.topic()?;
    let key: String = call.args.need("key")?;
    reply::json(&call.state()?.state_at(&topic, &key, time(call, "at")?).await?)
}

async fn collection_at(call: &mut Call) -> Reply {
    let collection = call.collection()?;
    reply::json(&call.state()?.collection_at(&collection, time(call, "at")?, part(call)?).await?)
}

async fn difference(call: &mut Call) -> Reply {
    let collection = call.collection()?;
    let (from, to) = (time(call, "from")?, time(call, "to")?);
    if from > to {
        let message = "`from` is after `to`; exchange them";
        return Err(Refusal::bad_request(message).with("parameter", "from"));
    }
    reply::json(&call.state()?.difference(&collection, from, to, part(call)?).await?)
}
