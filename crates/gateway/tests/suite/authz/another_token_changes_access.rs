//! A client that shows another token has the access of that token.

use serde_json::{Value, json};

use super::super::ws::client::Client;
use super::{listed, signed_until, world};

/// Shows another token; the frames before the reply, and the reply.
async fn renew(client: &mut Client, token: &str) -> (Vec<Value>, Value) {
    client.send(json!({"op": "AUTH", "token": token, "corr": "renew"})).await;
    let mut ended = Vec::new();
    loop {
        let frame = client.next().await;
        if frame["corr"] == "renew" {
            return (ended, frame);
        }
        ended.push(frame);
    }
}

#[tokio::test]
async fn a_token_with_less_ends_what_it_does_not_cover() {
    let fewer = "subscribe:b publish:b subscribe:c.*@g";
    let scopes = ["admin", fewer, "subscribe:b !subscribe:b@g", ""].map(str::to_owned);
    let world = world(&scopes).await;
    let mut client = Client::connect(world.address(), Some(&listed("admin"))).await.unwrap();
    for (topic, group) in [("a", "g"), ("b", "g"), ("b", "h"), ("c.*", "g"), ("c.**", "g"), ("c.*", "h")] {
        client.subscribe(topic, group, json!({})).await;
    }
    client.publish("a", json!(1)).await;
    client.event().await;
    let (ended, reply) = renew(&mut client, &listed(fewer)).await;
    assert_eq!(reply["op"], "OK");
    let mut said: Vec<String> = Vec::new();
    for frame in &ended {
        assert_eq!(
            (&frame["op"], &frame["code"], frame.get("corr")),
            (&json!("ERR"), &json!("forbidden"), None)
        );
        said.push(frame["msg"].as_str().unwrap().split('`').nth(1).unwrap().to_owned());
    }
    said.sort();
    assert_eq!(said, ["subscribe:a@g", "subscribe:c.**@g", "subscribe:c.*@h"]);
    client.refused(json!({"op": "PUBLISH", "topic": "a", "payload": 2}), "forbidden").await;
    client.refused(json!({"op": "ACK", "topic": "a", "group": "g", "ids": []}), "not_subscribed").await;
    // The remaining subscriptions go on, and the ended ones deliver nothing.
    let mut other = Client::connect(world.address(), Some(&listed("admin"))).await.unwrap();
    for topic in ["a", "c.d.e", "b", "c.d"] {
        other.publish(topic, json!(3)).await;
    }
    let mut came: Vec<String> = Vec::new();
    for _ in 0..3 {
        let event = client.event().await;
        came.push(format!(
            "{} {}",
            event["event"]["topic"].as_str().unwrap(),
            event["group"].as_str().unwrap()
        ));
    }
    came.sort();
    assert_eq!(came, ["b g", "b h", "c.d g"]);
    let (ended, _) = renew(&mut client, &listed("subscribe:b !subscribe:b@g")).await;
    assert_eq!(ended.len(), 2, "{ended:?}");
    let (ended, _) = renew(&mut client, &listed("")).await;
    assert_eq!(ended.len(), 1, "{ended:?}");
    // An invalid token changes nothing, and a token with more scopes does not bring subscriptions back.
    renew(&mut client, "prom_wrong").await;
    client.refused(json!({"op": "PUBLISH", "topic": "b", "payload": 1}), "forbidden").await;
    let (ended, reply) = renew(&mut client, &listed("admin")).await;
    assert_eq!((ended.len(), &reply["op"]), (0, &json!("OK")));
    client.subscribe("a", "g", json!({})).await;
    world.stop().await;
}

#[tokio::test]
async fn a_signed_token_closes_the_connection_at_its_end() {
    let world = world(&["admin".to_owned()]).await;
    let token = signed_until("admin", 60);
    let mut by_header = Client::connect(world.address(), Some(&token)).await.unwrap();
    let mut by_frame = world.ws().await;
    by_frame.ok(json!({"op": "AUTH", "token": token})).await;
    let mut renews = Client::connect(world.address(), Some(&token)).await.unwrap();
    renews.ok(json!({"op": "AUTH", "token": signed_until("admin", 600)})).await;
    world.advance(59_999);
    by_header.publish("t", json!(1)).await;
    by_frame.publish("t", json!(1)).await;
    world.advance(1);
    for client in [&mut by_header, &mut by_frame] {
        // Any frame makes the connection look at the clock; the frame itself is not handled.
        client.send(json!({"op": "PAUSE", "topic": "t", "group": "g"})).await;
        assert_eq!(client.close_code().await, 4401);
    }
    renews.publish("t", json!(2)).await;
    world.stop().await;
}
