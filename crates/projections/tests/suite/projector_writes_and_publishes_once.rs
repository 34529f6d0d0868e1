//! A projector writes documents and publishes events, once for each event.

use std::time::Duration;

use promethean_bus::BusError;
use promethean_bus::rows::StartPosition;
use promethean_bus::subscription::Subscribe;
use promethean_delivery::Subject;
use promethean_jq::Program;
use promethean_model::Event;
use promethean_projections::{
    Change, Changelog, ChangelogPrograms, Declared, Logic, ProjectionError, Projector, StartAt, Timer,
};
use serde_json::{Value, json};

use super::world::*;

on_both_stores!(
    counts_each_event_once_also_over_restarts,
    a_changelog_follows_keys_tombstones_and_versions,
    publishes_once_and_chains,
    begins_at_the_latest_if_told_so,
    its_group_is_listed_and_is_its_own,
    a_timer_publishes_and_does_not_overtake,
    lists_by_declared_fields_only,
);

const COUNT: &str = r#"
    {upsert: {collection: "docs", key: .key, set: .payload}},
    {upsert: {collection: "stats", key: "all", inc: {seen: 1}, set: {last: .offset}}}
"#;

fn count_in_rust(event: &Event) -> Result<Vec<Change>, String> {
    let key = event.key.clone().ok_or("no key")?;
    let fields: Value = serde_json::from_str(event.payload.get()).map_err(|error| error.to_string())?;
    let mut doc = Change::upsert(collection("docs"), key);
    for (name, value) in fields.as_object().ok_or("no object")? {
        doc = doc.set(name, value.clone());
    }
    Ok(vec![doc, Change::upsert(collection("stats"), "all").inc("seen", 1).set("last", event.offset.get())])
}

