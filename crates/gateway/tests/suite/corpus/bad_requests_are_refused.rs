//! Every request of `bad-requests.jsonl`, over HTTP/1.1.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::json;

use super::http1::{Answer, Http1, request, statuses};
use super::state::{seed, snapshot};
use super::witness::Witness;
use super::{expand, is_plain, unhex};
use crate::suite::world::World;

const CASES: &str = include_str!("../../../../../fixtures/protocol/bad-requests.jsonl");

/// A request and the answer to it; or bytes, and the statuses of all answers until the connection is closed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    method: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    host: Option<String>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    body: Option<String>,
    body_hex: Option<String>,
    status: Option<u16>,
    /// Whether the connection ends with the answer.
    #[serde(default)]
    closes: bool,
    /// The code of a refusal that has a body.
    code: Option<String>,
    raw: Option<String>,
    statuses: Option<Vec<u16>>,
}

impl Case {
    fn bytes(&self) -> Vec<u8> {
        let host = self.host.as_deref().unwrap_or("localhost");
        let mut headers = vec![("host".to_owned(), host.to_owned())];
        headers.extend(self.headers.iter().cloned());
        let body = match (&self.body, &self.body_hex) {
            (Some(text), None) => Some(expand(text).into_bytes()),
            (None, Some(hex)) => Some(unhex(hex)),
            _ => None,
        };
        request(&self.method, &expand(&self.path), &headers, body.as_deref())
    }

    /// Compares an answer with the case; the difference, if there is one.
    fn check(&self, answer: &Answer) -> Option<String> {
        let body = answer.json();
        let said = body["message"].as_str().unwrap_or_default();
        let id = body["request_id"].as_str().unwrap_or("none");
        let whole = (10..1_000).contains(&said.len())
            && is_plain(said)
            && answer.head.contains(&format!("x-request-id: {id}"));
        let fits = Some(answer.status) == self.status
            && match &self.code {
                Some(code) => body["error"] == code.as_str() && whole,
                None => answer.body.is_empty(),
            };
        (!fits).then(|| format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body)))
    }
}

#[tokio::test]
async fn every_bad_request_has_its_code() {
    let cases: Vec<Case> = CASES.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "names are given once");
    let world = World::new().await;
    seed(&world).await;
    let mut member = world.ws().await;
    member.subscribe("kept", "here", json!({"from": "latest"})).await;
    let witness = Witness::start(&world).await;
    let before = snapshot(&world.bus).await;
    let mut client = Http1::connect(world.address()).await;
    let mut wrong = Vec::new();
    for case in &cases {
        let found = match (&case.raw, &case.statuses) {
            (Some(raw), Some(expected)) => {
                let all = statuses(world.address(), expand(raw).as_bytes()).await;
                (all != *expected).then(|| format!("{all:?}"))
            }
            _ => match client.send(&case.bytes(), case.method == "HEAD").await {
                None => Some("no answer".to_owned()),
                Some(answer) => case.check(&answer),
            },
        };
        let found = match found {
            None if case.raw.is_some() => None,
            None if client.lives().await == case.closes => Some("it lives, or not".to_owned()),
            found => found,
        };
        if case.closes || found.is_some() {
            client = Http1::connect(world.address()).await;
        }
        if let Some(found) = found {
            wrong.push(format!("{}: {:?} {:?}, but: {found}", case.name, case.status, case.code));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(snapshot(&world.bus).await, before, "something was written");
    assert!(witness.end().await > 100, "the witness was held up");
    assert!(cases.len() >= 1_000);
    world.stop().await;
}
