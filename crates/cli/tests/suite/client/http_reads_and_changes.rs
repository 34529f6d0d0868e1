//! The calls over HTTP: reading, topics, schemas, groups, dead letters, state.

use futures_util::{StreamExt, TryStreamExt};
use promethean_client::{
    ChosenLetters, Client, DocumentThen, EventToPublish, ExportRange, LetterTarget, SchemaRegistration,
    StartFrom, TopicDescription, TopicSettings, TypedEvent,
};
use promethean_testkit::{until, until_some};
use serde_json::{Value, json};

use super::super::running_server::RunningServer;
use super::server;

async fn fill(client: &Client, topic: &str, count: u64) {
    let events =
        (0..count).map(|n| EventToPublish::new(topic, &n).key(format!("k{}", n % 2)).ts(n as i64 * 10));
    client.publish_many(events).await.unwrap();
}

fn payloads(events: &[TypedEvent<u64>]) -> Vec<u64> {
    events.iter().map(|event| event.payload).collect()
}

#[tokio::test]
async fn history_exports_and_events_as_they_come() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    fill(&client, "t", 25).await;
    let reader = client.reader();
    let all: Vec<_> = reader.replay("t", StartFrom::Earliest, 7).try_collect().await.unwrap();
    assert_eq!(payloads(&all), (0..25).collect::<Vec<_>>());
    let (page, next) = reader.page::<u64>("t", StartFrom::Ts(45), 3).await.unwrap();
    assert_eq!((payloads(&page), next), (vec![5, 6, 7], Some(8)));
    let after: Vec<_> = reader.replay("t", StartFrom::AfterId(all[22].id), 100).try_collect().await.unwrap();
    assert_eq!(payloads(&after), [23, 24]);
    let range = ExportRange { from_ts: Some(100), to_ts: Some(130), from_offset: None };
    let some: Vec<_> = reader.export("t", range).try_collect().await.unwrap();
    assert_eq!(payloads(&some), [10, 11, 12, 13]);
    let lines: Vec<_> = reader.export_lines("t", range).try_collect().await.unwrap();
    assert_eq!(serde_json::from_slice::<TypedEvent<u64>>(&lines[3]).unwrap(), some[3]);
    let latest = reader.latest_by_key::<u64>("t", &["k0", "k1", "k2"]).await.unwrap();
    assert_eq!(latest["k0"].as_ref().unwrap().payload, 24);
    assert!(latest["k2"].is_none());
    assert_eq!((reader.end("t").await.unwrap(), reader.end("none").await.unwrap()), (25, 0));
    let mut follow = reader.follow::<u64>("t", StartFrom::Offset(24));
    assert_eq!(follow.next().await.unwrap().unwrap().payload, 24);
    let (next, _) = tokio::join!(follow.next(), async { client.publish("t", &25).await.unwrap() });
    assert_eq!(next.unwrap().unwrap().payload, 25);
    let error = reader.replay::<String>("t", StartFrom::Earliest, 1).next().await.unwrap().unwrap_err();
    assert_eq!(error.code(), "bad_json");
    client.close().await.unwrap();
}

