use serde_json::json;

use crate::suite::world::{NOW, World};

#[tokio::test]
async fn replay_goes_from_any_place_and_says_where_to_go_on() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let published = world.publish(&format!("a?ts={}", 100 + n / 2), &n.to_string()).await;
        ids.push(published["id"].as_str().unwrap().to_owned());
    }
    let payloads = async |query: &str| {
        let page = world.get(&format!("/replay?topic=a&{query}")).await.json(200);
        let events: Vec<i64> =
            page["events"].as_array().unwrap().iter().map(|e| e["payload"].as_i64().unwrap()).collect();
        assert_eq!(page["count"], events.len());
        (events, page["next"].as_u64())
    };
    assert_eq!(payloads("").await, (vec![0, 1, 2, 3, 4], None));
    assert_eq!(payloads("from=earliest&limit=2").await, (vec![0, 1], Some(2)));
    assert_eq!(payloads("from=latest").await, (vec![], None));
    assert_eq!(payloads("from=ts&ts=101").await, (vec![2, 3, 4], None));
    assert_eq!(payloads("ts=999").await, (vec![], None));
    assert_eq!(payloads(&format!("from=afterId&afterId={}", ids[2])).await, (vec![3, 4], None));
    assert_eq!(payloads("offset=3&limit=1").await, (vec![3], Some(4)));
    assert_eq!(payloads("offset=99").await, (vec![], None));
    assert_eq!(
        world.get("/replay?topic=never.seen").await.json(200),
        json!({"topic": "never.seen", "count": 0, "events": []})
    );
    world.get(&format!("/replay?topic=b&afterId={}", ids[0])).await.refused(404, "unknown_event");
    for query in [
        "",
        "?topic=",
        "?topic=A",
        "?topic=a&topic=a",
        "?topic=a&from=never",
        "?topic=a&from=ts",
        "?topic=a&from=earliest&ts=5",
        "?topic=a&ts=5&offset=5",
        "?topic=a&limit=0",
        "?topic=a&limit=10001",
        "?topic=a&limit=1e3",
        "?topic=a&offset=-1",
        "?topic=a&offset=18446744073709551615",
        "?topic=a&afterId=7",
        "?topic=a&%zz=1",
        "?topic=a&limit[$gt]=1",
        "?topic=a.*",
    ] {
        let answer = world.get(&format!("/replay{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text());
    }
    world.stop().await;
}

#[tokio::test]
async fn large_events_end_a_page_early() {
    let world = World::new().await;
    let payload = format!("\"{}\"", "x".repeat(1_000_000));
    for _ in 0..12 {
        world.publish("big", &payload).await;
    }
    let (mut next, mut seen, mut pages) = (Some(0), 0, 0);
    while let Some(offset) = next {
        let page = world.get(&format!("/replay?topic=big&offset={offset}")).await.json(200);
        seen += page["count"].as_u64().unwrap();
        next = page["next"].as_u64();
        pages += 1;
    }
    assert_eq!(seen, 12);
    assert!(pages > 1, "one answer of 12 MB");
    world.stop().await;
}

#[tokio::test]
async fn the_latest_event_of_each_key() {
    let world = World::on_disk().await;
    world.publish("a?key=x", "1").await;
    world.publish("a?key=y", "2").await;
    world.publish("a?key=x", "null").await;
    let latest = world.get("/latest-by-key?topic=a&key=x&key=y&key=x&key=no").await.json(200);
    assert_eq!(latest["topic"], "a");
    assert_eq!(
        (&latest["events"]["x"]["payload"], &latest["events"]["x"]["offset"]),
        (&json!(null), &json!(2))
    );
    assert_eq!((&latest["events"]["y"]["payload"], &latest["events"]["no"]), (&json!(2), &json!(null)));
    world.get("/latest-by-key?topic=a").await.refused(400, "bad_request");
    let many = "&key=k".repeat(101);
    world.get(&format!("/latest-by-key?topic=a{many}")).await.refused(400, "bad_request");
    world.stop().await;
}

#[tokio::test]
async fn marks_of_handled_events() {
    let world = World::new().await;
    let path = "/dedupe/a/g/f47ac10b-58cc-4372-a567-0e02b2c3d479";
    world.get(path).await.refused(404, "not_found");
    assert_eq!(world.send("HEAD", path, "").await.status, 404);
    world.send("PUT", &format!("{path}?ttl_ms=1000"), "").await.json(200);
    assert_eq!(world.get(path).await.json(200)["seen"], true);
    let head = world.send("HEAD", path, "").await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    world.clock.advance(1001);
    world.get(path).await.refused(404, "not_found");
    for bad in ["/dedupe/a/g/7", "/dedupe/A/g/f47ac10b-58cc-4372-a567-0e02b2c3d479", "/dedupe/a/g%2Fh/7"] {
        assert_eq!(world.send("PUT", bad, "").await.status, 400, "{bad}");
    }
    world.send("PUT", &format!("{path}?ttl_ms=0"), "").await.refused(400, "bad_request");
    world.stop().await;
}

#[tokio::test]
async fn topics_are_made_set_listed_and_deleted() {
    let world = World::on_disk().await;
    world.get("/topics/a").await.refused(404, "unknown_topic");
    let set = r#"{"compacted":true,"retention":{"age":"7d"},"max_attempts":3}"#;
    let made = world.send("PUT", "/topics/a", set).await.json(200);
    assert_eq!((&made["topic"], &made["end"]), (&json!("a"), &json!(0)));
    assert_eq!(
        (&made["settings"]["compacted"], &made["settings"]["retention"]["age"]),
        (&json!(true), &json!("7d"))
    );
    assert_eq!(world.get("/topics/a").await.json(200), made);
    world.send("POST", "/publish/a", "1").await.refused(400, "key_required");
    let plain = world.send("PUT", "/topics/a", "{}").await.json(200);
    assert_eq!(plain["settings"]["compacted"], false);
    world.publish("b.c", "1").await;
    let all = world.get("/topics").await.json(200);
    let names = |page: &serde_json::Value| -> Vec<String> {
        page["topics"].as_array().unwrap().iter().map(|t| t["topic"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((names(&all), &all["next"]), (vec!["a".to_owned(), "b.c".to_owned()], &json!(null)));
    let first = world.get("/topics?limit=1").await.json(200);
    assert_eq!((names(&first), &first["next"]), (vec!["a".to_owned()], &json!("a")));
    assert_eq!(names(&world.get("/topics?limit=1&after=a").await.json(200)), ["b.c"]);
    for (path, body, code) in [
        ("/topics/a", r#"{"partitions":0}"#, "bad_settings"),
        ("/topics/a", r#"{"partition":1}"#, "bad_request"),
        ("/topics/a", r#"{"compacted":1}"#, "bad_request"),
        ("/topics/a", r#"{"compacted":true,"compacted":false}"#, "bad_request"),
        ("/topics/a", "", "bad_request"),
        ("/topics/_x", "{}", "reserved_name"),
        ("/topics/x.dlq", "{}", "reserved_name"),
        ("/topics/a", r#"{"durability":"majority"}"#, "not_offered"),
        ("/topics/never", r#"{"durability":"w1"}"#, "not_offered"),
    ] {
        world.send("PUT", path, body).await.refused(400, code);
    }
    world.get("/topics/never").await.refused(404, "unknown_topic");
    world.publish("a", "2").await;
    let mut client = world.http().await;
    let text = [("content-type", "text/plain")];
    client.send("PUT", "/topics/a", &text, "{}").await.refused(415, "unsupported_media_type");
    assert_eq!(
        world.send("DELETE", "/topics/b.c", "").await.json(200),
        json!({"topic": "b.c", "deleted": true})
    );
    world.send("DELETE", "/topics/b.c", "").await.refused(404, "unknown_topic");
    assert_eq!(world.publish("b.c", "1").await["ts"], NOW);
    world.stop().await;
}
