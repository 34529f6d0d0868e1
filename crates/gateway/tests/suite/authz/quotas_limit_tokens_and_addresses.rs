//! Quotas of tokens, and limits for addresses that guess tokens.

use std::num::NonZeroU32;
use std::sync::Arc;

use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{Grants, Quota, StaticToken, StaticTokens, TokenHash};
use promethean_gateway::options::FailureLimit;
use promethean_testkit::ManualClock;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;

use super::super::ws::client::Client;
use crate::suite::world::{NOW, World, soon};

/// A token as long as generated ones, so it does not count as a guess.
const LONG: &str = "prom_0123456789012345678901234567890123456789012";

fn entry(token: &str, quota: Quota) -> StaticToken {
    let grants = Arc::new(Grants::everything());
    StaticToken { name: token.into(), hash: TokenHash::of(token), grants, expires_ms: None, quota }
}

async fn world(tokens: Vec<StaticToken>, options: GatewayOptions) -> (World, StaticTokens) {
    let tokens = StaticTokens::new(tokens, Arc::new(ManualClock::new(NOW)));
    (World::with_auth(options, Arc::new(tokens.clone())).await, tokens)
}

/// Sends a request on a connection of its own; status, head and body of the answer.
pub(super) async fn ask(
    world: &World,
    method: &str,
    path: &str,
    token: &str,
    body: &str,
) -> (u16, String, Value) {
    let mut stream = TcpStream::connect(world.address()).await.unwrap();
    let head = format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), serde_json::from_str(body).unwrap_or(Value::Null))
}

fn number(number: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(number)
}