#[tokio::test]
async fn topics_schemas_and_the_server() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    let admin = client.admin();
    let settings = TopicSettings { max_attempts: 3, ..TopicSettings::default() };
    admin.set_topic("a", &settings).await.unwrap();
    assert_eq!(admin.topic("a").await.unwrap().settings["max_attempts"], 3);
    let schema = json!({"type": "object", "required": ["n"]});
    let how = SchemaRegistration { dry_run: true, ..SchemaRegistration::default() };
    admin.register_schema("a", &schema, how).await.unwrap();
    assert_eq!(admin.schema("a", None).await.unwrap_err().code(), "unknown_schema");
    admin.register_schema("a", &schema, SchemaRegistration::default()).await.unwrap();
    assert_eq!(admin.schema("a", None).await.unwrap()["version"], 1);
    assert!(admin.schemas("a").await.unwrap()["versions"].is_array());
    let error = client.publish("a", &json!({})).await.unwrap_err();
    assert_eq!(error.code(), "schema_rejected");
    assert!(error.details()["violations"].is_array(), "{error:?}");
    assert_eq!(admin.validate("a", &json!({}), None).await.unwrap_err().code(), "schema_rejected");
    admin.validate("a", &json!({"n": 1}), Some(1)).await.unwrap();
    admin.check_schema("a", &schema).await.unwrap();
    client.publish("b", &1).await.unwrap();
    let topics: Vec<TopicDescription> = admin.topics().try_collect().await.unwrap();
    let names = topics.iter().map(|topic| topic.topic.as_str()).filter(|name| !name.starts_with('_'));
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(admin.schema_topics().try_collect::<Vec<_>>().await.unwrap().len(), 1);
    admin.delete_topic("a").await.unwrap();
    assert_eq!(admin.topic("a").await.unwrap_err().code(), "unknown_topic");
    assert_eq!(admin.health().await.unwrap()["status"], "ok");
    assert!(admin.is_ready().await.unwrap());
    let owner = admin.whoami().await.unwrap();
    assert_eq!((owner.kind.as_str(), owner.expires), ("open", None));
    let ticket = admin.ticket("/topics").await.unwrap();
    let with_ticket = [("ticket", ticket.ticket.as_str())];
    assert!(admin.get(&["topics"], &with_ticket).await.unwrap()["topics"].is_array());
    assert_eq!(admin.get(&["topics"], &with_ticket).await.unwrap_err().code(), "bad_token", "it is used up");
    assert!(admin.ops(None).await.unwrap()["groups"].is_array());
    assert_eq!(admin.get(&["groups"], &[]).await.unwrap()["groups"], json!([]));
    client.close().await.unwrap();
}

#[tokio::test]
async fn groups_and_dead_letters() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    let admin = client.admin();
    fill(&client, "t", 4).await;
    let subscription = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest).max_attempts(1);
    let mut leases = subscription.leases().await.unwrap();
    for _ in 0..4 {
        leases.next().await.unwrap().unwrap().nack("no", None).await.unwrap();
    }
    leases.close().await.unwrap();
    drop(leases);
    let letters: Vec<_> = admin.dead_letters("t", "g").try_collect().await.unwrap();
    assert_eq!((letters.len(), letters[0].attempts), (4, 1));
    let id = letters[0].event.as_ref().unwrap().id;
    let done = admin.redrive("t", "g", &ChosenLetters::Ids(vec![id]), LetterTarget::Topic).await.unwrap();
    assert_eq!((done.selected, done.redriven), (1, 1));
    let second = letters[3].event.as_ref().unwrap().id;
    let done = admin.redrive_edited("t", "g", second, &33).await.unwrap();
    assert_eq!((done.selected, done.redriven), (1, 1));
    let edited = client.reader().page::<u64>("t", StartFrom::Offset(5), 10).await.unwrap().0.remove(0);
    assert_eq!((edited.payload, edited.caused_by), (33, vec![second]));
    let done = admin.drop_letters("t", "g", &ChosenLetters::Offsets(vec![1])).await.unwrap();
    assert_eq!(done.dropped, 1);
    let done = admin.redrive("t", "g", &ChosenLetters::All, LetterTarget::Group).await.unwrap();
    assert_eq!(done.redriven, 1);
    let groups: Vec<_> = admin.groups(Some("t")).try_collect().await.unwrap();
    assert_eq!((groups.len(), groups[0].group.as_str(), groups[0].topics[0].end), (1, "g", 6));
    assert_eq!(admin.cursors("t").try_collect::<Vec<Value>>().await.unwrap()[0]["group"], "g");
    let tried = admin.seek("t", "g", StartFrom::Earliest, true).await.unwrap();
    assert!(!tried.applied && tried.to == 0, "{tried:?}");
    admin.pause("t", "g").await.unwrap();
    assert!(admin.group("t", "g").await.unwrap().paused);
    admin.resume("t", "g").await.unwrap();
    admin.seek("t", "g", StartFrom::Latest, false).await.unwrap();
    assert_eq!(admin.lag("t", "g").await.unwrap().end, 6);
    admin.delete_group("t", "g").await.unwrap();
    assert_eq!(admin.group("t", "g").await.unwrap_err().code(), "unknown_group");
    client.close().await.unwrap();
}

