//! Dual-write publishes events in their old form too.

use promethean_bus::schemas::DualWrite;
use promethean_jq::Program;
use promethean_model::{EventId, EventMeta, Offset, TopicSettings};

use super::super::bus::harness::*;
use super::*;

on_both_stores!(
    the_old_form_is_published_too,
    a_retry_gives_no_second_copy,
    what_has_no_old_form_is_refused,
    batches_and_expectations_hold,
    what_is_of_the_old_version_already_is_copied,
    a_redriven_event_has_an_old_form_too,
    it_can_end,
);

pub(super) fn dual(program: &str) -> DualWrite {
    DualWrite { from: 2, version: 1, program: Program::compile(program).unwrap() }
}

async fn ready(world: &World) {
    versions(&world.bus, "t", &[V1, V2]).await;
    world.bus.set_dual_write(&topic("t"), Some(dual("{n: .count}"))).unwrap();
}

async fn the_old_form_is_published_too(kind: StoreKind) {
    let world = World::new(kind).await;
    ready(&world).await;
    let event = Publish::new(topic("t"), r#"{"count":7}"#).key("k").header("x-a", "b").ts(5);
    let published = world.bus.publish(event).await.unwrap();
    assert_eq!((published.topic.as_str(), published.offset.get()), ("t", 0));
    let (new, old) = (world.events("t").await, world.events("t.v1").await);
    assert_eq!((payload(&new[0]), version(&new[0]).as_deref()), (r#"{"count":7}"#, Some("2")));
    assert_eq!((payload(&old[0]), version(&old[0]).as_deref()), (r#"{"n":7}"#, Some("1")));
    assert_eq!((old[0].key(), old[0].ts, headers(&old[0])["x-a"].as_str()), (Some("k"), 5, "b"));
    assert_eq!(EventMeta::decode(old[0].meta()).unwrap().caused_by, Some(vec![new[0].id]));
    assert_ne!(old[0].id, new[0].id);
    world.bus.publish(Publish::new(topic("t"), "null").key("k")).await.unwrap();
    assert_eq!(payload(&world.events("t.v1").await[1]), "null");
    let mut subscription = world.subscribe(request("t.v1", "old")).await;
    assert_eq!(take(&mut subscription, 2).await.len(), 2);
    let partitioned = TopicSettings { partitions: Some(4), ..TopicSettings::default() };
    world.bus.set_topic(&topic("t.v1"), partitioned).await.unwrap();
    publish(&world.bus, "t", r#"{"count":8}"#).await.unwrap();
    assert!(EventMeta::decode(world.events("t.v1").await[2].meta()).unwrap().partition.is_some());
}

async fn what_is_of_the_old_version_already_is_copied(kind: StoreKind) {
    let world = World::new(kind).await;
    versions(&world.bus, "t", &[V1, V2, V3]).await;
    // The downcaster would make `null` of an event without a count.
    world.bus.set_dual_write(&topic("t"), Some(dual("{n: .count}"))).unwrap();
    publish_as(&world.bus, "t", r#"{"n":5}"#, "1").await.unwrap();
    publish_as(&world.bus, "t", r#"{"count":6}"#, "2").await.unwrap();
    let old = world.events("t.v1").await;
    assert_eq!(old.iter().map(payload).collect::<Vec<_>>(), [r#"{"n":5}"#, r#"{"n":6}"#]);
    let error = publish(&world.bus, "t", r#"{"count":7,"unit":"x"}"#).await.unwrap_err();
    assert_eq!(error.code(), "downcast_failed");
    assert!(
        error.to_string().contains("version 3") && error.to_string().contains("needs version 2"),
        "{error}"
    );
    assert_eq!((world.events("t").await.len(), world.events("t.v1").await.len()), (2, 2));
}

async fn a_redriven_event_has_an_old_form_too(kind: StoreKind) {
    use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
    let world = World::new(kind).await;
    ready(&world).await;
    publish(&world.bus, "t", r#"{"count":7}"#).await.unwrap();
    let mut subscription = world.subscribe(attempts(request("t", "g"), 1)).await;
    let given = take(&mut subscription, 1).await;
    subscription.nack(&given, Some(0)).await.unwrap();
    world.until("t", "g", |seen| seen.lag == 0).await;
    world.bus.redrive(&topic("t"), &group("g"), LetterChoice::All, RedriveTo::Topic).await.unwrap();
    let (new, old) = (world.events("t").await, world.events("t.v1").await);
    assert_eq!((new.len(), old.len()), (2, 2));
    assert_eq!(payload(&old[1]), r#"{"n":7}"#);
    assert_eq!(EventMeta::decode(old[1].meta()).unwrap().caused_by, Some(vec![new[1].id]));
}

async fn a_retry_gives_no_second_copy(kind: StoreKind) {
    let world = World::new(kind).await;
    ready(&world).await;
    let event = || Publish::new(topic("t"), r#"{"count":7}"#).id(EventId::from_bytes([7; 16]));
    assert!(!world.bus.publish(event()).await.unwrap().duplicate);
    assert!(world.bus.publish(event()).await.unwrap().duplicate);
    let world = world.restart().await;
    world.bus.set_dual_write(&topic("t"), Some(dual("{n: .count}"))).unwrap();
    assert!(world.bus.publish(event()).await.unwrap().duplicate);
    assert_eq!((world.events("t").await.len(), world.events("t.v1").await.len()), (1, 1));
}

async fn what_has_no_old_form_is_refused(kind: StoreKind) {
    let world = World::new(kind).await;
    ready(&world).await;
    for program in [r#"error("no")"#, "{m: .count}", "empty", "1, 2", "def f: f; f"] {
        world.bus.set_dual_write(&topic("t"), Some(dual(program))).unwrap();
        let error = publish(&world.bus, "t", r#"{"count":7}"#).await.unwrap_err();
        assert_eq!(error.code(), "downcast_failed", "{error}");
        assert!(error.to_string().contains("`t.v1`"), "{error}");
    }
    let unknown = DualWrite { version: 9, ..dual(".") };
    world.bus.set_dual_write(&topic("t"), Some(unknown)).unwrap();
    assert_eq!(code(publish(&world.bus, "t", r#"{"count":7}"#).await), "unknown_schema");
    assert_eq!((world.events("t").await.len(), world.events("t.v1").await.len()), (0, 0));
}

async fn batches_and_expectations_hold(kind: StoreKind) {
    let world = World::new(kind).await;
    ready(&world).await;
    let event = |n: u32| Publish::new(topic("t"), format!(r#"{{"count":{n}}}"#));
    let published =
        world.bus.publish_batch(vec![event(0), Publish::new(topic("u"), "1"), event(1)]).await.unwrap();
    let places: Vec<_> = published.iter().map(|one| (one.topic.as_str(), one.offset.get())).collect();
    assert_eq!(places, [("t", 0), ("u", 0), ("t", 1)]);
    assert_eq!(code(world.bus.publish(event(2).expected_offset(Offset(7))).await), "conflict");
    world.bus.publish(event(2).expected_offset(Offset(2))).await.unwrap();
    let each = world.bus.publish_each(vec![
        event(3),
        Publish::new(topic("t"), "bad"),
        Publish::new(topic("u"), "2"),
        event(4),
    ]);
    let codes: Vec<_> = each
        .await
        .into_iter()
        .map(|one| one.map(|one| one.offset.get()).map_err(|error| error.code()))
        .collect();
    assert_eq!(codes, [Ok(3), Err("invalid_json"), Ok(1), Ok(4)]);
    let old: Vec<_> = world.events("t.v1").await.iter().map(|event| payload(event).to_owned()).collect();
    assert_eq!(old, (0..5).map(|n| format!(r#"{{"n":{n}}}"#)).collect::<Vec<_>>());
}

async fn it_can_end(kind: StoreKind) {
    let world = World::new(kind).await;
    ready(&world).await;
    publish(&world.bus, "t", r#"{"count":1}"#).await.unwrap();
    world.bus.set_dual_write(&topic("t"), None).unwrap();
    publish(&world.bus, "t", r#"{"count":2}"#).await.unwrap();
    assert_eq!((world.events("t").await.len(), world.events("t.v1").await.len()), (2, 1));
}
