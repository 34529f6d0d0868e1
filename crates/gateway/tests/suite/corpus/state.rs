//! The topics and groups that bad input must not change.

use promethean_bus::Bus;
use promethean_bus::publish::Publish;
use promethean_bus::rows::StartPosition;
use promethean_bus::subscription::Subscribe;
use promethean_delivery::Subject;
use promethean_model::TopicSettings;

use crate::suite::world::World;

/// The id of the event that the cases use.
const KNOWN: &str = "00000000-0000-7000-8000-000000000001";

/// Three topics with an event or more, and a group.
pub(super) async fn seed(world: &World) {
    let bus = &world.bus;
    let set = |settings: &str| serde_json::from_str::<TopicSettings>(settings).unwrap();
    bus.set_topic(&"keyed".parse().unwrap(), set(r#"{"compacted":true}"#)).await.unwrap();
    bus.set_topic(&"parts".parse().unwrap(), set(r#"{"partitions":4}"#)).await.unwrap();
    for (topic, key) in [("kept", "a"), ("kept", "k"), ("keyed", "k"), ("parts", "k")] {
        bus.publish(Publish::new(topic.parse().unwrap(), b"1".as_slice()).key(key)).await.unwrap();
    }
    let known = Publish::new("kept".parse().unwrap(), b"1".as_slice()).id(KNOWN.parse().unwrap());
    bus.publish(known).await.unwrap();
    let mut workers = Subscribe::new("kept".parse().unwrap(), "workers".parse().unwrap());
    workers.options.from = Some(StartPosition::Earliest);
    bus.subscribe(workers).await.unwrap().unsubscribe();
}

/// Every topic with its settings and the ids of its events, and every group with its options and cursors;
/// without those of the witness.
pub(in crate::suite) async fn snapshot(bus: &Bus) -> Vec<String> {
    let mut all = Vec::new();
    for topic in bus.topics().await.unwrap() {
        if topic.name.as_str() == super::witness::TOPIC {
            continue;
        }
        let mut scan = bus.scan(&topic.name, StartPosition::Earliest).await.unwrap();
        let mut ids = Vec::new();
        while let Some(page) = scan.next_page(1_000, 1 << 20).await.unwrap() {
            ids.extend(page.events.iter().map(|event| event.id.to_string()));
        }
        let settings = serde_json::to_string(&bus.topic_settings(&topic.name)).unwrap();
        all.push(format!("topic {} {}..{} {settings} {ids:?}", topic.name, topic.earliest, topic.end));
    }
    all.extend(bus.all_schemas(None, 1_000).topics.iter().map(|entry| format!("schema {entry:?}")));
    for info in bus.groups(None).await.unwrap() {
        if info.subject == Subject::Topic(super::witness::TOPIC.parse().unwrap()) {
            continue;
        }
        let options = serde_json::to_string(&info.row.options).unwrap();
        let places: Vec<String> =
            info.topics.iter().map(|place| format!("{} at {}", place.topic, place.floor)).collect();
        let (group, subject, paused) = (info.group, info.subject, info.row.paused);
        all.push(format!("group {group} on {subject} {options} paused {paused} {places:?}"));
    }
    all
}
