//! Schemas over HTTP, and their effect on publishing over both transports.

use serde_json::{Value, json};

use super::super::ws::client::Client;
use crate::suite::world::World;

const ONE: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#;
const TWO: &str = r#"{"type":"object","properties":{"n":{"type":"number"},"by":{"type":"string"}},"required":["n"],
    "additionalProperties":false}"#;

async fn post(world: &World, path: &str, body: &str) -> super::client::Answer {
    world.send("POST", path, body).await
}

#[tokio::test]
async fn a_schema_is_registered_shown_and_deleted() {
    for world in [World::new().await, World::on_disk().await] {
        let first = post(&world, "/schemas/orders", ONE).await.json(200);
        assert_eq!(
            (&first["version"], &first["unchanged"], &first["compared"]),
            (&json!(1), &json!(false), &json!([]))
        );
        assert_eq!(post(&world, "/schemas/orders", ONE).await.json(200)["unchanged"], true);
        let would = post(&world, "/schemas/orders?dry_run=1", TWO).await.json(200);
        assert_eq!((&would["version"], &would["dry_run"]), (&json!(2), &json!(true)));
        assert_eq!(world.get("/schemas/orders").await.json(200)["versions"].as_array().unwrap().len(), 1);
        let second = post(&world, "/schemas/orders?version=7", TWO).await.json(200);
        assert_eq!(
            (&second["version"], &second["compared"][0]["verdict"]),
            (&json!(7), &json!("compatible"))
        );
        let shown = world.get("/schemas/orders/1").await.json(200);
        assert_eq!(
            (&shown["schema"], &shown["compat"]),
            (&serde_json::from_str(ONE).unwrap(), &json!("backward"))
        );
        assert_eq!(world.get("/schemas/orders/latest").await.json(200)["version"], 7);
        let all = world.get("/schemas").await.json(200);
        assert_eq!(all, json!({"topics": [{"topic": "orders", "versions": 2, "latest": 7}]}));
        assert_eq!(world.send("DELETE", "/schemas/orders/7", "").await.json(200)["deleted"], true);
        world.publish("orders", r#"{"n":1}"#).await;
        world.send("DELETE", "/schemas/orders/1", "").await.refused(409, "schema_in_use");
        world.send("DELETE", "/topics/orders", "").await.json(200);
        assert_eq!(world.get("/schemas").await.json(200), json!({"topics": []}));
        world.stop().await;
    }
}

#[tokio::test]
async fn what_cannot_be_registered_says_why_and_changes_nothing() {
    let world = World::new().await;
    post(&world, "/schemas/t", ONE).await.json(200);
    let narrow =
        r#"{"type":"object","properties":{"n":{"type":"integer","minimum":1}},"required":["n","by"]}"#;
    let refused = post(&world, "/schemas/t", narrow).await.refused(409, "schema_incompatible");
    let rules: Vec<&str> = refused["compared"][0]["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["rule"].as_str().unwrap())
        .collect();
    assert!(rules.contains(&"required_added") && rules.contains(&"bound_tightened"), "{refused}");
    for finding in refused["compared"][0]["findings"].as_array().unwrap() {
        assert!(finding["fix"].as_str().unwrap().len() > 10 && finding.get("example").is_some(), "{finding}");
    }
    // A check finds the same and answers 200.
    let check = post(&world, "/schemas/t/check", narrow).await.json(200);
    assert_eq!((&check["verdict"], &check["compared"]), (&json!("incompatible"), &refused["compared"]));
    // An undecided comparison can be forced, an incompatible one cannot.
    post(&world, "/schemas/t?force=1", narrow).await.refused(409, "schema_incompatible");
    post(&world, "/schemas/t?version=1", TWO).await.refused(409, "version_taken");
    for (schema, part) in [
        ("[]", "an object"),
        ("{\"type\":5}", "type"),
        ("{\"type\":\"object\",\"type\":\"string\"}", "JSON"),
        ("{\"$ref\":\"http://example.com/s.json\"}", "example.com"),
        ("{\"$schema\":\"http://json-schema.org/draft-04/schema#\"}", "draft"),
        ("{\"pattern\":\"(a\"}", "pattern"),
        ("{", "JSON"),
    ] {
        let refused = post(&world, "/schemas/t", schema).await.refused(400, "bad_schema");
        assert!(refused["message"].as_str().unwrap().contains(part), "{schema}: {refused}");
    }
    let huge = format!("{{\"title\":\"{}\"}}", "x".repeat(300 << 10));
    post(&world, "/schemas/t", &huge).await.refused(400, "bad_schema");
    let deep = format!("{}{{}}{}", "{\"not\":".repeat(80), "}".repeat(80));
    post(&world, "/schemas/t", &deep).await.refused(400, "bad_schema");
    post(&world, "/schemas/t.dlq", ONE).await.refused(400, "reserved_name");
    world.get("/schemas/t/9").await.refused(404, "unknown_schema");
    world.get("/schemas/t/newest").await.refused(400, "bad_request");
    let other = world.get("/schemas/t/check").await;
    assert_eq!((other.status.as_u16(), &other.headers["allow"]), (405, &"POST, OPTIONS".parse().unwrap()));
    world.get("/schemas/none/latest").await.refused(404, "unknown_schema");
    assert_eq!(world.get("/schemas/t").await.json(200)["versions"].as_array().unwrap().len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn a_payload_is_held_to_the_schema_over_both_transports() {
    let world = World::on_disk().await;
    post(&world, "/schemas/t", ONE).await.json(200);
    world.publish("t", r#"{"n":1}"#).await;
    let bad = r#"{"n":"one","more":1}"#;
    let refused = post(&world, "/publish/t", bad).await.refused(422, "schema_rejected");
    let paths: Vec<&Value> =
        refused["violations"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
    assert!(paths.contains(&&json!("/n")) && paths.contains(&&json!("")), "{refused}");
    assert_eq!((&refused["version"], &refused["total"]), (&json!(1), &json!(2)));
    // A blank line counts as a line, and is no event.
    let batch = format!("{{\"payload\":{{\"n\":2}}}}\n\n{{\"payload\":{bad}}}\n");
    let refused = post(&world, "/publish/t/batch", &batch).await.refused(422, "schema_rejected");
    assert_eq!((&refused["line"], refused.get("index")), (&json!(3), None), "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("line 3: ") && !message.contains("event 1"), "{message}");
    let mut client = Client::connect(world.address(), None).await.unwrap();
    let frame = json!({"op": "PUBLISH", "topic": "t", "payload": {"n": "one"}});
    let refused = client.refused(frame, "schema_rejected").await;
    assert_eq!((&refused["violations"][0]["path"], &refused["version"]), (&json!("/n"), &json!(1)));
    let together = json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": {"n": 5}}, {"payload": 5}]});
    assert_eq!(client.refused(together, "schema_rejected").await["index"], 1);
    client.publish("t", json!({"n": 3})).await;
    // A tombstone has no payload to check.
    client.publish("t", Value::Null).await;
    let events = world.get("/replay?topic=t").await.json(200)["events"].clone();
    let versions: Vec<&Value> =
        events.as_array().unwrap().iter().map(|event| &event["headers"]["x-schema-version"]).collect();
    assert_eq!(versions, [&json!("1"), &json!("1"), &Value::Null], "{events}");
    assert_eq!(post(&world, "/schemas/t/validate", r#"{"n":4}"#).await.json(200)["version"], 1);
    post(&world, "/schemas/t/validate", bad).await.refused(422, "schema_rejected");
    post(&world, "/schemas/t/validate?version=2", bad).await.refused(404, "unknown_schema");
    assert_eq!(post(&world, "/schemas/free/validate", bad).await.json(200)["version"], Value::Null);
    world.send("PUT", "/topics/strict", r#"{"schema":"required"}"#).await.json(200);
    post(&world, "/publish/strict", "1").await.refused(422, "schema_required");
    world.send("PUT", "/topics/t", r#"{"schema":"off"}"#).await.json(200);
    world.publish("t", bad).await;
    let metrics = world.get("/metrics").await.text();
    assert!(metrics.contains("schema_rejected_total{topic=\"t\"} "), "{metrics}");
    world.stop().await;
}

#[tokio::test]
async fn old_events_are_lifted_for_those_who_ask() {
    use promethean_bus::schemas::Upcaster;
    use promethean_jq::Program;
    let world = World::on_disk().await;
    world.send("PUT", "/topics/t", r#"{"compat":"none"}"#).await.json(200);
    post(&world, "/schemas/t", ONE).await.json(200);
    world.publish("t", r#"{"n":1}"#).await;
    let renamed = r#"{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"]}"#;
    post(&world, "/schemas/t", renamed).await.json(200);
    world.publish("t", r#"{"count":2}"#).await;
    let payloads = |answer: Value| -> Vec<Value> {
        answer["events"].as_array().unwrap().iter().map(|event| event["payload"].clone()).collect()
    };
    let failed = post(&world, "/schemas/t/migrate", "").await.json(200);
    assert_eq!(
        (&failed["events"], &failed["failed"], &failed["failures"][0]["offset"]),
        (&json!(2), &json!(1), &json!(0))
    );
    let program = Program::compile("{count: .n}").unwrap();
    world.bus.set_upcasters(&"t".parse().unwrap(), vec![Upcaster { from: 1, to: 2, program }]).unwrap();
    let tried = post(&world, "/schemas/t/migrate", "").await.json(200);
    assert_eq!((&tried["lifted"], &tried["same"], &tried["failed"]), (&json!(1), &json!(1), &json!(0)));
    let stored = payloads(world.get("/replay?topic=t").await.json(200));
    assert_eq!(stored, [json!({"n": 1}), json!({"count": 2})]);
    let lifted = payloads(world.get("/replay?topic=t&normalize=1").await.json(200));
    assert_eq!(lifted, [json!({"count": 1}), json!({"count": 2})]);
    let export = world.get("/export?topic=t&normalize=1").await.text();
    assert!(export.lines().next().unwrap().contains(r#""payload":{"count":1}"#), "{export}");
    let mut client = Client::connect(world.address(), None).await.unwrap();
    client.subscribe("t", "g", json!({"from": "earliest", "normalize": true})).await;
    let event = client.event().await;
    assert_eq!(event["event"]["payload"], json!({"count": 1}));
    assert_eq!(event["event"]["headers"]["x-schema-version"], "2");
    client.ok(super::super::ws::client::about("ACK", &event)).await;
    drop(client);
    world.stop().await;
}
