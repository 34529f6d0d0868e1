//! Events with filler, and dead letters, for the tests of consumers and letters.

use promethean_bus::dead_letters::{LetterChoice, LetterInfo};
use promethean_bus::publish::Publish;
use promethean_bus::subscription::Subscribe;
use promethean_model::{Millis, Offset, Retention, TopicSettings};
use promethean_testkit::{World, group, topic};

use super::bus::harness::{self, attempts, take};

/// A request for a subscription from the beginning, with this many attempts.
pub(crate) fn request(on: &str, by: &str, max_attempts: u32) -> Subscribe {
    attempts(harness::request(on, by), max_attempts)
}

/// Publishes events of more than 500 bytes, with a key each, and the header `x-kind`.
pub(crate) async fn publish(world: &World, to: &str, count: u64) {
    let filler = "x".repeat(500);
    for n in 0..count {
        let event = Publish::new(topic(to), format!("{{\"n\":{n},\"filler\":\"{filler}\"}}"));
        let event = event.key(format!("k{n}")).header("x-kind", if n % 2 == 0 { "even" } else { "odd" });
        world.bus.publish(event).await.unwrap();
    }
}

/// Publishes events and makes dead letters of them all.
pub(crate) async fn kill(world: &World, on: &str, by: &str, count: u64) {
    let mut member = world.subscribe(request(on, by, 1)).await;
    publish(world, on, count).await;
    let given = take(&mut member, count as usize).await;
    assert_eq!(member.nack(&given, Some(0)).await.unwrap().stale, 0);
    member.unsubscribe();
}

/// Drops all but the latest few events of a topic.
pub(crate) async fn expire(world: &World, on: &str) {
    let retention = Retention { count: Some(2), age: None, bytes: None };
    let dedupe_window = Millis::from_hours(1);
    let settings = TopicSettings { retention, dedupe_window, ..TopicSettings::default() };
    world.bus.set_topic(&topic(on), settings).await.unwrap();
    world.maintain().await;
}

/// The open dead letters of a group on a topic.
pub(crate) async fn letters(world: &World, on: &str, by: &str) -> Vec<LetterInfo> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = world.bus.dead_letters(&topic(on), &group(by), after, 1000).await.unwrap();
        found.extend(page.letters);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

/// The number of open dead letters that the metrics show.
pub(crate) fn gauge(world: &World, on: &str, by: &str) -> i64 {
    let page = world.bus.metrics().render();
    let line = page.lines().find(|line| {
        line.contains("dead_letters_open{")
            && line.contains(&format!("\"{on}\""))
            && line.contains(&format!("\"{by}\""))
    });
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// The letters at these offsets.
pub(crate) fn at(offsets: &[u64]) -> LetterChoice {
    LetterChoice::Offsets(offsets.iter().copied().map(Offset).collect())
}
