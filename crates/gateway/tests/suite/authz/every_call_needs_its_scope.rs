//! Every call with every token; the expected answer comes from `rule.rs`.

use std::collections::BTreeSet;

use promethean_bus::publish::Publish;
use promethean_bus::subscription::Subscribe;
use serde_json::{Value, json};

use super::super::corpus::http1::{Answer, Http1, request};
use super::super::corpus::snapshot;
use super::super::ws::client::Client;
use super::calls::{ROUTES, filled, frames};
use super::rule::{GROUP, Need, allowed};
use super::{listed, signed, world};
use crate::suite::world::{World, soon};

/// A topic that exists and one that does not; both names have the same length.
const TOPICS: [&str; 2] = ["orders", "ghosts"];
const GRANTS: [&str; 19] = [
    "",
    "publish:T",
    "subscribe:T",
    "subscribe:T@g",
    "subscribe:T@other",
    "manage:T",
    "read:T",
    "admin",
    "publish:** subscribe:** manage:**",
    "publish:other subscribe:other manage:other read:other",
    "subscribe:T.dlq manage:T.dlq",
    "admin !publish:T",
    "admin !subscribe:T",
    "admin !subscribe:T@g",
    "admin !manage:T",
    "admin !subscribe:T.dlq",
    "admin !manage:T.dlq",
    "admin !publish:T !subscribe:T !manage:T",
    "admin !admin",
];

fn scopes(grant: &str, topic: &str) -> String {
    grant.replace('T', topic)
}

async fn seed(world: &World) {
    let bus = &world.bus;
    for topic in TOPICS {
        // Allowed calls of the last round may have created this.
        let _ = bus.delete_topic(&topic.parse().unwrap()).await;
    }
    let orders = || "orders".parse().unwrap();
    bus.publish(Publish::new(orders(), b"1".as_slice()).key("k")).await.unwrap();
    let group = Subscribe::new("orders".parse().unwrap(), GROUP.parse().unwrap());
    bus.subscribe(group).await.unwrap().unsubscribe();
}

async fn call(world: &World, token: &str, topic: &str, route: usize) -> Answer {
    let (method, path, query, body, _) = ROUTES[route];
    let mut headers = vec![("host".to_owned(), "localhost".to_owned())];
    if !token.is_empty() {
        headers.push(("authorization".to_owned(), format!("Bearer {token}")));
    }
    let path = filled(&format!("{path}{query}"), topic);
    let bytes = request(method, &path, &headers, (!body.is_empty()).then_some(body.as_bytes()));
    Http1::connect(world.address()).await.send(&bytes, false).await.unwrap()
}

/// A refusal without its request id and the topic's name, so that two refusals can be compared.
fn told(answer: &Answer, topic: &str) -> String {
    let mut body = answer.json();
    body["request_id"] = Value::Null;
    format!("{} {body}", answer.status).replace(topic, "T")
}

#[tokio::test]
async fn every_route_is_in_the_matrix() {
    let admin = "admin".to_owned();
    let world = world(std::slice::from_ref(&admin)).await;
    let at = ROUTES.iter().position(|route| route.1 == "/openapi.json").unwrap();
    let document = call(&world, &listed(&admin), "t", at).await.json();
    let mut served = BTreeSet::new();
    for (path, verbs) in document["paths"].as_object().unwrap() {
        served.extend(verbs.as_object().unwrap().keys().map(|verb| (verb.to_uppercase(), path.clone())));
    }
    let known: BTreeSet<(String, String)> =
        ROUTES.iter().map(|route| (route.0.to_owned(), route.1.to_owned())).collect();
    assert_eq!(served, known);
    world.stop().await;
}

/// Calls all routes with one token for each topic: first the routes that are refused, which must change
/// nothing.
async fn ask_all(world: &World, tokens: [String; 2], grant: &str) -> u32 {
    let mut refused = 0;
    let expected = |route: usize| allowed(ROUTES[route].4, &scopes(grant, TOPICS[0]), TOPICS[0]);
    let before = snapshot(&world.bus).await;
    for route in (0..ROUTES.len()).filter(|route| !expected(*route)) {
        let what = format!("`{grant}`: {:?}", ROUTES[route]);
        let there = call(world, &tokens[0], TOPICS[0], route).await;
        let not_there = call(world, &tokens[1], TOPICS[1], route).await;
        assert_eq!((there.status, &there.json()["error"]), (403, &json!("forbidden")), "{what}");
        assert_eq!(told(&there, TOPICS[0]), told(&not_there, TOPICS[1]), "{what}");
        refused += 1;
    }
    assert_eq!(snapshot(&world.bus).await, before, "`{grant}` was refused and did something");
    for route in (0..ROUTES.len()).filter(|route| expected(*route)) {
        for (token, topic) in tokens.iter().zip(TOPICS) {
            let answer = call(world, token, topic, route).await;
            let status = answer.status;
            // This world keeps nothing on disk, so it has no backups.
            let is_fine = matches!(status, 200 | 404) || answer.json()["error"] == "not_offered";
            assert!(is_fine, "`{grant}`: {:?} {status} {answer:?}", ROUTES[route]);
        }
    }
    refused
}