#[tokio::test]
async fn dead_letters_are_chosen_by_a_filter() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    let admin = client.admin();
    fill(&client, "t", 6).await;
    let subscription = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest).max_attempts(1);
    let mut leases = subscription.leases().await.unwrap();
    for _ in 0..6 {
        leases.next().await.unwrap().unwrap().nack("no", None).await.unwrap();
    }
    leases.close().await.unwrap();
    let chosen = ChosenLetters::Filter(json!({"key": "k1"}));
    let done = admin.redrive("t", "g", &chosen, LetterTarget::Topic).await.unwrap();
    assert_eq!((done.selected, done.redriven), (3, 3));
    let left: Vec<_> = admin.dead_letters("t", "g").try_collect().await.unwrap();
    let keys: Vec<_> = left.iter().map(|letter| letter.event.as_ref().unwrap().key.as_deref()).collect();
    assert_eq!(keys, [Some("k0"); 3]);
    let chosen = ChosenLetters::Filter(json!({"keyPrefix": "k"}));
    assert_eq!(admin.drop_letters("t", "g", &chosen).await.unwrap().dropped, 3);
    let wrong = ChosenLetters::Filter(json!({"colour": "red"}));
    assert_eq!(admin.drop_letters("t", "g", &wrong).await.unwrap_err().code(), "bad_filter");
    client.close().await.unwrap();
}

#[tokio::test]
async fn schemas_are_deleted_unless_they_are_used_and_migrations_are_tried() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    let admin = client.admin();
    let schema = json!({"type": "object"});
    for topic in ["used", "unused"] {
        admin.register_schema(topic, &schema, SchemaRegistration::default()).await.unwrap();
    }
    client.publish("used", &json!({"n": 1})).await.unwrap();
    let tried = admin.try_migration("used").await.unwrap();
    assert_eq!((&tried["events"], &tried["same"], &tried["failed"]), (&json!(1), &json!(1), &json!(0)));
    assert_eq!(admin.try_migration("none").await.unwrap_err().code(), "unknown_topic");
    assert_eq!(admin.delete_schema("used", 1).await.unwrap_err().code(), "schema_in_use");
    assert_eq!(admin.delete_schema("unused", 1).await.unwrap()["deleted"], true);
    assert_eq!(admin.schema("unused", Some(1)).await.unwrap_err().code(), "unknown_schema");
    let checked = admin.check_schema("used", &json!({"type": "object", "required": ["b"]})).await.unwrap();
    assert_eq!(checked["verdict"], "incompatible");
    client.close().await.unwrap();
}

/// A server with the projectors of an example, and with one more.
fn process_server(more: &str) -> (tempfile::TempDir, RunningServer) {
    let dir = tempfile::tempdir().unwrap();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let config = std::fs::read_to_string(format!("{examples}/processes.toml")).unwrap();
    let config = config.replace("\"schemas\"", &format!("\"{examples}/schemas\""));
    std::fs::write(dir.path().join("c.toml"), config + more).unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    (dir, server)
}

async fn beat(client: &Client) -> Value {
    let heartbeat = json!({"pid": 1, "name": "stt", "host": "local", "cpu_pct": 1.5, "mem_mb": 2.0});
    client.publish("heartbeat.received", &heartbeat).await.unwrap();
    until_some("the document is there", async || {
        client.state_reader().document::<Value>("local:stt:1").await.unwrap()
    })
    .await
}