#[tokio::test]
async fn an_address_that_guesses_has_to_wait_and_keeps_nobody_out() {
    let auth_failures = FailureLimit { burst: NonZeroU32::new(4).unwrap(), ..FailureLimit::default() };
    let options = GatewayOptions { auth_failures, ..GatewayOptions::default() };
    let (world, _) =
        world(["word", "other", LONG].map(|token| entry(token, Quota::default())).into(), options).await;
    let mut known = Client::connect(world.address(), Some("word")).await.unwrap();
    // A client without a token does not guess.
    for _ in 0..10 {
        let mut stranger = world.ws().await;
        stranger.refused(json!({"op": "PUBLISH", "topic": "t", "payload": 1}), "unauthorized").await;
    }
    for guess in ["a", "b", "c"] {
        assert_eq!(ask(&world, "GET", "/topics", guess, "").await.0, 401, "{guess}");
    }
    let mut guesser = world.ws().await;
    guesser.refused(json!({"op": "AUTH", "token": "d"}), "bad_token").await;
    // From now on every short token is refused over both transports, also a valid one.
    for guess in ["e", "other", &"x".repeat(48)] {
        let (status, head, body) = ask(&world, "GET", "/topics", guess, "").await;
        assert_eq!((status, &body["error"]), (429, &json!("rate_limited")), "{body}");
        assert!(head.contains("retry-after: 3"), "{head}");
    }
    let reply = guesser.refused(json!({"op": "AUTH", "token": "other"}), "rate_limited").await;
    assert_eq!(reply["retry_after_ms"], 3_000);
    assert_eq!(guesser.close_code().await, 4429);
    match Client::connect(world.address(), Some("f")).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 429),
        other => panic!("{:?}", other.map(|_| ())),
    }
    // A connected client goes on; a token that was valid before and a long token are still accepted.
    known.publish("t", json!(1)).await;
    for _ in 0..5 {
        known.refused(json!({"op": "AUTH", "token": "other"}), "rate_limited").await;
    }
    known.ok(json!({"op": "AUTH", "token": "word"})).await;
    known.publish("t", json!(2)).await;
    assert_eq!(ask(&world, "GET", "/topics", "word", "").await.0, 200);
    assert_eq!(ask(&world, "GET", "/topics", LONG, "").await.0, 200);
    world.ws().await.ok(json!({"op": "AUTH", "token": LONG})).await;
    // Each interval allows one more token.
    world.advance(3_000);
    assert_eq!(ask(&world, "GET", "/topics", "g", "").await.0, 401);
    assert_eq!(ask(&world, "GET", "/topics", "other", "").await.0, 429);
    world.advance(3_000);
    assert_eq!(ask(&world, "GET", "/topics", "other", "").await.0, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_token_has_so_many_connections_and_subscriptions() {
    let quota = Quota { max_connections: number(2), max_subscriptions: number(3), ..Quota::default() };
    let options = GatewayOptions {
        quota: Quota { max_connections: number(1), ..Quota::default() },
        ..GatewayOptions::default()
    };
    let (world, tokens) = world(vec![entry("one", quota), entry("two", Quota::default())], options).await;
    let mut first = Client::connect(world.address(), Some("one")).await.unwrap();
    let mut second = world.ws().await;
    second.ok(json!({"op": "AUTH", "token": "one"})).await;
    second.ok(json!({"op": "AUTH", "token": "one"})).await;
    match Client::connect(world.address(), Some("one")).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 429),
        other => panic!("{:?}", other.map(|_| ())),
    }
    let mut third = world.ws().await;
    third.refused(json!({"op": "AUTH", "token": "one"}), "too_many_connections").await;
    assert_eq!(third.close_code().await, 4429);
    let (status, _, body) = ask(&world, "GET", "/stream/t", "one", "").await;
    assert_eq!((status, &body["error"]), (429, &json!("too_many_connections")));
    // Requests count as connections until they are answered, and each token has a quota of its own.
    assert_eq!(ask(&world, "GET", "/topics", "one", "").await.0, 429);
    for _ in 0..3 {
        assert_eq!(ask(&world, "GET", "/topics", "two", "").await.0, 200);
    }
    let mut unfinished = TcpStream::connect(world.address()).await.unwrap();
    let head = "POST /publish/t HTTP/1.1\r\nhost: h\r\nauthorization: Bearer two\r\nexpect: 100-continue\r\n";
    unfinished.write_all(format!("{head}content-length: 1\r\n\r\n").as_bytes()).await.unwrap();
    unfinished.read_exact(&mut [0; 25]).await.unwrap();
    assert_eq!(ask(&world, "GET", "/topics", "two", "").await.0, 429);
    unfinished.write_all(b"1").await.unwrap();
    unfinished.read_exact(&mut [0; 12]).await.unwrap();
    let mut other = Client::connect(world.address(), Some("two")).await.unwrap();
    assert!(Client::connect(world.address(), Some("two")).await.is_err());
    first.subscribe("t", "a", json!({})).await;
    first.subscribe("t", "b", json!({})).await;
    second.subscribe("t", "c", json!({})).await;
    let more = json!({"op": "SUBSCRIBE", "topic": "t", "group": "d"});
    second.refused(more.clone(), "too_many_subscriptions").await;
    other.subscribe("t", "d", json!({})).await;
    first.ok(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "a"})).await;
    second.ok(more.clone()).await;
    // A subscription that is refused for another reason does not count.
    first.refused(more.clone(), "too_many_subscriptions").await;
    second.ok(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "d"})).await;
    first
        .refused(json!({"op": "SUBSCRIBE", "topic": "t", "group": "e", "opts": {"from": "x"}}), "bad_request")
        .await;
    first.ok(more.clone()).await;
    // A smaller quota ends no open subscription; it counts from then on.
    let less = Quota { max_connections: number(2), max_subscriptions: number(1), ..Quota::default() };
    tokens.replace(vec![entry("one", less), entry("two", Quota::default())]);
    first.publish("u", json!(1)).await;
    second.publish("u", json!(2)).await;
    first.ok(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "d"})).await;
    first.refused(more, "too_many_subscriptions").await;
    // The end of a connection makes room for another.
    drop(first);
    let again = async {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(10));
        while Client::connect(world.address(), Some("one")).await.is_err() {
            ticks.tick().await;
        }
    };
    soon("there is room for another", again).await;
    world.stop().await;
}

#[tokio::test]
async fn open_subscriptions_count_for_a_new_quota() {
    let limited = Quota { max_subscriptions: number(2), ..Quota::default() };
    let (world, tokens) = world(vec![entry("one", limited)], GatewayOptions::default()).await;
    let mut client = Client::connect(world.address(), Some("one")).await.unwrap();
    client.subscribe("t", "a", json!({})).await;
    // Another quota than before; the open subscription counts for it too.
    let others = Quota { max_connections: number(9), ..limited };
    for quota in [Quota::default(), others] {
        tokens.replace(vec![entry("one", quota)]);
        // The token is checked before the next frame is handled.
        client.publish("u", json!(1)).await;
    }
    client.subscribe("t", "b", json!({})).await;
    client.refused(json!({"op": "SUBSCRIBE", "topic": "t", "group": "c"}), "too_many_subscriptions").await;
    world.stop().await;
}