async fn counts_each_event_once_also_over_restarts(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let mut sent = 0;
    for logic in [jq(COUNT), Logic::rust(count_in_rust), jq(COUNT)] {
        let projections = world.open_projections(declared(projector(logic, &["docs", "stats"]))).await;
        for n in 0..300 {
            let payload = format!(r#"{{"n":{n},"a":"{sent}"}}"#);
            world.publish_json("in", &format!("k{}", n % 7), &payload).await;
            sent += 1;
        }
        caught_up(&world, &projections, "p").await;
        projections.close().await;
        world = world.restart().await;
        assert_eq!(docs(&world, "stats").await, [json!({"_key": "all", "seen": sent, "last": sent - 1})]);
    }
    let docs = docs(&world, "docs").await;
    assert_eq!(docs.len(), 7);
    assert_eq!(docs[0], json!({"_key": "k0", "n": 294, "a": "894"}));
}

async fn a_changelog_follows_keys_tombstones_and_versions(kind: StoreKind) {
    let world = World::running(kind).await;
    let programs = ChangelogPrograms {
        collection: collection("docs"),
        key: Some(".payload.id # the id\n".to_owned()),
        map: Some("{a: .payload.a}".to_owned()),
        tombstone: Some(r#".payload.a == "gone""#.to_owned()),
        version: Some(".payload.v".to_owned()),
    };
    let rust = Changelog::new(collection("rust"))
        .key(|event| field(event, "id").as_str().map(str::to_owned))
        .map(|event| Ok([("a".to_owned(), field(event, "a"))].into_iter().collect()))
        .tombstone(|event| field(event, "a") == "gone")
        .version(|event| field(event, "v").as_i64());
    let in_jq = projector(programs.logic().unwrap(), &["docs"]);
    let in_rust = Projector { name: group("r"), ..projector(Logic::rust(rust), &["rust"]) };
    let mut all = declared(in_jq);
    let other = declared(in_rust);
    all.projectors.extend(other.projectors);
    all.collections.extend(other.collections);
    let projections = world.open_projections(all).await;
    for payload in [
        r#"{"id":"one","a":"x","v":3}"#,
        r#"{"id":"one","a":"older","v":2}"#,
        r#"{"id":"one","a":"same","v":3}"#,
        r#"{"id":"one","_deleted":true,"v":2}"#,
        r#"{"id":"two","a":"x"}"#,
        r#"{"id":"two","a":"y"}"#,
        r#"{"id":"","a":"skipped"}"#,
        r#"{"a":"skipped"}"#,
        r#"{"id":"three","a":"x"}"#,
        r#"{"id":"three","_deleted":true}"#,
        r#"{"id":"four","a":"x"}"#,
        r#"{"id":"four","a":"gone"}"#,
    ] {
        world.publish_json("in", "k", payload).await;
    }
    for (name, of) in [("p", "docs"), ("r", "rust")] {
        let status = caught_up(&world, &projections, name).await;
        assert_eq!((status.failures, status.last_error), (0, None));
        assert_eq!(
            docs(&world, of).await,
            [json!({"_key": "one", "_v": 3, "a": "x"}), json!({"_key": "two", "a": "y"})]
        );
    }
    projections.close().await;
}

fn field(event: &Event, name: &str) -> Value {
    serde_json::from_str::<Value>(event.payload.get()).unwrap()[name].clone()
}

async fn publishes_once_and_chains(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let first =
        r#"{publish: {topic: "out", key: .key, payload: {twice: (.payload.n * 2)}, headers: {"x-a": "b"}}}"#;
    let second = r#"{upsert: {collection: "sums", key: .key, inc: {sum: .payload.twice}}}"#;
    for round in 1..=2 {
        let first = projector(jq(first), &[]);
        let second = Projector { name: group("q"), topic: topic("out"), ..projector(jq(second), &["sums"]) };
        let mut all = declared(second);
        all.projectors.push(first);
        let projections = world.open_projections(all).await;
        for n in 0..50 {
            world.publish_json("in", "k", &format!(r#"{{"n":{n}}}"#)).await;
        }
        caught_up(&world, &projections, "p").await;
        caught_up(&world, &projections, "q").await;
        projections.close().await;
        assert_eq!(payloads(&world, "out").await.len(), 50 * round);
        assert_eq!(docs(&world, "sums").await, [json!({"_key": "k", "sum": 2450 * round})]);
        world = world.restart().await;
    }
    let page =
        world.store.read(&topic("out"), promethean_model::Offset::ZERO, Default::default()).await.unwrap();
    let event = promethean_bus::user_event(&page.events[3]).unwrap();
    assert_eq!(event.headers.unwrap()["x-a"], "b");
    let source = world.bus.event_at(&topic("in"), promethean_model::Offset(3)).await.unwrap().unwrap();
    assert_eq!(event.caused_by.unwrap(), [source.id]);
}

async fn begins_at_the_latest_if_told_so(kind: StoreKind) {
    let world = World::running(kind).await;
    world.publish_json("in", "k", r#"{"n":1}"#).await;
    let latest = Projector { from: StartAt::Latest, ..projector(jq(COUNT), &["docs", "stats"]) };
    let projections = world.open_projections(declared(latest)).await;
    world.publish_json("in", "k", r#"{"n":2}"#).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(docs(&world, "stats").await, [json!({"_key": "all", "seen": 1, "last": 1})]);
    projections.close().await;
}

async fn its_group_is_listed_and_is_its_own(kind: StoreKind) {
    let world = World::running(kind).await;
    let projections = world.open_projections(declared(projector(jq(COUNT), &["docs", "stats"]))).await;
    world.publish_json("in", "k", "{}").await;
    caught_up(&world, &projections, "p").await;
    let progress = world.bus.group(&topic("in"), &group("p")).await.unwrap();
    assert_eq!((progress.floor.get(), progress.lag, progress.members), (1, 0, 1));
    let listed = world.bus.groups(Some(&topic("in"))).await.unwrap();
    assert_eq!(listed.iter().map(|info| info.group.as_str()).collect::<Vec<_>>(), ["p"]);
    let subject = Subject::Topic(topic("in"));
    let refusals = [
        world.bus.subscribe(Subscribe::new(subject.clone(), group("p"))).await.map(drop),
        world
            .bus
            .subscribe(Subscribe::new("i*".parse().unwrap_or(subject.clone()), group("p")))
            .await
            .map(drop),
        world.bus.seek(&topic("in"), &group("p"), StartPosition::Earliest, false).await.map(drop),
        world.bus.pause_group(&subject, &group("p")).await,
        world.bus.delete_group(&subject, &group("p")).await,
    ];
    for refusal in refusals {
        assert_eq!(refusal, Err(BusError::ProjectorGroup { group: group("p") }));
    }
    projections.close().await;
    // Also while the projector does not run.
    let refusal = world.bus.subscribe(Subscribe::new(subject.clone(), group("p"))).await.map(drop);
    assert_eq!(refusal, Err(BusError::ProjectorGroup { group: group("p") }));
    let consumers = world.bus.subscribe(Subscribe::new(subject, group("c"))).await.unwrap();
    let taken = Projector { name: group("c"), ..projector(jq("empty"), &[]) };
    let clock = world.clock.clone();
    let opened = promethean_projections::Projections::open(
        world.bus.clone(),
        world.store.clone(),
        clock,
        declared(taken),
    )
    .await;
    assert_eq!(opened.unwrap_err().code(), "conflict");
    consumers.unsubscribe();
}

/// The timer publishes once that a document is stale.
async fn a_timer_publishes_and_does_not_overtake(kind: StoreKind) {
    let world = World::running(kind).await;
    let logic = jq(r#"{upsert: {collection: "docs", key: .key, set: .payload}}"#);
    let stale = r#"
        select(.doc.a == "alive" and .now - .doc.n > 200)
        | {publish: {topic: "in", key, payload: (.doc | {a: "stale", n}), expected_key_offset: .doc._offset}}
    "#;
    let timer = Timer {
        every: Duration::from_millis(20),
        over: collection("docs"),
        program: Program::compile(stale).unwrap(),
    };
    let projections = world
        .open_projections(declared(Projector { timer: Some(timer), ..projector(logic, &["docs"]) }))
        .await;
    let now = promethean_model::Clock::wall_ms(&*world.clock);
    world.publish_json("in", "k", &json!({"a": "alive", "n": now}).to_string()).await;
    world.clock.advance(300);
    promethean_testkit::until("the document is stale", async || {
        docs(&world, "docs").await.first().is_some_and(|doc| doc["a"] == "stale")
    })
    .await;
    let runs = until(&projections, "p", |status| status.position == 2).await.timer_runs;
    until(&projections, "p", |status| status.timer_runs > runs + 3).await;
    assert_eq!(payloads(&world, "in").await.len(), 2, "said once");
    projections.close().await;
}

async fn lists_by_declared_fields_only(kind: StoreKind) {
    let world = World::running(kind).await;
    let projections = world.open_projections(declared(projector(jq(COUNT), &["docs", "stats"]))).await;
    for n in 0..5 {
        world
            .publish_json("in", &format!("k{n}"), &format!(r#"{{"n":{n},"a":"{}","other":1}}"#, n % 2))
            .await;
    }
    caught_up(&world, &projections, "p").await;
    let docs = collection("docs");
    let list = async |equals: &[(&str, &str)], offset, limit| {
        let equals: Vec<_> =
            equals.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let page = projections.list(&docs, &equals, offset, limit).await?;
        Ok::<_, ProjectionError>((page.docs.iter().map(|doc| doc.key.clone()).collect::<Vec<_>>(), page.more))
    };
    let (even, more) = list(&[("a", "0")], 0, 10).await.unwrap();
    assert_eq!((even.len(), more), (3, false));
    assert_eq!(list(&[("a", "0"), ("n", "2.0")], 0, 10).await.unwrap(), (vec!["k2".to_owned()], false));
    assert!(list(&[], 0, 2).await.unwrap().1);
    assert_eq!(list(&[], 4, 2).await.unwrap().0.len(), 1);
    assert_eq!(list(&[("other", "1")], 0, 10).await.unwrap_err().code(), "unknown_field");
    assert_eq!(list(&[("n", "two")], 0, 10).await.unwrap_err().code(), "wrong_type");
    assert_eq!(projections.document(&docs, "k9").await.unwrap_err().code(), "not_found");
    assert_eq!(
        projections.document(&collection("none"), "k9").await.unwrap_err().code(),
        "unknown_collection"
    );
    assert_eq!(projections.drop_collection(&docs).await.unwrap_err().code(), "collection_in_use");
    projections.close().await;
    let without = world.open_projections(Declared::default()).await;
    without.drop_collection(&docs).await.unwrap();
    assert_eq!(without.drop_collection(&docs).await.unwrap_err().code(), "unknown_collection");
    assert_eq!(without.default_collection().unwrap_err().code(), "no_default_collection");
}

#[test]
fn what_cannot_work_is_refused_before_anything_starts() {
    let one = || projector(jq("empty"), &["docs"]);
    let code = |declared: Declared| declared.validate().map_err(|error| error.to_string());
    assert_eq!(code(declared(one())), Ok(()));
    let with = |change: fn(&mut Declared)| {
        let mut declared = declared(projector(jq("empty"), &["docs"]));
        change(&mut declared);
        declared.validate().unwrap_err().to_string()
    };
    assert!(with(|all| all.collections.clear()).contains("declare that"));
    assert!(with(|all| all.projectors.push(all.projectors[0].clone())).contains("twice"));
    assert!(with(|all| all.collections.push(all.collections[0].clone())).contains("twice"));
    assert!(with(|all| all.projectors[0].batch = 0).contains("1 to 10000"));
    assert!(with(|all| all.default_collection = Some(collection("x"))).contains("default"));
    assert!(
        with(|all| {
            let other = Projector { name: group("other"), ..all.projectors[0].clone() };
            all.projectors.push(other);
        })
        .contains("let one of them write it")
    );
    assert!(with(|all| all.collections[0].name = collection("x:rebuild")).contains(":rebuild"));
}