#[tokio::test]
async fn projectors_are_rebuilt_and_resumed() {
    let halting = "\n[[projectors]]\nname = \"halting\"\ntopic = \"h\"\non_failure = \"halt\"\n\
                   program = 'if .payload == \"bad\" then error(\"no\") else empty end'\n";
    let (_dir, server) = process_server(halting);
    let client = Client::new(&server.url()).unwrap();
    let admin = client.admin();
    beat(&client).await;
    let projector = async |name: &str| {
        let all = admin.projectors().await.unwrap();
        all["projectors"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone()
    };
    for accept_loss in [false, true] {
        admin.rebuild_projector("processes.txn", accept_loss).await.unwrap();
        let done = until_some("the rebuild ends", async || {
            let rebuild = projector("processes.txn").await["rebuild"].clone();
            (rebuild["running"] == false).then_some(rebuild)
        })
        .await;
        assert_eq!((&done["equal"], &done["position"]), (&json!(true), &json!(1)));
    }
    assert_eq!(admin.rebuild_projector("none", false).await.unwrap_err().code(), "unknown_projector");
    client.publish("h", "bad").await.unwrap();
    let halted = until_some("the projector halts", async || {
        let halting = projector("halting").await;
        (halting["activity"] == "halted").then_some(halting)
    })
    .await;
    let resumed = admin.resume_projector("halting").await.unwrap();
    assert!(resumed["activity"] == "running" && resumed["rebuild"].is_null(), "{resumed}");
    until("the event is tried again", async || {
        projector("halting").await["failures"].as_u64() > halted["failures"].as_u64()
    })
    .await;
    assert_eq!(admin.resume_projector("none").await.unwrap_err().code(), "unknown_projector");
    client.close().await.unwrap();
}

#[tokio::test]
async fn state_time_travel_and_collections() {
    let (_dir, server) = process_server("");
    let client = Client::new(&server.url()).unwrap();
    let state = client.state_reader();
    client.publish("plain", &json!({"n": 1})).key("k").ts(1_000).await.unwrap();
    client.publish("plain", &json!({"n": 2})).key("k").ts(2_000).await.unwrap();
    let then = state.of_key::<Value>("plain", "k", Some("1500")).await.unwrap().unwrap();
    assert_eq!((&then.state["n"], then.ts), (&json!(1), 1_000));
    assert_eq!(state.of_key::<Value>("plain", "k", None).await.unwrap().unwrap().state["n"], 2);
    assert!(state.of_key::<Value>("plain", "other", None).await.unwrap().is_none());
    assert!(!state.collections().await.unwrap().is_empty());
    assert!(state.document::<Value>("none").await.unwrap().is_none());
    let document = beat(&client).await;
    assert_eq!(document["_key"], "local:stt:1");
    let ts = document["_ts"].as_i64().unwrap();
    let at = async |ts: i64| -> Vec<DocumentThen<Value>> {
        state.collection_at("processes", &ts.to_string()).try_collect().await.unwrap()
    };
    let now = at(ts).await;
    assert_eq!((now.len(), now[0].key.as_str(), now[0].ts), (1, "local:stt:1", ts));
    assert_eq!(now[0].document, document);
    assert!(at(ts - 1).await.is_empty());
    let before = (ts - 1).to_string();
    let changes: Vec<_> = state.collection_diff("processes", &before, None).try_collect().await.unwrap();
    assert_eq!((changes.len(), &changes[0]["added"]["after"]), (1, &document));
    let same = state.collection_diff("processes", &before, Some(&before));
    assert!(same.try_collect::<Vec<_>>().await.unwrap().is_empty());
    let error = state.collection_at::<Value>("host_stats", &before).next().await.unwrap().unwrap_err();
    assert_eq!(error.code(), "no_history");
    let tagged = state.document_if_changed::<Value>("local:stt:1", None).await.unwrap().unwrap();
    assert!(state.document_if_changed::<Value>("local:stt:1", Some(&tagged.etag)).await.unwrap().is_none());
    let listed: Vec<Value> = state.list(Vec::new(), 10).try_collect().await.unwrap();
    assert_eq!(listed.len(), 1);
    client.close().await.unwrap();
}
