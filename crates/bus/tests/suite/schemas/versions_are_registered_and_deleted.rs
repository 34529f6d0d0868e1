//! Versions are registered, listed and deleted.

use promethean_bus::BusError;
use promethean_bus::rows::StartPosition;
use promethean_bus::schemas::{RegisterOptions, WhichSchema};
use promethean_model::{Compat, TopicSettings, Undeclared};
use promethean_schema::compat::Verdict;
use promethean_schema::{BadSchema, SchemaText};
use promethean_store::port::Table;

use super::super::bus::harness::*;
use super::*;
use promethean_testkit::fault_store::When;

on_both_stores!(
    versions_grow_and_survive_a_restart,
    the_same_schema_again_is_no_new_version,
    numbers_can_be_given_and_only_grow,
    what_is_no_schema_is_refused,
    a_version_that_does_not_fit_is_refused,
    what_cannot_be_decided_can_be_forced,
    every_rule_compares_what_it_says,
    a_dry_run_writes_nothing,
    an_unused_version_can_be_deleted,
    a_used_version_cannot_be_deleted,
    a_version_in_flight_cannot_be_deleted,
    a_deleted_topic_leaves_no_schemas,
    payloads_can_be_tried,
    topics_with_schemas_are_listed_in_pages,
    systems_topics_have_none,
    there_is_an_end_to_versions,
);

