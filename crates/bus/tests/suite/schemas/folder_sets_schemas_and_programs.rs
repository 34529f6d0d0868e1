//! A folder of files sets schemas and programs.

use std::path::Path;

use promethean_bus::schemas::folder::SchemaFolder;

use super::super::bus::harness::*;
use super::*;

on_both_stores!(
    a_folder_is_applied_once,
    a_deleted_topic_keeps_what_the_folder_has,
    a_changed_version_is_refused_by_its_file,
    what_does_not_belong_is_refused,
    the_examples_are_taken,
);

fn write(root: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

const WIDER: &str =
    r#"{"type":"object","properties":{"n":{"type":"number"}},"required":["n"],"additionalProperties":false}"#;

async fn a_folder_is_applied_once(kind: StoreKind) {
    let world = World::new(kind).await;
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        &[
            ("README.md", "x"),
            ("t/.keep", ""),
            ("t/v1.json", V1),
            ("t/v2.json", WIDER),
            (
                "t/v10.json",
                &WIDER
                    .replace("number", "integer\",\"title\":\"x")
                    .replace("\"type\":\"integer\"", "\"type\":\"number\""),
            ),
            ("t/v0-to-v1.jq", "{n: .}"),
            ("t/v1-to-v2.jq", ".n += 0.5"),
            ("t/v10-to-v1.jq", "{n: (.n | floor)}"),
            ("u/v1.json", "true"),
        ],
    );
    publish(&world.bus, "t", "5").await.unwrap();
    let folder = SchemaFolder::read(dir.path()).unwrap();
    assert_eq!(folder.topics().map(|topic| topic.as_str()).collect::<Vec<_>>(), ["t", "u"]);
    let report = world.bus.apply_schemas(folder.clone()).await.unwrap();
    let done = &report.topics[0];
    assert_eq!((done.registered.as_slice(), done.unchanged.len()), ([1, 2, 10].as_slice(), 0));
    assert_eq!((done.upcasters, done.dual_write), (2, Some(1)));
    publish(&world.bus, "t", r#"{"n":7.5}"#).await.unwrap();
    assert_eq!(payload(&world.events("t.v1").await[0]), r#"{"n":7}"#);
    let lifted = world.bus.lift(world.events("t").await[0].clone()).await;
    assert_eq!((payload(&lifted.event), version(&lifted.event).as_deref()), (r#"{"n":5.5}"#, Some("10")));
    let world = world.restart().await;
    let report = world.bus.apply_schemas(folder).await.unwrap();
    assert_eq!(
        (report.topics[0].registered.len(), report.topics[0].unchanged.as_slice()),
        (0, [1, 2, 10].as_slice())
    );
    assert_eq!(world.bus.schemas(&topic("t")).len(), 3);
    // A program that is gone is no longer applied.
    std::fs::remove_file(dir.path().join("t/v10-to-v1.jq")).unwrap();
    world.bus.apply_schemas(SchemaFolder::read(dir.path()).unwrap()).await.unwrap();
    publish(&world.bus, "t", r#"{"n":8}"#).await.unwrap();
    assert_eq!(world.events("t.v1").await.len(), 1);
}

async fn a_deleted_topic_keeps_what_the_folder_has(kind: StoreKind) {
    let world = World::new(kind).await;
    without_compat(&world.bus, "t").await;
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("t/v1.json", V1), ("t/v2.json", V2), ("t/v2-to-v1.jq", "{n: .count}")]);
    publish(&world.bus, "t", "7").await.unwrap();
    let folder = SchemaFolder::read(dir.path()).unwrap();
    world.bus.apply_schemas(folder.clone()).await.unwrap();
    publish(&world.bus, "t", r#"{"count":1}"#).await.unwrap();
    register(&world.bus, "t", V3).await.unwrap();
    world.bus.delete_topic(&topic("t")).await.unwrap();
    let numbers = |bus: &Bus| bus.schemas(&topic("t")).iter().map(|one| one.version).collect::<Vec<_>>();
    assert_eq!(numbers(&world.bus), [1, 2], "what was registered otherwise is gone");
    assert_eq!(code(publish(&world.bus, "t", "7").await), "schema_rejected");
    publish(&world.bus, "t", r#"{"count":2}"#).await.unwrap();
    assert_eq!(payload(&world.events("t.v1").await[1]), r#"{"n":2}"#);
    // No event has the first version, but programs need it.
    let error = world.bus.delete_schema(&topic("t"), 1).await.unwrap_err();
    assert!(error.code() == "schema_in_use" && error.to_string().contains("configuration"), "{error}");
    // The version was registered at the end of the deleted topic; the event is below that end.
    let world = world.restart().await;
    assert_eq!(numbers(&world.bus), [1, 2]);
    assert_eq!(code(world.bus.delete_schema(&topic("t"), 2).await), "schema_in_use");
    let report = world.bus.apply_schemas(folder).await.unwrap();
    assert_eq!((report.topics[0].registered.len(), report.topics[0].unchanged.len()), (0, 2));
}

async fn a_changed_version_is_refused_by_its_file(kind: StoreKind) {
    let world = World::new(kind).await;
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("t/v1.json", V1)]);
    world.bus.apply_schemas(SchemaFolder::read(dir.path()).unwrap()).await.unwrap();
    write(dir.path(), &[("t/v1.json", WIDER)]);
    let error = world.bus.apply_schemas(SchemaFolder::read(dir.path()).unwrap()).await.unwrap_err();
    assert!(error.path.ends_with("t/v1.json"), "{error}");
    assert!(error.to_string().contains("a version never changes"), "{error}");
    write(dir.path(), &[("t/v1.json", V1), ("t/v2.json", V2)]);
    let error = world.bus.apply_schemas(SchemaFolder::read(dir.path()).unwrap()).await.unwrap_err();
    assert!(error.path.ends_with("t/v2.json"), "{error}");
    assert_eq!(error.refusal.unwrap().code(), "schema_incompatible");
    std::fs::remove_file(dir.path().join("t/v2.json")).unwrap();
    write(dir.path(), &[("t/v3.json", WIDER)]);
    world.bus.apply_schemas(SchemaFolder::read(dir.path()).unwrap()).await.unwrap();
    write(dir.path(), &[("t/v2.json", WIDER)]);
    let error = world.bus.apply_schemas(SchemaFolder::read(dir.path()).unwrap()).await.unwrap_err();
    assert_eq!(error.refusal.unwrap().code(), "version_taken");
}

async fn what_does_not_belong_is_refused(kind: StoreKind) {
    let world = World::new(kind).await;
    for (name, text, reason) in [
        ("t/v1.jsn", "true", "the name of the file is not known"),
        ("t/v01.json", "true", "the name of the file is not known"),
        ("t/v0.json", "true", "the name of the file is not known"),
        ("t/v1-to-v1.jq", ".", "the name of the file is not known"),
        ("t/v1.json", "{", "not valid JSON"),
        ("t/v1-to-v2.jq", "nonsense(1)", "unknown filter `nonsense` at line 1"),
        ("Bad Name/v1.json", "true", "topic"),
        ("file", "", "a folder with the topic's name"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[(name, text)]);
        let error = SchemaFolder::read(dir.path()).unwrap_err();
        assert!(error.to_string().contains(reason), "{name}: {error}");
    }
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("t/v1.json", V1), ("t/v2.json", WIDER), ("t/v3-to-v1.jq", ".")]);
    let error = world.bus.apply_schemas(SchemaFolder::read(dir.path()).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("begins with the latest version"), "{error}");
    assert!(SchemaFolder::read(&dir.path().join("missing")).is_err());
    let system = tempfile::tempdir().unwrap();
    write(system.path(), &[("t.dlq/v1.json", V1)]);
    let error = world.bus.apply_schemas(SchemaFolder::read(system.path()).unwrap()).await.unwrap_err();
    assert_eq!(error.refusal.unwrap().code(), "reserved_name");
}

async fn the_examples_are_taken(kind: StoreKind) {
    let world = World::new(kind).await;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/schemas");
    world.bus.apply_schemas(SchemaFolder::read(&examples).unwrap()).await.unwrap();
    let heartbeat = r#"{"pid":1234,"name":"stt","host":"local","cpu_pct":0.5,"mem_mb":12}"#;
    publish(&world.bus, "heartbeat.received", heartbeat).await.unwrap();
    publish(&world.bus, "heartbeat.received", &heartbeat.replace('}', r#","sid":"s","more":1}"#))
        .await
        .unwrap();
    for bad in
        [heartbeat.replace("1234", "\"1234\""), heartbeat.replace("\"host\"", "\"hst\""), "[]".to_owned()]
    {
        assert_eq!(code(publish(&world.bus, "heartbeat.received", &bad).await), "schema_rejected");
    }
    let state = r#"{"processId":"a:b:1","name":"b","host":"a","pid":1,"cpu_pct":1,"mem_mb":1,"last_seen_ts":1,"status":"alive"}"#;
    publish(&world.bus, "process.state", state).await.unwrap();
    assert_eq!(
        code(publish(&world.bus, "process.state", &state.replace("alive", "dead")).await),
        "schema_rejected"
    );
}
