//! The server is killed or stopped under load, and no acknowledged publish or ack is lost.

mod consumer;
mod publisher;
mod server;
mod shared;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use promethean_testkit::ledger::{ObservedEvent, ObservedTopic, ObservedTopics};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use self::server::KillableServer;
use self::shared::Shared;

const TOPICS: usize = 4;
const GROUPS: usize = 5;
const PUBLISHERS: usize = 100;
/// Five members for each group and topic.
const CONSUMERS: usize = 100;
const KILLS: u64 = 4;
/// Publishes that are acknowledged between two kills.
const BETWEEN_KILLS: u64 = 1_000;

fn topic(number: usize) -> String {
    format!("load.t{}", number % TOPICS)
}

fn group(number: usize) -> String {
    format!("g{}", number / TOPICS % GROUPS)
}

/// Polls until a condition holds, because it depends on other processes.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let mut often = tokio::time::interval(Duration::from_millis(10));
    let all = async {
        while !holds().await {
            often.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all)
        .await
        .unwrap_or_else(|_| panic!("waited too long: {what}"));
}

struct Load {
    shared: Arc<Shared>,
    publishers: JoinSet<()>,
    consumers: JoinSet<()>,
}

async fn start_load(server: &KillableServer) -> Load {
    let shared = Arc::new(Shared::new(server.address));
    let (mut publishers, mut consumers) = (JoinSet::new(), JoinSet::new());
    for number in 0..PUBLISHERS {
        publishers.spawn(publisher::run(Arc::clone(&shared), number));
    }
    for number in 0..CONSUMERS {
        consumers.spawn(consumer::run(Arc::clone(&shared), number));
    }
    let all = (PUBLISHERS + CONSUMERS) as u64;
    until("all are there", async || shared.connected.load(Ordering::Relaxed) >= all).await;
    Load { shared, publishers, consumers }
}

impl Load {
    async fn acknowledged(&self, more: u64) {
        let target = self.shared.acknowledged.load(Ordering::Relaxed) + more;
        let reached = async || self.shared.acknowledged.load(Ordering::Relaxed) >= target;
        until("publishes are acknowledged", reached).await;
    }

    /// Stops publishing, and waits until all groups have acked every event.
    async fn finish(mut self, server: &KillableServer) -> Arc<Shared> {
        self.shared.done.store(true, Ordering::Relaxed);
        while let Some(ended) = self.publishers.join_next().await {
            ended.unwrap();
        }
        let drained = async || {
            assert!(self.consumers.try_join_next().is_none_or(|ended| ended.is_ok()), "a consumer failed");
            for number in 0..TOPICS * GROUPS {
                let path = format!("/lag?topic={}&group={}", topic(number), group(number));
                let lag: Value = serde_json::from_str(&server.get(&path).await).unwrap();
                if lag["lag"] != 0 {
                    return false;
                }
            }
            // The server has all acks; the clients must have their answers too.
            self.shared.deliveries.lock().unwrap().waiting == 0
        };
        until("all groups have everything", drained).await;
        self.consumers.shutdown().await;
        self.shared
    }
}

/// Reads a whole topic from the server.
async fn export(server: &KillableServer, topic: &str) -> ObservedTopic {
    #[derive(Deserialize)]
    struct Event {
        id: String,
        offset: u64,
        payload: Box<RawValue>,
    }
    let text = server.get(&format!("/export?topic={topic}")).await;
    let read = |line: &str| {
        let event: Event = serde_json::from_str(line).unwrap();
        ObservedEvent::new(event.offset, &event.id, None, event.payload.get().as_bytes())
    };
    ObservedTopic { events: text.lines().map(read).collect(), ..ObservedTopic::default() }
}

/// Checks that every acknowledged publish is in its topic once, and every answered ack was kept.
async fn check(server: &KillableServer, shared: &Shared) {
    let mut observed = ObservedTopics::new();
    for number in 0..TOPICS {
        observed.insert(topic(number), export(server, &topic(number)).await);
    }
    let summary = shared.ledger.check(&observed).unwrap_or_else(|wrong| panic!("{wrong:#?}"));
    assert!(summary.ok >= BETWEEN_KILLS, "{summary:?}");
    for number in 0..TOPICS * GROUPS {
        let path = format!("/dlq?topic={}&group={}", topic(number), group(number));
        assert_eq!(server.get(&path).await, "{\"letters\":[]}");
    }
    let deliveries = shared.deliveries.lock().unwrap();
    assert!(
        deliveries.repeated.is_empty(),
        "{}: {:#?}",
        deliveries.repeated.len(),
        deliveries.repeated.first()
    );
    for number in 0..TOPICS * GROUPS {
        let (topic, group) = (topic(number), group(number));
        let there: BTreeSet<&str> = observed[&topic].events.iter().map(|event| event.id.as_str()).collect();
        let settled = deliveries.settled(&group, &topic);
        let missing: Vec<_> = there.difference(&settled).collect();
        assert!(missing.is_empty(), "{group} on {topic} never acked {missing:?}");
        let invented: Vec<_> = settled.difference(&there).collect();
        assert!(invented.is_empty(), "{group} on {topic} was given {invented:?}, which is not in the log");
    }
}

#[tokio::test]
async fn a_killed_server_loses_nothing_and_repeats_nothing_acked() {
    let run = async {
        let mut server = KillableServer::start().await;
        let load = start_load(&server).await;
        for _ in 0..KILLS {
            load.acknowledged(BETWEEN_KILLS).await;
            server.kill();
            load.shared.epoch.fetch_add(1, Ordering::SeqCst);
            server.restart().await;
        }
        load.acknowledged(BETWEEN_KILLS).await;
        let shared = load.finish(&server).await;
        check(&server, &shared).await;
        let unknown = shared.unknown.load(Ordering::Relaxed);
        assert!(unknown >= KILLS, "{unknown} publishes under way at the kills: they were not under load");
        assert!(server.terminate().await.success());
    };
    tokio::time::timeout(Duration::from_secs(120), run).await.unwrap();
}

#[tokio::test]
async fn a_stopped_server_closes_its_connections_and_loses_nothing() {
    let run = async {
        let mut server = KillableServer::start().await;
        let load = start_load(&server).await;
        load.acknowledged(BETWEEN_KILLS).await;
        assert!(server.terminate().await.success());
        load.shared.epoch.fetch_add(1, Ordering::SeqCst);
        let all = (PUBLISHERS + CONSUMERS) as u64;
        let (goodbyes, broken) = (&load.shared.goodbyes, &load.shared.broken);
        let over = async || goodbyes.load(Ordering::Relaxed) + broken.load(Ordering::Relaxed) >= all;
        until("every connection is over", over).await;
        assert_eq!(broken.load(Ordering::Relaxed), 0, "some connections ended without a close frame");
        server.restart().await;
        load.acknowledged(BETWEEN_KILLS).await;
        let shared = load.finish(&server).await;
        let doubled = shared.doubled.load(Ordering::Relaxed);
        assert_eq!(doubled, 0, "every publish is answered before the connection is closed");
        assert_eq!(shared.goodbyes.load(Ordering::Relaxed), all);
        check(&server, &shared).await;
        assert!(server.terminate().await.success());
    };
    tokio::time::timeout(Duration::from_secs(120), run).await.unwrap();
}