#[tokio::test]
async fn the_subscriptions_of_a_token_have_so_much_in_flight_together() {
    let quota = Quota { max_in_flight: number(100), ..Quota::default() };
    let (world, tokens) = world(vec![entry("one", quota)], GatewayOptions::default()).await;
    let mut first = Client::connect(world.address(), Some("one")).await.unwrap();
    let mut second = Client::connect(world.address(), Some("one")).await.unwrap();
    let ask = |group: &str, in_flight: u32| json!({"op": "SUBSCRIBE", "topic": "t", "group": group, "opts": {"maxInFlight": in_flight}});
    first.ok(ask("a", 60)).await;
    second.ok(ask("b", 30)).await;
    second.refused(ask("c", 11), "too_many_in_flight").await;
    second.ok(ask("c", 10)).await;
    second.refused(ask("d", 1), "too_many_in_flight").await;
    second.refused(ask("d", 200_000), "bad_option").await;
    // Open subscriptions stay and count, also beyond a smaller quota.
    for quota in [Quota::default(), Quota { max_in_flight: number(99), ..Quota::default() }] {
        tokens.replace(vec![entry("one", quota)]);
        first.publish("u", json!(1)).await;
        second.publish("u", json!(1)).await;
    }
    first.ok(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "a"})).await;
    first.refused(ask("a", 60), "too_many_in_flight").await;
    first.ok(ask("a", 59)).await;
    world.stop().await;
}

#[tokio::test]
async fn a_token_begins_so_many_topics_in_an_hour() {
    let quota = Quota { new_topics_per_hour: number(3), ..Quota::default() };
    let (world, _) =
        world(vec![entry("one", quota), entry("two", Quota::default())], GatewayOptions::default()).await;
    let mut client = Client::connect(world.address(), Some("one")).await.unwrap();
    let mut other = Client::connect(world.address(), Some("two")).await.unwrap();
    other.publish("old", json!(1)).await;
    // Many frames for one new topic, the first of which is not durable yet.
    for n in 0..20 {
        client.send(json!({"op": "PUBLISH", "topic": "a", "payload": n})).await;
    }
    for _ in 0..20 {
        assert_eq!(client.next().await["op"], "OK");
    }
    client.publish("old", json!(2)).await;
    // A request that is refused for another reason costs no topic.
    assert_eq!(ask(&world, "PUT", "/topics/x.dlq", "one", "{}").await.0, 400);
    assert_eq!(ask(&world, "PUT", "/topics/b", "one", "{}").await.0, 200);
    assert_eq!(ask(&world, "PUT", "/topics/b", "one", "{}").await.0, 200);
    client.publish("b", json!(1)).await;
    assert_eq!(ask(&world, "POST", "/publish/c", "one", "1").await.0, 200);
    client.refused(json!({"op": "PUBLISH", "topic": "d", "payload": 1}), "rate_limited").await;
    for (method, path) in [("PUT", "/topics/d"), ("POST", "/publish/d"), ("POST", "/publish/d/batch")] {
        let body = if path.ends_with("batch") { "{\"payload\":1}" } else { "{}" };
        let (status, head, answer) = ask(&world, method, path, "one", body).await;
        assert_eq!((status, &answer["error"]), (429, &json!("rate_limited")), "{path} {answer}");
        assert!(head.contains("retry-after: 1200"), "{head}");
    }
    assert_eq!(ask(&world, "GET", "/topics/d", "two", "").await.0, 404, "a refused request creates no topic");
    client.publish("c", json!(2)).await;
    world.advance(1_200_000);
    client.publish("d", json!(1)).await;
    client.refused(json!({"op": "PUBLISH", "topic": "e", "payload": 1}), "rate_limited").await;
    other.publish("e", json!(1)).await;
    client.publish("e", json!(2)).await;
    // A deleted topic counts as new again.
    assert_eq!(ask(&world, "DELETE", "/topics/b", "two", "").await.0, 200);
    assert_eq!(ask(&world, "PUT", "/topics/b", "one", "{}").await.0, 429);
    world.stop().await;
}

