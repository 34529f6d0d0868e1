//! Publishing checks payloads against the schema of their topic.

use promethean_bus::BusError;
use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_bus::exactly_once::{Effects, ExactlyOnce};
use promethean_bus::{Lease, Nack};
use promethean_model::{EventId, SchemaRule, TopicSettings};

use super::super::bus::harness::*;
use super::*;

on_both_stores!(
    what_fits_is_stamped_and_what_does_not_is_refused,
    violations_are_told_with_path_and_rule,
    a_publisher_can_name_a_version,
    a_bad_event_refuses_its_batch,
    tombstones_are_deletions,
    a_required_schema_must_be_there,
    a_schema_can_be_off,
    old_events_stay_readable,
    a_retry_is_a_duplicate,
    a_redriven_event_keeps_its_version,
    what_handlers_publish_is_checked,
    refusals_are_counted,
    os_events_and_expectations_are_checked_too,
    a_check_that_takes_too_long_is_refused,
    a_refusal_costs_little_whatever_the_schema,
);

async fn what_fits_is_stamped_and_what_does_not_is_refused(kind: StoreKind) {
    let world = World::new(kind).await;
    publish(&world.bus, "t", "7").await.unwrap();
    register(&world.bus, "t", V1).await.unwrap();
    publish(&world.bus, "t", r#"{"n":1}"#).await.unwrap();
    assert_eq!(code(publish(&world.bus, "t", "7").await), "schema_rejected");
    publish(&world.bus, "other", "7").await.unwrap();
    let events = world.events("t").await;
    assert_eq!(events.iter().map(version).collect::<Vec<_>>(), [None, Some("1".to_owned())]);
    let world = world.restart().await;
    assert_eq!(code(publish(&world.bus, "t", "7").await), "schema_rejected");
    publish(&world.bus, "t", r#"{"n":1}"#).await.unwrap();
    assert_eq!(version(&world.events("t").await[2]).as_deref(), Some("1"));
}

async fn violations_are_told_with_path_and_rule(kind: StoreKind) {
    let world = World::new(kind).await;
    let schema = r#"{"type":"object","properties":{"list":{"items":{"type":"integer"}},"a/b":{"maximum":5}},"required":["id"]}"#;
    register(&world.bus, "t", schema).await.unwrap();
    let error = publish(&world.bus, "t", r#"{"list":[1,"x"],"a/b":9}"#).await.unwrap_err();
    let BusError::SchemaRejected(why) = &error else { panic!("{error}") };
    let mut told: Vec<_> = why.violations.iter().map(|one| (one.path.as_str(), one.rule.as_str())).collect();
    told.sort_unstable();
    assert_eq!(told, [("", "required"), ("/a~1b", "maximum"), ("/list/1", "type")]);
    assert_eq!((why.total, why.version, why.index), (3, 1, None));
    assert!(
        error.to_string().contains("version 1 of topic `t`") && error.to_string().contains("and 2 more"),
        "{error}"
    );
    let many = format!(r#"{{"id":1,"list":[{}]}}"#, vec!["\"x\""; 3_000].join(","));
    let Err(BusError::SchemaRejected(why)) = publish(&world.bus, "t", &many).await else { panic!("taken") };
    assert_eq!((why.violations.len(), why.total), (32, 1_000));
    let long = format!(r#"{{"id":1,"list":["{}"]}}"#, "\u{e9}".repeat(100_000));
    let Err(BusError::SchemaRejected(why)) = publish(&world.bus, "t", &long).await else { panic!("taken") };
    assert!(why.violations[0].message.len() < 300);
    assert_eq!(world.events("t").await.len(), 0);
}

async fn a_publisher_can_name_a_version(kind: StoreKind) {
    let world = World::new(kind).await;
    assert_eq!(code(publish_as(&world.bus, "t", r#"{"n":1}"#, "1").await), "unknown_schema");
    versions(&world.bus, "t", &[V1, V2]).await;
    publish_as(&world.bus, "t", r#"{"n":1}"#, "1").await.unwrap();
    publish_as(&world.bus, "t", r#"{"count":1}"#, "2").await.unwrap();
    assert_eq!(code(publish_as(&world.bus, "t", r#"{"count":1}"#, "1").await), "schema_rejected");
    for unknown in ["0", "3", "x", "", "-1", "1.0", "99999999999"] {
        assert_eq!(
            code(publish_as(&world.bus, "t", r#"{"count":1}"#, unknown).await),
            "unknown_schema",
            "{unknown}"
        );
    }
    let stamped: Vec<_> = world.events("t").await.iter().map(|event| version(event).unwrap()).collect();
    assert_eq!(stamped, ["1", "2"]);
}

async fn a_bad_event_refuses_its_batch(kind: StoreKind) {
    let world = World::new(kind).await;
    register(&world.bus, "t", V1).await.unwrap();
    // Once with the schema compiled, and once without.
    for world in [world, World::new(kind).await] {
        if world.bus.schemas(&topic("t")).is_empty() {
            register(&world.bus, "t", V1).await.unwrap();
        }
        let world = world.restart().await;
        for _ in 0..2 {
            let batch = [("u", "1"), ("t", r#"{"n":1}"#), ("t", "bad")].map(|(to, payload)| {
                Publish::new(topic(to), if payload == "bad" { "\"bad\"" } else { payload })
            });
            let Err(BusError::SchemaRejected(why)) = world.bus.publish_batch(batch.into()).await else {
                panic!("taken")
            };
            assert_eq!(why.index, Some(2));
            assert!(why.to_string().starts_with("event 2: "), "{why}");
        }
        assert_eq!(world.events("t").await.len() + world.events("u").await.len(), 0);
        let each = world.bus.publish_each(vec![
            Publish::new(topic("t"), r#"{"n":1}"#),
            Publish::new(topic("t"), "2"),
            Publish::new(topic("t"), r#"{"n":3}"#),
        ]);
        let outcomes: Vec<_> = each.await.into_iter().map(|one| one.map(|one| one.offset.get())).collect();
        assert_eq!((outcomes[0].clone(), outcomes[2].clone()), (Ok(0), Ok(1)));
        assert_eq!(outcomes[1].as_ref().unwrap_err().code(), "schema_rejected");
    }
}

async fn tombstones_are_deletions(kind: StoreKind) {
    let world = World::new(kind).await;
    register(&world.bus, "t", V1).await.unwrap();
    world.bus.publish(Publish::new(topic("t"), "null").key("k")).await.unwrap();
    publish_as(&world.bus, "t", " null ", "1").await.unwrap();
    assert_eq!(world.events("t").await.iter().map(version).collect::<Vec<_>>(), [None, None]);
    let required = TopicSettings { schema: SchemaRule::Required, ..TopicSettings::default() };
    world.bus.set_topic(&topic("u"), required).await.unwrap();
    publish(&world.bus, "u", "null").await.unwrap();
}

async fn a_required_schema_must_be_there(kind: StoreKind) {
    let world = World::new(kind).await;
    let required = TopicSettings { schema: SchemaRule::Required, ..TopicSettings::default() };
    world.bus.set_topic(&topic("t"), required).await.unwrap();
    let error = publish(&world.bus, "t", "7").await.unwrap_err();
    assert_eq!(error.code(), "schema_required");
    assert!(error.to_string().contains("register one"), "{error}");
    register(&world.bus, "t", V1).await.unwrap();
    publish(&world.bus, "t", r#"{"n":1}"#).await.unwrap();
}

async fn a_schema_can_be_off(kind: StoreKind) {
    let world = World::new(kind).await;
    register(&world.bus, "t", V1).await.unwrap();
    let off = TopicSettings { schema: SchemaRule::Off, ..TopicSettings::default() };
    world.bus.set_topic(&topic("t"), off).await.unwrap();
    publish(&world.bus, "t", "7").await.unwrap();
    publish(&world.bus, "t", r#"{"n":1}"#).await.unwrap();
    // An event that was not checked must not have a version.
    publish_as(&world.bus, "t", "8", "1").await.unwrap();
    assert_eq!(world.events("t").await.iter().map(version).collect::<Vec<_>>(), [None, None, None]);
}

async fn old_events_stay_readable(kind: StoreKind) {
    let world = World::new(kind).await;
    publish(&world.bus, "t", "7").await.unwrap();
    without_compat(&world.bus, "t").await;
    for (schema, fits) in [(V1, r#"{"n":1}"#), (V2, r#"{"count":1}"#), (V3, r#"{"count":1,"unit":"x"}"#)] {
        register(&world.bus, "t", schema).await.unwrap();
        publish(&world.bus, "t", fits).await.unwrap();
    }
    let mut subscription = world.subscribe(request("t", "g")).await;
    let given = take(&mut subscription, 4).await;
    let payloads: Vec<_> = given.iter().map(|lease| payload(&lease.event)).collect();
    assert_eq!(payloads, ["7", r#"{"n":1}"#, r#"{"count":1}"#, r#"{"count":1,"unit":"x"}"#]);
}

async fn a_retry_is_a_duplicate(kind: StoreKind) {
    let world = World::new(kind).await;
    let event = || Publish::new(topic("t"), r#"{"n":1}"#).id(EventId::from_bytes([7; 16]));
    world.bus.publish(event()).await.unwrap();
    register(&world.bus, "t", V1).await.unwrap();
    assert!(world.bus.publish(event()).await.unwrap().duplicate, "whatever the stamp");
    assert_eq!(world.events("t").await.len(), 1);
}

async fn a_redriven_event_keeps_its_version(kind: StoreKind) {
    let world = World::new(kind).await;
    versions(&world.bus, "t", &[V1]).await;
    publish(&world.bus, "t", r#"{"n":1}"#).await.unwrap();
    let mut subscription = world.subscribe(attempts(request("t", "g"), 1)).await;
    let given = take(&mut subscription, 1).await;
    subscription.nack(&given, Some(0)).await.unwrap();
    register(&world.bus, "t", V2).await.unwrap();
    world.until("t", "g", |seen| seen.lag == 0).await;
    let report =
        world.bus.redrive(&topic("t"), &group("g"), LetterChoice::All, RedriveTo::Topic).await.unwrap();
    assert_eq!(report.redriven, 1);
    let events = world.events("t").await;
    assert_eq!((payload(&events[1]), version(&events[1]).as_deref()), (r#"{"n":1}"#, Some("1")));
}

async fn what_handlers_publish_is_checked(kind: StoreKind) {
    let world = World::new(kind).await;
    register(&world.bus, "out", V1).await.unwrap();
    publish(&world.bus, "in", "1").await.unwrap();
    publish(&world.bus, "in", "2").await.unwrap();
    let handler = |lease: Lease| async move {
        let out = if number(&lease.event) == 1 { "\"bad\"" } else { r#"{"n":2}"# };
        Ok::<_, Nack>(Effects::none().publish(Publish::new(topic("out"), out)))
    };
    let consumer =
        world.bus.transform_exactly_once(attempts(request("in", "g"), 1), ExactlyOnce::default(), handler);
    let consumer = consumer.await.unwrap();
    world.until("in", "g", |seen| seen.lag == 0).await;
    consumer.stop().await.unwrap();
    let events = world.events("out").await;
    assert_eq!((events.len(), version(&events[0]).as_deref()), (1, Some("1")));
}

async fn refusals_are_counted(kind: StoreKind) {
    let world = World::new(kind).await;
    let page = world.bus.metrics().render();
    for family in ["schema_rejected_total", "schema_lift_failures_total", "jq_threads_lost"] {
        assert!(page.contains(&format!("# TYPE {family} ")), "{family}");
    }
    register(&world.bus, "t", V1).await.unwrap();
    for _ in 0..3 {
        publish(&world.bus, "t", "7").await.unwrap_err();
    }
    assert_eq!(world.bus.metrics().topic(&topic("t")).schema_rejected.get(), 3);
    let page = world.bus.metrics().render();
    assert!(page.contains(r#"schema_rejected_total{topic="t"} 3"#), "{page}");
    assert!(page.contains(r#"requests_rejected_total{code="schema_rejected"} 3"#), "{page}");
}

async fn os_events_and_expectations_are_checked_too(kind: StoreKind) {
    let world = World::new(kind).await;
    register(&world.bus, "t", V1).await.unwrap();
    let world = world.restart().await;
    let expecting = |payload: &'static str, end| {
        Publish::new(topic("t"), payload).expected_offset(promethean_model::Offset(end))
    };
    assert_eq!(code(world.bus.publish(expecting("1", 0)).await), "schema_rejected");
    world.bus.publish(expecting(r#"{"n":1}"#, 0)).await.unwrap();
    assert_eq!(code(world.bus.publish(expecting("1", 1)).await), "schema_rejected");
    let publisher = world.bus.publisher(None);
    let ready = vec![
        publisher.check(Publish::new(topic("t"), "1")),
        publisher.check(Publish::new(topic("t"), r#"{"n":2}"#)),
    ];
    let done = publisher.commit_each(ready).await;
    assert_eq!(done[0].as_ref().unwrap_err().code(), "schema_rejected");
    assert_eq!(done[1].as_ref().unwrap().offset.get(), 1);
}

async fn a_check_that_takes_too_long_is_refused(kind: StoreKind) {
    let world = World::new(kind).await;
    let branches: Vec<String> = (0..8_000).map(|n| format!(r#"{{"const":"{n}"}}"#)).collect();
    let schema = format!(r#"{{"items":{{"anyOf":[{}]}}}}"#, branches.join(","));
    register(&world.bus, "t", &schema).await.unwrap();
    publish(&world.bus, "t", r#"["0","7999"]"#).await.unwrap();
    let payload = format!("[{}]", vec!["\"x\""; 150_000].join(","));
    let few = format!("[{}]", vec!["\"7999\""; 20_000].join(","));
    let refused = publish(&world.bus, "t", &few).await.unwrap_err();
    assert_eq!(refused.code(), "schema_too_costly");
    assert!(refused.to_string().contains("schema version 1 of topic `t`"), "{refused}");
    // A payload that is refused at its first item costs little, however long it is.
    assert_eq!(code(publish(&world.bus, "t", &payload).await), "schema_rejected");
    assert_eq!(code(world.bus.validate(&topic("t"), &few, None).await), "schema_too_costly");
    assert_eq!(world.events("t").await.len(), 1);
}

async fn a_refusal_costs_little_whatever_the_schema(kind: StoreKind) {
    let world = World::new(kind).await;
    let node = r##"{"type":"object","required":["left"],"properties":{"left":{"$ref":"#"}}}"##;
    let schema = format!(r#"{{"oneOf":[{node},{node},{{"type":"null"}}]}}"#);
    register(&world.bus, "t", &schema).await.unwrap();
    // Every level of the payload is tried in two ways, so the ways double with each level.
    let payload = (0..100).fold("1".to_owned(), |inner, _| format!(r#"{{"left":{inner}}}"#));
    let error = publish(&world.bus, "t", &payload).await.unwrap_err();
    let BusError::SchemaRejected(why) = &error else { panic!("{error}") };
    assert_eq!((why.violations.len(), why.total), (1, 1));
    assert!(error.to_string().contains("at `/`"), "{error}");
}