#[tokio::test]
async fn every_route_for_every_grant() {
    let all: Vec<String> = GRANTS.iter().flat_map(|grant| TOPICS.map(|topic| scopes(grant, topic))).collect();
    let world = world(&all).await;
    let mut refused = 0;
    for grant in GRANTS {
        for token in [listed, signed] {
            seed(&world).await;
            refused += ask_all(&world, TOPICS.map(|topic| token(&scopes(grant, topic))), grant).await;
        }
    }
    assert!(refused > 300, "a matrix that says little: {refused}");
    world.stop().await;
}

/// The answer to a frame, without the topic's name.
async fn asked(client: &mut Client, frame: Value, topic: &str) -> (String, String) {
    let reply = client.ask(frame).await;
    let code = reply["code"].as_str().unwrap_or("OK").to_owned();
    (code, reply["msg"].as_str().unwrap_or_default().replace(topic, "T"))
}

async fn frames_by(world: &World, tokens: [String; 2], grant: &str) -> u32 {
    let mut clients = Vec::new();
    for token in &tokens {
        clients.push(Client::connect(world.address(), Some(token)).await.unwrap());
    }
    let mut refused = 0;
    let expected = |need: Need| allowed(need, &scopes(grant, TOPICS[0]), TOPICS[0]);
    let before = snapshot(&world.bus).await;
    let both = || frames(TOPICS[0]).into_iter().zip(frames(TOPICS[1]));
    for ((there, need), (not_there, _)) in both().filter(|((_, need), _)| !expected(*need)) {
        let answer = asked(&mut clients[0], there.clone(), TOPICS[0]).await;
        assert_eq!(answer.0, "forbidden", "`{grant}`: {there} needs {need:?}");
        assert_eq!(asked(&mut clients[1], not_there, TOPICS[1]).await, answer, "`{grant}`: {there}");
        refused += 1;
    }
    assert_eq!(snapshot(&world.bus).await, before, "`{grant}` was refused and did something");
    for ((there, need), (not_there, _)) in both().filter(|((_, need), _)| expected(*need)) {
        let (one, other) = (
            asked(&mut clients[0], there.clone(), TOPICS[0]).await.0,
            asked(&mut clients[1], not_there, TOPICS[1]).await.0,
        );
        let fine: &[&str] = match need {
            Need::Subscription => &["not_subscribed"],
            Need::Manage => &["OK", "unknown_group"],
            _ => &["OK"],
        };
        let fits = fine.contains(&one.as_str()) && fine.contains(&other.as_str());
        assert!(fits, "`{grant}`: {there}: {one}, {other}");
    }
    refused
}

#[tokio::test]
async fn every_op_for_every_grant() {
    let all: Vec<String> = GRANTS.iter().flat_map(|grant| TOPICS.map(|topic| scopes(grant, topic))).collect();
    let world = world(&all).await;
    let mut refused = 0;
    for grant in GRANTS {
        for token in [listed, signed] {
            let tokens = TOPICS.map(|topic| token(&scopes(grant, topic)));
            soon("members are gone", gone(&world)).await;
            seed(&world).await;
            refused += frames_by(&world, tokens, grant).await;
        }
    }
    assert!(refused > 80, "a matrix that says little: {refused}");
    world.stop().await;
}

/// Returns when no group has a member any more.
async fn gone(world: &World) {
    loop {
        let groups = world.bus.groups(None).await.unwrap();
        if groups.iter().flat_map(|group| &group.topics).all(|place| place.members == 0) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nobody_may_nothing() {
    let world = world(&["admin".to_owned()]).await;
    seed(&world).await;
    let before = snapshot(&world.bus).await;
    for (route, (.., need)) in ROUTES.iter().enumerate() {
        for (token, code) in [("", "unauthorized"), ("prom_wrong", "bad_token")] {
            let answer = call(&world, token, TOPICS[0], route).await;
            match need {
                Need::Nothing => assert_eq!(answer.status, 200),
                _ => assert_eq!((answer.status, &answer.json()["error"]), (401, &json!(code))),
            }
        }
    }
    let mut client = world.ws().await;
    for (frame, _) in frames(TOPICS[0]) {
        client.refused(frame, "unauthorized").await;
    }
    assert_eq!(snapshot(&world.bus).await, before);
    world.stop().await;
}