#[tokio::test]
async fn a_token_publishes_so_much_over_whatever_connections() {
    let quota =
        Quota { publish_per_second: number(10), publish_bytes_per_second: number(2_000), ..Quota::default() };
    let (world, _) =
        world(vec![entry("one", quota), entry("two", Quota::default())], GatewayOptions::default()).await;
    let mut first = Client::connect(world.address(), Some("one")).await.unwrap();
    let mut second = Client::connect(world.address(), Some("one")).await.unwrap();
    let batch = |count: usize| {
        let events: Vec<Value> = (0..count).map(|n| json!({"payload": n})).collect();
        json!({"op": "PUBLISH", "topic": "t", "events": events})
    };
    first.ok(batch(4)).await;
    second.ok(batch(4)).await;
    assert_eq!(ask(&world, "POST", "/publish/t", "one", "1").await.0, 200);
    let lines = "{\"payload\":1}\n{\"payload\":2}\n";
    let (status, head, body) = ask(&world, "POST", "/publish/t/batch", "one", lines).await;
    assert_eq!((status, &body["error"]), (429, &json!("rate_limited")), "{body}");
    let message = body["message"].as_str().unwrap();
    let whose = "too many events of the token (`publish_per_second` of its limits) in too short a time; try again in ";
    assert!(message.starts_with(whose), "{message}");
    assert!(head.contains("retry-after: 1"), "{head}");
    // Replies keep the order of the frames, also refusals.
    for n in 0..3 {
        first.send(json!({"op": "PUBLISH", "topic": "t", "payload": n, "corr": n})).await;
    }
    let mut replies = Vec::new();
    for _ in 0..3 {
        let reply = first.next().await;
        replies.push((reply["corr"].as_u64().unwrap(), reply["op"].as_str().unwrap().to_owned()));
    }
    assert_eq!(replies, [(0, "OK".into()), (1, "ERR".into()), (2, "ERR".into())]);
    let reply = second.refused(batch(1), "rate_limited").await;
    assert_eq!(reply["retry_after_ms"], 100);
    second.refused(batch(11), "rate_limited").await;
    Client::connect(world.address(), Some("two")).await.unwrap().ok(batch(100)).await;
    // Bytes have a limit of their own, and a refusal for bytes costs no events.
    world.advance(1_000);
    let large = "x".repeat(1_500);
    second.publish("t", json!(large)).await;
    for _ in 0..20 {
        second.refused(json!({"op": "PUBLISH", "topic": "t", "payload": large}), "rate_limited").await;
    }
    first.publish("t", json!(1)).await;
    let (status, _, body) =
        ask(&world, "POST", "/publish/t", "one", &format!("\"{}\"", "x".repeat(3_000))).await;
    assert_eq!((status, &body["error"]), (413, &json!("rate_limited")), "{body}");
    let message = body["message"].as_str().unwrap();
    assert!(message.contains("`publish_bytes_per_second` of its limits"), "{message}");
    world.stop().await;
}

#[tokio::test]
async fn a_token_begins_so_many_groups_in_an_hour() {
    let quota = Quota { new_groups_per_hour: number(2), ..Quota::default() };
    let (world, _) =
        world(vec![entry("one", quota), entry("two", Quota::default())], GatewayOptions::default()).await;
    let mut client = Client::connect(world.address(), Some("one")).await.unwrap();
    let subscribe = |group: &str| json!({"op": "SUBSCRIBE", "topic": "t", "group": group});
    let unsubscribe = |group: &str| json!({"op": "UNSUBSCRIBE", "topic": "t", "group": group});
    for group in ["a", "b", "a", "b"] {
        client.ok(subscribe(group)).await;
        client.ok(unsubscribe(group)).await;
    }
    client.refused(subscribe("c"), "rate_limited").await;
    let (_, _, groups) = ask(&world, "GET", "/groups", "two", "").await;
    assert_eq!(groups["groups"].as_array().unwrap().len(), 2, "a refusal leaves no group behind");
    world.advance(1_800_000);
    client.ok(subscribe("c")).await;
    world.stop().await;
}

#[tokio::test]
async fn the_last_topics_are_kept_for_admins() {
    let grants = Arc::new(Grants::parse(["publish:**"]).unwrap());
    let plain = StaticToken { grants, ..entry("plain", Quota::default()) };
    let tokens = vec![plain, entry("admin", Quota::default())];
    let tokens = StaticTokens::new(tokens, Arc::new(ManualClock::new(NOW)));
    let world = World::with_few_topics(Arc::new(tokens)).await;
    for n in 0..18 {
        assert_eq!(ask(&world, "POST", &format!("/publish/t{n}"), "plain", "1").await.0, 200, "{n}");
    }
    let (status, _, answer) = ask(&world, "POST", "/publish/t18", "plain", "1").await;
    assert_eq!((status, &answer["error"]), (409, &json!("too_many_topics")), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("`limits.events.topics_max` (20)"), "{answer}");
    let (_, _, health) = ask(&world, "GET", "/health", "plain", "").await;
    assert_eq!((&health["status"], &health["topics_scarce"]), (&json!("degraded"), &json!(true)));
    // Topics that exist are not touched by this, and an admin may use what is kept.
    assert_eq!(ask(&world, "POST", "/publish/t3", "plain", "1").await.0, 200);
    assert_eq!(ask(&world, "POST", "/publish/t18", "admin", "1").await.0, 200);
    // A topic that an admin created is no new topic when it gets its first event.
    assert_eq!(ask(&world, "PUT", "/topics/made", "admin", "{}").await.0, 200);
    assert_eq!(ask(&world, "POST", "/publish/made", "plain", "1").await.0, 200);
    assert_eq!(ask(&world, "DELETE", "/topics/made", "admin", "").await.0, 200);
    assert_eq!(ask(&world, "DELETE", "/topics/t0", "admin", "").await.0, 200);
    assert_eq!(ask(&world, "DELETE", "/topics/t1", "admin", "").await.0, 200);
    assert_eq!(ask(&world, "POST", "/publish/t19", "plain", "1").await.0, 200);
    world.stop().await;
}
