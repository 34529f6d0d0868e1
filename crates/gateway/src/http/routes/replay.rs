//! `/replay`: events from a start position on, page by page.

use std::io::Write;

use promethean_bus::rows::StartPosition;

use super::params::{AFTER_ID, FROM, NORMALIZE, OFFSET, TOPIC, TS, start};
use crate::events;
use crate::http::call::Call;
use crate::http::operation::{Answer, Media, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};

/// Events of one answer.
const LIMIT_DEFAULT: usize = 1_000;
const LIMIT_MAX: i64 = 10_000;
/// Bytes of events after which an answer ends early.
const ANSWER_BYTES: usize = 8 << 20;

pub(in crate::http) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/replay",
    id: "replay",
    summary: "Events of a topic from some place on, at most `limit`. While there is `next`, go on with `offset=next`.",
    params: &[
        TOPIC,
        FROM,
        TS,
        AFTER_ID,
        OFFSET,
        Param::query("limit", ParamType::Int(1, LIMIT_MAX), "how many events, 1000 if left out"),
        NORMALIZE,
    ],
    body: None,
    answer: Answer::json("Replay", "The events, in offset order"),
    refusals: &[404],
    need: Need::Subscribe,
    handler: |call| Box::pin(replay(call)),
}];

async fn replay(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    let from = start(&call.args, StartPosition::Earliest)?;
    let limit = call.args.parse("limit")?.unwrap_or(LIMIT_DEFAULT);
    let scan = call.app.bus.scan(&topic, from).await?;
    let mut scan = scan.normalize(call.args.flag("normalize", false));
    let (mut out, mut count, mut expired) = (Vec::new(), 0, 0);
    // Topic names need no escaping, and writing to memory does not fail.
    let _ = write!(out, r#"{{"topic":"{topic}","events":["#);
    while count < limit && out.len() < ANSWER_BYTES {
        let left = ANSWER_BYTES.saturating_sub(out.len());
        let Some(page) = scan.next_page(limit - count, left).await? else { break };
        if count > 0 && !page.events.is_empty() {
            out.push(b',');
        }
        events::write_list(&mut out, &page.events)?;
        count += page.events.len();
        expired += page.expired;
    }
    let _ = write!(out, r#"],"count":{count}"#);
    if scan.next() < scan.end() {
        let _ = write!(out, r#","next":{}"#, scan.next());
    }
    if expired > 0 {
        let _ = write!(out, r#","expired":{expired}"#);
    }
    out.push(b'}');
    Ok(reply::with(Media::Json, out))
}