async fn versions_grow_and_survive_a_restart(kind: StoreKind) {
    let world = World::new(kind).await;
    without_compat(&world.bus, "t").await;
    for (n, schema) in [V1, V2, V3].into_iter().enumerate() {
        let registered = register(&world.bus, "t", schema).await.unwrap();
        assert_eq!(
            (registered.version, registered.unchanged, registered.forced),
            (n as u32 + 1, false, false)
        );
    }
    let before = world.bus.schemas(&topic("t"));
    assert_eq!(before.iter().map(|known| known.version).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(
        before.iter().all(|known| known.created == WALL_MS && known.compat == Compat::None && !known.forced)
    );
    let world = world.restart().await;
    assert_eq!(world.bus.schemas(&topic("t")), before);
    let latest = world.bus.schema(&topic("t"), WhichSchema::Latest).await.unwrap();
    assert_eq!((latest.info.version, latest.schema.as_str()), (3, V3));
    let first = world.bus.schema(&topic("t"), WhichSchema::Version(1)).await.unwrap();
    assert_eq!(first.schema, V1);
    let unknown = world.bus.schema(&topic("t"), WhichSchema::Version(4)).await.unwrap_err();
    assert_eq!(unknown.to_string(), "topic `t` has no schema version 4; the latest is 3");
    assert_eq!(code(world.bus.schema(&topic("u"), WhichSchema::Latest).await), "unknown_schema");
    assert_eq!(code(publish(&world.bus, "t", r#"{"n":1}"#).await), "schema_rejected", "compiled on demand");
    publish(&world.bus, "t", r#"{"count":1,"unit":"x"}"#).await.unwrap();
}

async fn the_same_schema_again_is_no_new_version(kind: StoreKind) {
    let world = World::new(kind).await;
    register(&world.bus, "t", V1).await.unwrap();
    let spaced = V1.replace(',', " ,\n ");
    for same in [V1, &spaced] {
        let again = register(&world.bus, "t", same).await.unwrap();
        assert_eq!((again.version, again.unchanged), (1, true));
    }
    assert_eq!(world.rows(Table::Schemas).await, 1);
    without_compat(&world.bus, "t").await;
    register(&world.bus, "t", V2).await.unwrap();
    let back = register(&world.bus, "t", V1).await.unwrap();
    assert_eq!((back.version, back.unchanged), (3, false), "only the latest is looked at");
}

async fn numbers_can_be_given_and_only_grow(kind: StoreKind) {
    let world = World::new(kind).await;
    without_compat(&world.bus, "t").await;
    let at = |version| RegisterOptions { version: Some(version), ..RegisterOptions::default() };
    assert_eq!(code(register_with(&world.bus, "t", V1, at(0)).await), "version_taken");
    assert_eq!(register_with(&world.bus, "t", V1, at(5)).await.unwrap().version, 5);
    assert_eq!(register_with(&world.bus, "t", V1, at(5)).await.unwrap().version, 5, "as it is");
    for taken in [1, 4, 5] {
        let error = register_with(&world.bus, "t", V2, at(taken)).await.unwrap_err();
        assert_eq!(error, BusError::VersionTaken { topic: topic("t"), given: taken, latest: 5 });
    }
    assert_eq!(register(&world.bus, "t", V2).await.unwrap().version, 6);
}

async fn what_is_no_schema_is_refused(kind: StoreKind) {
    let world = World::new(kind).await;
    for (schema, at) in [
        (r#"{"type":"nonsense"}"#, "/type"),
        (r#"{"$schema":"http://json-schema.org/draft-03/schema#"}"#, "/$schema"),
        (r#"{"properties":{"a":{"minimum":"x"}}}"#, "/properties/a/minimum"),
    ] {
        let Err(BusError::BadSchema(BadSchema { at: place, reason })) =
            register(&world.bus, "t", schema).await
        else {
            panic!("taken: {schema}")
        };
        assert_eq!(place, at, "{reason}");
    }
    for schema in [
        "nonsense",
        "7",
        r#"{"$ref":"https://example.com/other.json"}"#,
        r#"{"$ref":"file:///etc/passwd"}"#,
        r##"{"$ref":"#/$defs/missing"}"##,
        r#"{"pattern":"(?<=a)b"}"#,
        r#"{"pattern":"(((a{1000}){1000}){1000})"}"#,
    ] {
        assert_eq!(code(register(&world.bus, "t", schema).await), "bad_schema", "{schema}");
    }
    assert_eq!(
        code(world.bus.check_schema(&topic("t"), SchemaText::parse(r#"{"type":1}"#).unwrap()).await),
        "bad_schema"
    );
    assert_eq!(world.rows(Table::Schemas).await, 0);
    assert!(world.bus.schemas(&topic("t")).is_empty());
}

async fn a_version_that_does_not_fit_is_refused(kind: StoreKind) {
    let world = World::new(kind).await;
    register(&world.bus, "t", V1).await.unwrap();
    for force in [false, true] {
        let options = RegisterOptions { force, ..RegisterOptions::default() };
        let error = register_with(&world.bus, "t", V2, options).await.unwrap_err();
        assert_eq!(error.code(), "schema_incompatible");
        let BusError::SchemaIncompatible(why) = &error else { panic!("{error}") };
        assert_eq!((why.verdict, why.compared[0].version), (Verdict::Incompatible, 1));
        assert!(!why.compared[0].report.findings.is_empty());
        assert!(error.to_string().contains("set the topic's `compat` to none"), "{error}");
    }
    assert_eq!(world.bus.schemas(&topic("t")).len(), 1);
    publish(&world.bus, "t", r#"{"n":1}"#).await.unwrap();
    let compared = world.bus.check_schema(&topic("t"), SchemaText::parse(V2).unwrap()).await.unwrap();
    assert_eq!(compared[0].report.verdict, Verdict::Incompatible);
    let wider = V1.replace("integer", "number");
    assert_eq!(register(&world.bus, "t", &wider).await.unwrap().version, 2);
}

async fn what_cannot_be_decided_can_be_forced(kind: StoreKind) {
    let world = World::new(kind).await;
    let pattern = |pattern: &str| format!(r#"{{"type":"string","pattern":"{pattern}"}}"#);
    register(&world.bus, "t", &pattern("^(a|b)+c{2,7}x.*y[0-9]?(foo|bar)*$")).await.unwrap();
    let other = pattern("^(b|a)+c{2,7}x.*y[0-9]?(bar|foo)*$");
    let error = register(&world.bus, "t", &other).await.unwrap_err();
    let BusError::SchemaIncompatible(why) = &error else { panic!("{error}") };
    assert_eq!(why.verdict, Verdict::Undecidable, "{error}");
    assert!(error.to_string().contains("`force`"), "{error}");
    let options = RegisterOptions { force: true, ..RegisterOptions::default() };
    assert!(register_with(&world.bus, "t", &other, options).await.unwrap().forced);
    let world = world.restart().await;
    assert_eq!(
        world.bus.schemas(&topic("t")).iter().map(|known| known.forced).collect::<Vec<_>>(),
        [false, true]
    );
}

async fn every_rule_compares_what_it_says(kind: StoreKind) {
    let world = World::new(kind).await;
    // Each version accepts more than the one before.
    let types = [r#"{"type":"integer"}"#, r#"{"type":"number"}"#, r#"{"type":["number","null"]}"#];
    for (n, (compat, wider, narrower, pairs)) in [
        (Compat::None, true, true, 0),
        (Compat::Backward, true, false, 1),
        (Compat::Forward, false, true, 1),
        (Compat::Full, false, false, 2),
        (Compat::BackwardTransitive, true, false, 2),
        (Compat::ForwardTransitive, false, true, 2),
        (Compat::FullTransitive, false, false, 4),
    ]
    .into_iter()
    .enumerate()
    {
        for (up, fits) in [(true, wider), (false, narrower)] {
            let on = format!("t{n}.{up}");
            let order = if up { [0, 1, 2] } else { [2, 1, 0] };
            versions(&world.bus, &on, &[types[order[0]], types[order[1]]]).await;
            let settings = TopicSettings { compat, ..TopicSettings::default() };
            world.bus.set_topic(&topic(&on), settings).await.unwrap();
            let text = SchemaText::parse(types[order[2]]).unwrap();
            assert_eq!(world.bus.check_schema(&topic(&on), text).await.unwrap().len(), pairs, "{compat:?}");
            let registered = register(&world.bus, &on, types[order[2]]).await;
            assert_eq!(registered.is_ok(), fits, "{compat:?} {up}: {registered:?}");
        }
    }
    let open = |more: &str| format!(r#"{{"type":"object","properties":{{"a":{{"type":"string"}}{more}}}}}"#);
    register(&world.bus, "open", &open("")).await.unwrap();
    let added = open(r#","b":{"type":"string"}"#);
    assert_eq!(code(register(&world.bus, "open", &added).await), "schema_incompatible");
    let absent = TopicSettings { undeclared: Undeclared::Absent, ..TopicSettings::default() };
    world.bus.set_topic(&topic("open"), absent).await.unwrap();
    assert_eq!(register(&world.bus, "open", &added).await.unwrap().version, 2);
}

async fn a_dry_run_writes_nothing(kind: StoreKind) {
    let world = World::new(kind).await;
    let dry = RegisterOptions { dry_run: true, ..RegisterOptions::default() };
    let would = register_with(&world.bus, "t", V1, dry).await.unwrap();
    assert_eq!((would.version, would.dry_run), (1, true));
    assert_eq!(world.rows(Table::Schemas).await, 0);
    publish(&world.bus, "t", "7").await.unwrap();
    register(&world.bus, "t", V1).await.unwrap();
    assert_eq!(code(register_with(&world.bus, "t", V2, dry).await), "schema_incompatible");
}

async fn an_unused_version_can_be_deleted(kind: StoreKind) {
    let world = World::new(kind).await;
    versions(&world.bus, "t", &[V1]).await;
    publish(&world.bus, "t", r#"{"n":1}"#).await.unwrap();
    register(&world.bus, "t", V2).await.unwrap();
    register(&world.bus, "t", V3).await.unwrap();
    world.bus.delete_schema(&topic("t"), 3).await.unwrap();
    publish(&world.bus, "t", r#"{"n":1}"#).await.unwrap_err();
    assert_eq!(code(world.bus.delete_schema(&topic("t"), 3).await), "unknown_schema");
    // The number is free again, for another schema.
    assert_eq!(register(&world.bus, "t", V1).await.unwrap().version, 3);
    publish(&world.bus, "t", r#"{"n":2}"#).await.unwrap();
    let world = world.restart().await;
    assert_eq!(world.bus.schemas(&topic("t")).len(), 3);
    let events = world.events("t").await;
    assert_eq!(events.iter().map(version).collect::<Vec<_>>(), [Some("1".to_owned()), Some("3".to_owned())]);
}

async fn a_used_version_cannot_be_deleted(kind: StoreKind) {
    let world = World::new(kind).await;
    versions(&world.bus, "t", &[V1, V2]).await;
    publish_as(&world.bus, "t", r#"{"n":1}"#, "1").await.unwrap();
    let world = world.restart().await;
    for used in [1, 2] {
        let error = world.bus.delete_schema(&topic("t"), used).await.unwrap_err();
        assert_eq!(error.code(), "schema_in_use", "{error}");
    }
    assert_eq!(world.bus.schemas(&topic("t")).len(), 2);
    assert_eq!(code(publish(&world.bus, "t", r#"{"n":1}"#).await), "schema_rejected");
    publish(&world.bus, "t", r#"{"count":1}"#).await.unwrap();
}

async fn a_version_in_flight_cannot_be_deleted(kind: StoreKind) {
    let (world, gate) = World::gated(kind).await;
    versions(&world.bus, "t", &[V1]).await;
    let held = gate.hold(When::Before, |batch| !batch.events.is_empty());
    let bus = world.bus.clone();
    // An event with an expectation is a commit of its own.
    let event = Publish::new(topic("t"), r#"{"n":1}"#).expected_offset(promethean_model::Offset(0));
    let mut publishing = tokio::task::JoinSet::new();
    publishing.spawn(async move { bus.publish(event).await });
    held.reached().await;
    assert_eq!(code(world.bus.delete_schema(&topic("t"), 1).await), "schema_in_use");
    held.release();
    soon("publish", publishing.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(world.bus.schemas(&topic("t")).len(), 1);
}

async fn a_deleted_topic_leaves_no_schemas(kind: StoreKind) {
    let world = World::new(kind).await;
    versions(&world.bus, "t", &[V1, V2]).await;
    versions(&world.bus, "t.x", &[V1]).await;
    publish(&world.bus, "t", r#"{"count":1}"#).await.unwrap();
    world.bus.delete_topic(&topic("t")).await.unwrap();
    assert!(world.bus.schemas(&topic("t")).is_empty());
    publish(&world.bus, "t", "7").await.unwrap();
    let world = world.restart().await;
    assert!(world.bus.schemas(&topic("t")).is_empty());
    assert_eq!(world.bus.schemas(&topic("t.x")).len(), 1, "another topic's stay");
    assert_eq!(register(&world.bus, "t", V2).await.unwrap().version, 1);
    publish(&world.bus, "t", r#"{"count":1}"#).await.unwrap();
    let mut scan = world.bus.scan(&topic("t"), StartPosition::Earliest).await.unwrap();
    assert_eq!(scan.next_page(9, 1 << 20).await.unwrap().unwrap().events.len(), 2);
}

async fn payloads_can_be_tried(kind: StoreKind) {
    let world = World::new(kind).await;
    let validate = async |payload: &str, version| world.bus.validate(&topic("t"), payload, version).await;
    assert_eq!(validate("7", None).await, Ok(None));
    assert_eq!(code(validate("7", Some(1)).await), "unknown_schema");
    versions(&world.bus, "t", &[V1, V2]).await;
    assert_eq!(validate(r#"{"count":1}"#, None).await, Ok(Some(2)));
    assert_eq!(validate(r#" {"n" : 1} "#, Some(1)).await, Ok(Some(1)));
    assert_eq!(code(validate(r#"{"n":1}"#, None).await), "schema_rejected");
    assert_eq!(code(validate("{", None).await), "invalid_json");
    assert_eq!(code(validate("1", Some(3)).await), "unknown_schema");
    assert_eq!(validate("null", None).await, Ok(Some(2)));
    assert_eq!(world.events("t").await.len(), 0);
}

async fn topics_with_schemas_are_listed_in_pages(kind: StoreKind) {
    let world = World::new(kind).await;
    for on in ["c", "a", "b"] {
        register(&world.bus, on, V1).await.unwrap();
    }
    versions(&world.bus, "b", &[V2]).await;
    let page = world.bus.all_schemas(None, 2);
    let listed: Vec<_> =
        page.topics.iter().map(|entry| (entry.topic.as_str(), entry.versions, entry.latest)).collect();
    assert_eq!(listed, [("a", 1, 1), ("b", 2, 2)]);
    let rest = world.bus.all_schemas(page.next.as_ref(), 2);
    assert_eq!((rest.topics.len(), rest.topics[0].topic.as_str(), rest.next), (1, "c", None));
}

async fn systems_topics_have_none(kind: StoreKind) {
    let world = World::new(kind).await;
    for reserved in ["t.dlq", "t.snapshot", "t.changed", "_t", "_t.v1"] {
        assert_eq!(code(register(&world.bus, reserved, V1).await), "reserved_name", "{reserved}");
    }
    assert_eq!(register(&world.bus, "t.v1", V1).await.unwrap().version, 1);
}

async fn there_is_an_end_to_versions(kind: StoreKind) {
    if kind == StoreKind::Embedded {
        // Left out on the embedded store: the code is the same, and each of a thousand commits would be a
        // sync.
        return;
    }
    let world = World::new(kind).await;
    without_compat(&world.bus, "t").await;
    for n in 0..1_000 {
        register(&world.bus, "t", &format!(r#"{{"maximum":{n}}}"#)).await.unwrap();
    }
    assert_eq!(code(register(&world.bus, "t", "true").await), "too_many_schemas");
    world.bus.create_topic(&topic("t")).await.unwrap();
    world.bus.delete_topic(&topic("t")).await.unwrap();
    assert_eq!(world.rows(Table::Schemas).await, 0);
}
