//! What admins see of the server: its connections, tokens and settings. Never a secret.

use serde_json::{Map, Value, json};

use super::params::page_of;
use crate::http::call::Call;
use crate::http::operation::{Answer, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};
use crate::listen::connection_list::ConnectionEntry;

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: i64 = 1_000;
/// The largest number that every language reads exactly.
const NUMBER_MAX: i64 = (1 << 53) - 1;

const LIMIT: Param = Param::query("limit", ParamType::Int(1, LIMIT_MAX), "how many at most, 100 if left out");
const AFTER: Param = Param::query(
    "after",
    ParamType::Int(0, NUMBER_MAX),
    "only those after this number: `next` of the page before",
);

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/admin/connections",
        id: "connections",
        summary: "Open connections, the oldest first. While there is `next`, go on with `after=next`.",
        params: &[AFTER, LIMIT],
        body: None,
        answer: Answer::json("Connections", "The connections"),
        refusals: &[],
        need: Need::Admin,
        handler: |call| Box::pin(connections(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/admin/tokens",
        id: "tokens",
        summary: "Listed tokens, without anything that could be used as one. While there is `next`, go on with \
                  `after=next`.",
        params: &[AFTER, LIMIT],
        body: None,
        answer: Answer::json("Tokens", "The tokens"),
        refusals: &[],
        need: Need::Admin,
        handler: |call| Box::pin(tokens(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/admin/config",
        id: "config",
        summary: "The settings in force, by their keys in the configuration file, without secrets. While there is `next`, \
                  go on with `after=next`.",
        params: &[Param::query("after", ParamType::Text, "only settings after this key"), LIMIT],
        body: None,
        answer: Answer::json("Settings", "The settings"),
        refusals: &[],
        need: Need::Admin,
        handler: |call| Box::pin(config(call)),
    },
];

async fn connections(call: &mut Call) -> Reply {
    let (after, limit) = (call.args.parse("after")?.unwrap_or(0), limit(call)?);
    let (page, more) = call.app.connections.page(after, limit);
    let next = page.last().map(|last| last.number).filter(|_| more);
    let shown: Vec<Value> = page.iter().map(|connection| connection_view(connection)).collect();
    reply::json(&page_of("connections", shown, next))
}

fn connection_view(connection: &ConnectionEntry) -> Value {
    let mut view = json!({
        "id": connection.number,
        "peer": connection.peer,
        "protocol": connection.protocol(),
        "since": connection.since_ms,
        "subscriptions": connection.subscriptions(),
    });
    if let (Some((kind, name)), Value::Object(fields)) = (connection.client(), &mut view) {
        fields.insert("name".to_owned(), json!(&*name));
        fields.insert("kind".to_owned(), json!(kind.as_str()));
    }
    view
}

async fn tokens(call: &mut Call) -> Reply {
    let (after, limit) = (call.args.parse::<usize>("after")?, limit(call)?);
    let from = after.map_or(0, |after| after.saturating_add(1));
    let mut tokens = call.app.auth.listed(from, limit.saturating_add(1));
    let more = tokens.len() > limit;
    tokens.truncate(limit);
    let next = (from + tokens.len()).checked_sub(1).filter(|_| more);
    let shown: Vec<Value> = tokens
        .iter()
        .map(|token| {
            json!({
                "name": &*token.name,
                "scopes": token.grants.scopes(),
                "expires": token.expires_ms,
                "limits": without_nulls(json!(token.quota)),
            })
        })
        .collect();
    reply::json(&page_of("tokens", shown, next))
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>().into()
        }
        other => other,
    }
}

async fn config(call: &mut Call) -> Reply {
    let limit = limit(call)?;
    let after = call.args.get("after");
    let settings = &call.app.options.shown_settings;
    let mut rest = settings.iter().skip_while(|(key, _)| after.is_some_and(|after| key.as_str() <= after));
    let page: Vec<(&String, &Value)> = rest.by_ref().take(limit).collect();
    let next = page.last().map(|(key, _)| (*key).clone()).filter(|_| rest.next().is_some());
    let shown: Vec<Value> = page.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    reply::json(&page_of("settings", shown, next))
}

fn limit(call: &Call) -> Result<usize, crate::refusal::Refusal> {
    Ok(call.args.parse("limit")?.unwrap_or(LIMIT_DEFAULT))
}
