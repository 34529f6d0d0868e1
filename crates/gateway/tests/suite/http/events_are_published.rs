use promethean_gateway::GatewayOptions;
use serde_json::json;

use crate::suite::world::{NOW, World};

#[tokio::test]
async fn an_event_is_published_and_read_back_with_everything_it_was_given() {
    let world = World::new().await;
    let id = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    let cause = "00000000-0000-0000-0000-000000000001";
    let path = format!(
        "/publish/orders.placed?key=a%20b&ts=5&tags=x&tags=y&caused_by={cause}&sid=s&expected_offset=0&expected_key_offset=none"
    );
    let headers = [
        ("x-event-id", id),
        ("content-type", "application/json"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-region", "eu"),
        ("authorization", "Bearer hunter2"),
        ("cookie", "hunter2"),
        ("x-api-key", "hunter2"),
        ("user-agent", "test"),
    ];
    let mut client = world.http().await;
    let published = client.send("POST", &path, &headers, r#"{ "order" : 7 }"#).await.json(200);
    assert_eq!(
        published,
        json!({"id": id, "topic": "orders.placed", "offset": 0, "ts": 5, "durability": "memory"})
    );
    let replayed = client.send("GET", "/replay?topic=orders.placed", &[], "").await;
    assert!(!replayed.text().contains("hunter2"));
    let event = &replayed.json(200)["events"][0];
    assert_eq!(
        *event,
        json!({"id": id, "ts": 5, "topic": "orders.placed", "offset": 0, "key": "a b",
            "headers": {"content-type": "application/json", "x-region": "eu",
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
            "payload": {"order": 7}, "tags": ["x", "y"], "caused_by": [cause], "sid": "s"})
    );
    world.stop().await;
}

#[tokio::test]
async fn credentials_that_proxies_pass_on_are_not_stored() {
    let world = World::new().await;
    let mut client = world.http().await;
    let headers = [
        ("x-goog-iap-jwt-assertion", "hunter2"),
        ("x-amzn-oidc-data", "hunter2"),
        ("x-ms-client-principal", "hunter2"),
        ("x-forwarded-client-cert", "hunter2"),
        ("x-forwarded-for", "hunter2"),
        ("x-user-pwd", "hunter2"),
        ("tracestate", "a=b"),
        ("t0", "5"),
        ("x-region", "eu"),
    ];
    for media in ["application/x-www-form-urlencoded; charset=utf-8", "multipart/form-data; boundary=x"] {
        let headers = [&headers[..], &[("content-type", media)]].concat();
        client.send("POST", "/publish/a", &headers, "1").await.json(200);
    }
    let replayed = client.send("GET", "/replay?topic=a", &[], "").await;
    assert!(!replayed.text().contains("hunter2"), "{}", replayed.text());
    for event in replayed.json(200)["events"].as_array().unwrap() {
        assert_eq!(event["headers"], json!({"tracestate": "a=b", "t0": "5", "x-region": "eu"}));
    }
    world.stop().await;
}

#[tokio::test]
async fn the_audit_topic_says_why_it_is_refused() {
    let audit = Some("audit.events".parse().unwrap());
    let world = World::with_options(GatewayOptions { audit, ..GatewayOptions::default() }).await;
    for path in ["/publish/audit.events", "/publish/audit.events/batch"] {
        let refused = world.send("POST", path, "{\"payload\":1}").await.refused(403, "forbidden");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("`audit.events` holds the audit records"), "{path}: {message}");
        assert!(!message.contains("the token lacks"), "{path}: {message}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_list_of_stored_headers_replaces_the_rule() {
    let stored_headers = Some(vec!["X-Region".to_owned(), "x-forwarded-for".to_owned()]);
    let world = World::with_options(GatewayOptions { stored_headers, ..GatewayOptions::default() }).await;
    let mut client = world.http().await;
    let headers = [
        ("x-region", "eu"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-other", "1"),
        ("content-type", "application/json"),
    ];
    client.send("POST", "/publish/a", &headers, "1").await.json(200);
    let events = client.send("GET", "/replay?topic=a", &[], "").await.json(200);
    let expected = json!({"x-region": "eu", "x-forwarded-for": "192.0.2.1"});
    assert_eq!(events["events"][0]["headers"], expected);
    world.stop().await;
}

#[tokio::test]
async fn the_same_id_again_is_a_duplicate_and_another_payload_a_conflict() {
    let world = World::on_disk().await;
    let mut client = world.http().await;
    let id = [("x-event-id", "f47ac10b-58cc-4372-a567-0e02b2c3d479"), ("x-event-key", "k")];
    let first = client.send("POST", "/publish/a", &id, "1").await.json(200);
    assert_eq!(
        (&first["offset"], &first["durability"], &first["ts"]),
        (&json!(0), &json!("fsync"), &json!(NOW))
    );
    world.clock.advance(50);
    let again = client.send("POST", "/publish/a", &id, "1").await.json(200);
    assert_eq!((&again["offset"], &again["ts"], &again["duplicate"]), (&json!(0), &json!(NOW), &json!(true)));
    let other = client.send("POST", "/publish/a", &id, "2").await.refused(409, "id_conflict");
    assert_eq!(other["offset"], 0);
    world.stop().await;
}

#[tokio::test]
async fn what_cannot_be_published_is_refused_by_name() {
    let world = World::new().await;
    let mut client = world.http().await;
    for (path, body, status, code) in [
        ("/publish/a", "", 400, "invalid_json"),
        ("/publish/a", "{", 400, "invalid_json"),
        ("/publish/a", "{\"a\":1,}", 400, "invalid_json"),
        ("/publish/A", "1", 400, "bad_name"),
        ("/publish/..", "1", 400, "bad_name"),
        ("/publish/%2e%2e%2fetc", "1", 400, "bad_name"),
        ("/publish/a%00", "1", 400, "bad_name"),
        ("/publish/a%ff", "1", 400, "bad_request"),
        ("/publish/a%2", "1", 400, "bad_request"),
        ("/publish/_system", "1", 400, "reserved_name"),
        ("/publish/a.dlq", "1", 400, "reserved_name"),
        ("/publish/a?nokey=1", "1", 400, "bad_request"),
        ("/publish/a?key=1&key=2", "1", 400, "bad_request"),
        ("/publish/a?ts=x", "1", 400, "bad_request"),
        ("/publish/a?ts=1.5", "1", 400, "bad_request"),
        ("/publish/a?ts=+1", "1", 400, "bad_request"),
        ("/publish/a?partition=-1", "1", 400, "bad_request"),
        ("/publish/a?caused_by=1", "1", 400, "bad_request"),
        ("/publish/a?expected_offset=7", "1", 409, "conflict"),
        ("/publish/a?expected_key_offset=7", "1", 400, "key_required"),
        ("/publish/a?expected_key_offset=7&key=k", "1", 409, "conflict"),
        ("/publish/a?sid=%0a", "1", 400, "control_character"),
    ] {
        client.send("POST", path, &[], body).await.refused(status, code);
    }
    let long = format!("/publish/a?key={}", "k".repeat(1025));
    client.send("POST", &long, &[], "1").await.refused(413, "key_too_large");
    let big = format!("\"{}\"", "x".repeat(1 << 20));
    client.send("POST", "/publish/a", &[], big).await.refused(413, "payload_too_large");
    for (name, value, code) in [
        ("x-event-id", "7", "bad_request"),
        ("x-event-key", "\u{e9}", "bad_request"),
        ("x-a", "\u{e9}", "bad_request"),
    ] {
        client.send("POST", "/publish/a", &[(name, value)], "1").await.refused(400, code);
    }
    let both = [("x-event-key", "a")];
    client.send("POST", "/publish/a?key=b", &both, "1").await.refused(400, "bad_request");
    let packed = [("content-encoding", "gzip")];
    client.send("POST", "/publish/a", &packed, "1").await.refused(415, "unsupported_media_type");
    assert_eq!(client.send("GET", "/replay?topic=a", &[], "").await.json(200)["count"], 0);
    world.stop().await;
}

#[tokio::test]
async fn a_batch_is_one_commit() {
    let world = World::on_disk().await;
    let mut client = world.http().await;
    let id = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    let body =
        format!("{{\"payload\":1}}\r\n\n{{\"payload\":null,\"opts\":{{\"id\":\"{id}\",\"key\":\"k\"}}}}\n");
    let first = client.send("POST", "/publish/a/batch", &[], body.clone()).await.json(200);
    assert_eq!(first["count"], 2);
    assert_eq!((&first["first_offset"], &first["last_offset"]), (&json!(0), &json!(1)));
    assert_eq!(
        (&first["duplicates"], &first["durability"], &first["ids"][1]),
        (&json!(0), &json!("fsync"), &json!(id))
    );
    let again = client.send("POST", "/publish/a/batch", &[], body).await.json(200);
    assert_eq!(
        (&again["duplicates"], &again["first_offset"], &again["last_offset"]),
        (&json!(1), &json!(1), &json!(2))
    );
    world.stop().await;
}

#[tokio::test]
async fn one_bad_line_writes_nothing_and_is_named() {
    let world = World::on_disk().await;
    let mut client = world.http().await;
    let used = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    client.send("POST", "/publish/a", &[("x-event-id", used)], "1").await.json(200);
    let long_key = format!(r#"{{"payload":1,"opts":{{"key":"{}"}}}}"#, "k".repeat(1025));
    let conflict = format!(r#"{{"payload":2,"opts":{{"id":"{used}"}}}}"#);
    for (line, status, code) in [
        ("{", 400, "bad_request"),
        ("{}", 400, "bad_request"),
        ("[]", 400, "bad_request"),
        ("7", 400, "bad_request"),
        (r#"{"payload":1,"payload":2}"#, 400, "bad_request"),
        (r#"{"payload":1,"x":2}"#, 400, "bad_request"),
        (r#"{"payload":1,"opts":{"x":2}}"#, 400, "bad_request"),
        (r#"{"payload":1,"opts":{"id":"2"}}"#, 400, "bad_request"),
        (r#"{"payload":1,"opts":{"ts":"2"}}"#, 400, "bad_request"),
        (r#"{"payload":"\ud800"}"#, 400, "invalid_json"),
        (r#"{"payload":1,"opts":{"headers":{"a":"b\r\nc"}}}"#, 400, "control_character"),
        (r#"{"payload":1,"opts":{"expected_offset":9}}"#, 409, "conflict"),
        (long_key.as_str(), 413, "key_too_large"),
        (conflict.as_str(), 409, "id_conflict"),
    ] {
        let body = format!("{{\"payload\":1}}\n{line}\n{{\"payload\":3}}\n");
        let refused = client.send("POST", "/publish/a/batch", &[], body).await.refused(status, code);
        assert_eq!(refused["line"], 2, "{line}: {refused}");
        assert!(refused["message"].as_str().unwrap().starts_with("line 2: "), "{refused}");
    }
    client.send("POST", "/publish/a/batch", &[], "\n\n").await.refused(400, "bad_request");
    let many = "{\"payload\":1}\n".repeat(1001);
    client.send("POST", "/publish/a/batch", &[], many).await.refused(413, "batch_too_large");
    assert_eq!(client.send("GET", "/replay?topic=a", &[], "").await.json(200)["count"], 1);
    world.stop().await;
}

#[tokio::test]
async fn an_id_twice_in_one_batch_is_blamed_on_the_second_line() {
    let world = World::on_disk().await;
    let id = "00000000-0000-7000-8000-0000000000aa";
    let line = |payload: &str| format!("{{\"payload\":{payload},\"opts\":{{\"id\":\"{id}\"}}}}\n");
    let send = async |body: String| world.send("POST", "/publish/a/batch", &body).await;
    let refused =
        send(format!("{{\"payload\":0}}\n{}{}", line("1"), line("2"))).await.refused(409, "id_conflict");
    assert_eq!(refused["line"], 3, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("line 2"), "{refused}");
    // The same event twice is a duplicate. Another event with the id of a stored one is blamed itself.
    assert_eq!(send(format!("{}{}", line("1"), line("1"))).await.json(200)["duplicates"], 1);
    let refused = send(format!("{{\"payload\":0}}\n{}", line("3"))).await.refused(409, "id_conflict");
    assert_eq!(refused["line"], 2, "{refused}");
    world.stop().await;
}
