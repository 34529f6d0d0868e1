use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{Grants, Quota, StaticToken, StaticTokens, TokenHash};
use promethean_testkit::ManualClock;
use serde_json::Value;

use super::client::Client;
use crate::suite::world::{NOW, World};

struct Stream {
    _client: Client,
    body: Incoming,
    text: String,
}

impl Stream {
    async fn open(world: &World, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut client = world.http().await;
        let response = client.open("GET", path, headers, "").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut stream = Self { _client: client, body: response.into_body(), text: String::new() };
        // After these bytes the stream follows the topic.
        assert_eq!(stream.block().await.as_deref(), Some("retry: 1000"));
        stream
    }

    /// The next block, up to an empty line; `None` at the end.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let frame = tokio::time::timeout(Duration::from_secs(120), self.body.frame()).await.unwrap();
            let data = frame?.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
    }

    /// The id and the event of the next block.
    async fn event(&mut self) -> (u64, Value) {
        let block = self.block().await.unwrap();
        let (id, data) = block.split_once('\n').unwrap();
        let id = id.strip_prefix("id: ").unwrap().parse().unwrap();
        (id, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap())
    }
}

#[tokio::test]
async fn events_come_as_they_are_published() {
    let world = World::on_disk().await;
    world.publish("a", "0").await;
    let mut stream = Stream::open(&world, "/stream/a", &[]).await;
    let mut early = Stream::open(&world, "/stream/a?from=earliest", &[]).await;
    let mut unborn = Stream::open(&world, "/stream/not.yet", &[]).await;
    world.publish("a?key=k", "{\"line\":\"a\\nb\"}").await;
    world.publish("not.yet", "7").await;
    let (id, event) = stream.event().await;
    assert_eq!((id, &event["payload"]["line"], &event["key"]), (1, &"a\nb".into(), &"k".into()));
    assert_eq!(early.event().await.0, 0);
    assert_eq!(early.event().await.0, 1);
    assert_eq!(unborn.event().await.0, 0);
    world.stop().await;
    assert_eq!(stream.block().await, None);
    assert_eq!(unborn.block().await, None);
}

#[tokio::test]
async fn a_client_goes_on_after_its_last_event_without_gap_or_duplicate() {
    let world = World::on_disk().await;
    let publishing = async {
        for n in 0..400 {
            world.publish("a", &n.to_string()).await;
        }
    };
    let reading = async {
        let mut seen: Vec<u64> = Vec::new();
        let mut last: Option<String> = None;
        while seen.len() < 400 {
            let header = last.iter().map(|last| ("last-event-id", last.as_str())).collect::<Vec<_>>();
            let mut stream = Stream::open(&world, "/stream/a?from=earliest", &header).await;
            for _ in 0..37.min(400 - seen.len()) {
                let (id, event) = stream.event().await;
                assert_eq!(event["payload"], id);
                seen.push(id);
                last = Some(if id % 2 == 0 { id.to_string() } else { format!("a:{id}") });
            }
        }
        assert_eq!(seen, (0..400).collect::<Vec<_>>());
    };
    tokio::join!(publishing, reading);
    world.stop().await;
}

#[tokio::test]
async fn a_place_that_is_not_there_is_refused() {
    let world = World::new().await;
    world.publish("a", "0").await;
    let mut client = world.http().await;
    for last in ["x", "-1", "b:0", "a:", "a:x", "99999999999999999999"] {
        client.send("GET", "/stream/a", &[("last-event-id", last)], "").await.refused(400, "bad_request");
    }
    client.send("GET", "/stream/a", &[("last-event-id", "5")], "").await.refused(400, "bad_seek");
    client.send("GET", "/stream/a.*", &[], "").await.refused(400, "bad_name");
    client.send("GET", "/stream/a?from=ts", &[], "").await.refused(400, "bad_request");
    world.stop().await;
}

#[tokio::test]
async fn a_deleted_topic_ends_its_streams() {
    let world = World::new().await;
    world.publish("a", "0").await;
    let mut stream = Stream::open(&world, "/stream/a", &[]).await;
    world.send("DELETE", "/topics/a", "").await.json(200);
    assert_eq!(stream.block().await, None);
    world.stop().await;
}

#[tokio::test]
async fn a_slow_reader_delays_no_other() {
    let world = World::new().await;
    let slow = Stream::open(&world, "/stream/a", &[]).await;
    let mut quick = Stream::open(&world, "/stream/a", &[]).await;
    let payload = format!("\"{}\"", "x".repeat(200_000));
    for n in 0..100 {
        world.publish("a", &payload).await;
        assert_eq!(quick.event().await.0, n);
    }
    drop(slow);
    world.stop().await;
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_taken_out_or_no_longer_allows_it() {
    let entry = |token: &str, scope: &str| StaticToken {
        name: token.into(),
        hash: TokenHash::of(token),
        grants: Arc::new(Grants::parse([scope]).unwrap()),
        expires_ms: None,
        quota: Quota::default(),
    };
    let all = |first: &str| vec![entry("one", first), entry("two", "subscribe:a"), entry("own", "admin")];
    let tokens = StaticTokens::new(all("subscribe:a"), Arc::new(ManualClock::new(NOW)));
    let options = GatewayOptions { auth_check_every_ms: 5, ..GatewayOptions::default() };
    let world = World::with_auth(options, Arc::new(tokens.clone())).await;
    let mut one = Stream::open(&world, "/stream/a", &[("authorization", "Bearer one")]).await;
    let mut two = Stream::open(&world, "/stream/a", &[("authorization", "Bearer two")]).await;
    tokens.replace(all("subscribe:b"));
    // No event comes, and the stream ends nevertheless.
    assert_eq!(one.block().await, None);
    let publish = async |world: &World| {
        let own = [("authorization", "Bearer own")];
        world.http().await.send("POST", "/publish/a", &own, "1").await.json(200);
    };
    publish(&world).await;
    assert_eq!(two.event().await.0, 0);
    tokens.replace(vec![entry("own", "admin")]);
    publish(&world).await;
    assert_eq!(two.block().await, None);
    let mut client = world.http().await;
    let two = [("authorization", "Bearer two")];
    client.send("GET", "/stream/a", &two, "").await.refused(401, "bad_token");
    world.stop().await;
}
