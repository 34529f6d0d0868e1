//! Who the client is, and tickets that stand for its token in a URL.

use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::json;

use crate::http::args::Args;
use crate::http::call::Call;
use crate::http::operation::{Answer, Body, Media, Need, Operation, Verb};
use crate::http::reply::{self, Reply};
use crate::http::table::{self, RouteFound};
use crate::refusal::Refusal;
use crate::tickets::LIFETIME_MS;

/// Bytes of the path of a ticket, at most; a longer one would not fit a request.
const PATH_BYTES_MAX: usize = 8 << 10;

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/whoami",
        id: "whoami",
        summary: "The client behind the token: its name, its scopes, and when the token expires",
        params: &[],
        body: None,
        answer: Answer::json("WhoAmI", "The client"),
        refusals: &[],
        need: Need::Known,
        handler: |call| Box::pin(whoami(call)),
    },
    Operation {
        verb: Verb::Post,
        path: "/tickets",
        id: "makeTicket",
        summary: "Make a ticket for one GET of a path within 60 seconds, for clients that cannot send a header: \
                  `new EventSource(path + \"?ticket=\" + ticket)`",
        params: &[],
        body: Some(Body { media: Media::Json, schema: "TicketRequest" }),
        answer: Answer::json("Ticket", "The ticket, and when it expires"),
        refusals: &[404],
        need: Need::Known,
        handler: |call| Box::pin(make_ticket(call)),
    },
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TicketRequest {
    path: String,
}

async fn whoami(call: &mut Call) -> Reply {
    let identity = call.identity.as_ref().ok_or_else(Refusal::internal)?;
    reply::json(&json!({
        "name": &*identity.name,
        "kind": identity.kind.as_str(),
        "scopes": identity.grants.scopes(),
        "expires": identity.expires_ms,
    }))
}

async fn make_ticket(call: &mut Call) -> Reply {
    let TicketRequest { path } = call.json().await?;
    check_path(call, &path)?;
    let identity = call.identity.as_ref().ok_or_else(Refusal::internal)?;
    let app = &call.app;
    let ticket = app.tickets.make(identity, call.token.clone(), path, app.clock.monotonic_ms())?;
    let lifetime_ms = i64::try_from(LIFETIME_MS).unwrap_or(i64::MAX);
    let until_ms = app.clock.wall_ms().saturating_add(lifetime_ms);
    let expires = identity.expires_ms.map_or(until_ms, |expires_ms| expires_ms.min(until_ms));
    reply::json(&json!({"ticket": ticket, "expires": expires}))
}

/// Refuses a path that no GET has, and one that the client may not read. A path without a query is checked here as far as
/// it goes, and again when the ticket is used.
fn check_path(call: &mut Call, path: &str) -> Result<(), Refusal> {
    let (only_path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let bad = |what: &str| {
        let message = format!("`path` {what}; give the path of a GET, such as `/stream/orders`");
        Refusal::bad_request(message).with("parameter", "path")
    };
    if path.len() > PATH_BYTES_MAX || path.contains('#') {
        return Err(bad("is too long, or has a `#`"));
    }
    let (operation, words) = match table::find(Some(Verb::Get), only_path) {
        RouteFound::Operation(operation, words) if !operation.is_open() => (operation, words),
        RouteFound::Operation(..) => return Err(bad("needs no token, so it needs no ticket")),
        RouteFound::OtherMethod(_) | RouteFound::Malformed | RouteFound::Nothing => {
            return Err(bad("is not one of this server"));
        }
    };
    let args = match (Args::read(operation, words, query, &HeaderMap::new()), query) {
        (Ok(args), _) => args,
        // Its parameters come with the request.
        (Err(_), None) => return Ok(()),
        (Err(refusal), Some(_)) => return Err(refusal),
    };
    let own = std::mem::replace(&mut call.args, args);
    let allowed = call.allow(operation.need);
    call.args = own;
    allowed
}
