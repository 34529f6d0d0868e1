//! The server itself: health, metrics, description.

use axum::http::{HeaderValue, StatusCode, header};
use promethean_bus::Health;
use promethean_projections::{Activity, ProjectorStatus};
use serde_json::{Value, json};

use super::groups::visible;
use super::params::{GROUPS_AFTER, GROUPS_LIMIT, page_of};
use super::projectors;
use crate::auth::Access;
use crate::http::call::Call;
use crate::http::openapi;
use crate::http::operation::{Answer, Media, Need, Operation, Verb};
use crate::http::reply::{self, Reply};

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/",
        id: "index",
        summary: "What this is, and where to read on. With an upgrade, the WebSocket; for a browser, `/dashboard`.",
        params: &[],
        body: None,
        answer: Answer::json("Index", "Name, version and the way to everything else"),
        refusals: &[],
        need: Need::Known,
        handler: |call| Box::pin(index(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/health",
        id: "health",
        summary: "How the store is. Always 200 while the server lives; `/ready` says whether to send it work.",
        params: &[],
        body: None,
        answer: Answer::json("Health", "`ok`, or `degraded` and why"),
        refusals: &[],
        need: Need::Nothing,
        handler: |call| Box::pin(health(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/ready",
        id: "ready",
        summary: "Whether the server takes work: 503 while it stops or cannot write",
        params: &[],
        body: None,
        answer: Answer::json("Ready", "It takes work"),
        refusals: &[503],
        need: Need::Nothing,
        handler: |call| Box::pin(ready(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/metrics",
        id: "metrics",
        summary: "What is counted, for Prometheus",
        params: &[],
        body: None,
        answer: Answer { media: &[Media::Text], schema: "", about: "The page, in text format 0.0.4" },
        refusals: &[],
        need: Need::Admin,
        handler: |call| Box::pin(metrics(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/ops",
        id: "ops",
        summary: "Groups with their members, assignments and reasons for not delivering, as far as the token may see; \
                  to an admin also what is wrong with the store. While there is `next`, go on with `after=next`.",
        params: &[GROUPS_AFTER, GROUPS_LIMIT],
        body: None,
        answer: Answer::json("Ops", "What goes on"),
        refusals: &[],
        need: Need::Known,
        handler: |call| Box::pin(ops(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/openapi.json",
        id: "openapi",
        summary: "This description",
        params: &[],
        body: None,
        answer: Answer::json("Any", "The description, OpenAPI 3.1"),
        refusals: &[],
        need: Need::Known,
        handler: |call| Box::pin(description(call)),
    },
];

async fn index(_: &mut Call) -> Reply {
    let version = env!("CARGO_PKG_VERSION");
    let mut response = reply::json(&json!({
        "name": "promethean", "version": version, "websocket": "/ws", "openapi": "/openapi.json",
        "health": "/health", "metrics": "/metrics",
    }))?;
    // A browser gets the dashboard here.
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

/// Needs no token, so it names neither topics nor files.
async fn health(call: &mut Call) -> Reply {
    let Health { refusing, degraded, damage } = call.app.bus.health();
    let Alarms { halted, waits, incomplete, failing, .. } = Alarms::now(call);
    let scarce = call.app.topics_are_scarce();
    let is_sound = refusing.is_none() && degraded.is_none() && damage.is_empty();
    let is_well = halted + waits + incomplete + failing == 0;
    let status = if is_sound && is_well && !scarce { "ok" } else { "degraded" };
    reply::json(&json!({"status": status, "writable": refusing.is_none(), "slow": degraded.is_some(),
        "damaged_ranges": damage.len(), "projectors_halted": halted, "retention_waits": waits,
        "rebuilds_incomplete": incomplete, "compactors_failing": failing, "topics_scarce": scarce}))
}

/// Problems of projectors that need a person.
struct Alarms {
    /// Projectors that are halted or stuck.
    halted: usize,
    /// Topics whose retention waits for projectors.
    waits: usize,
    /// Events that retention would have removed.
    held: u64,
    /// Projectors whose last rebuild left out events that failed.
    incomplete: usize,
    /// Compactors whose last round failed.
    failing: usize,
}

impl Alarms {
    fn now(call: &Call) -> Self {
        let Some(state) = &call.app.projections else {
            return Self { halted: 0, waits: 0, held: 0, incomplete: 0, failing: 0 };
        };
        let is_halted =
            |status: &ProjectorStatus| matches!(status.activity, Activity::Halted | Activity::Stuck);
        let held = state.held();
        Self {
            halted: state.projectors().iter().filter(|status| is_halted(status)).count(),
            waits: held.len(),
            held: held.values().sum(),
            incomplete: state.incomplete_rebuilds(),
            failing: state.failing_compactors(),
        }
    }
}

async fn ready(call: &mut Call) -> Reply {
    let stopping = call.app.stopping.is_cancelled();
    match stopping || call.app.bus.health().refusing.is_some() {
        false => reply::json(&json!({"ready": true})),
        true => {
            let message = if stopping {
                "the server stops; use another"
            } else {
                "the store takes nothing; see its log"
            };
            Err(crate::refusal::Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message))
        }
    }
}

async fn metrics(call: &mut Call) -> Reply {
    let bus = &call.app.bus;
    let topics = bus.topics().await?;
    let server = bus.metrics().server();
    server.topics.set(i64::try_from(topics.len()).unwrap_or(i64::MAX));
    let bytes: u64 = topics.iter().map(|topic| topic.bytes).sum();
    server.log_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    let Alarms { halted, held, .. } = Alarms::now(call);
    server.projectors_halted.set(i64::try_from(halted).unwrap_or(i64::MAX));
    server.held.set(i64::try_from(held).unwrap_or(i64::MAX));
    bus.measure_idle_groups().await?;
    Ok(reply::with(Media::Text, bus.metrics_page()))
}

async fn ops(call: &mut Call) -> Reply {
    let (groups, next) = visible(call.viewer(), &call.args, None).await?;
    let mut page = page_of("groups", groups, next);
    page.insert("projectors".to_owned(), json!(projectors::visible(call)));
    page.insert("compactors".to_owned(), json!(projectors::visible_compactors(call)));
    if call.may(&Access::Admin) {
        let Health { refusing, degraded, damage } = call.app.bus.health();
        let damage: Vec<Value> =
            damage.iter().map(|part| json!({"topic": part.topic, "range": part.range})).collect();
        page.insert(
            "store".to_owned(),
            json!({"refusing": refusing, "degraded": degraded, "damage": damage}),
        );
        let unfinished = call.app.bus.unfinished_deletions();
        let unfinished: Vec<Value> = unfinished
            .iter()
            .map(|one| json!({"group": one.group, "topic": one.subject.to_string(), "reason": one.reason}))
            .collect();
        page.insert("unfinished_deletions".to_owned(), json!(unfinished));
    }
    reply::json(&page)
}

async fn description(_: &mut Call) -> Reply {
    let mut response = reply::json(&openapi::document())?;
    // The description changes only with the release.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=300"));
    Ok(response)
}
