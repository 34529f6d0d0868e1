//! The server is killed or stopped under load, and no acknowledged publish or ack is lost. Meanwhile a projector counts, a
//! compactor writes snapshots, a topic is compacted, another drops its old events, and topics and groups are deleted.
//!
//! `PROMETHEAN_KILLS=n` kills the server n times.

mod churn;
mod consumer;
mod publisher;
pub(super) mod server;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
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
/// Publishers whose events the projector counts: those of the topic `load.t1`.
const COUNTED: usize = 1;
const COMPACTED: usize = 2;
const RETAINED: usize = 3;
/// The data is verified after every so many kills.
const KILLS_BETWEEN_CHECKS: u64 = 10;
/// Publishes that are acknowledged between two kills.
const BETWEEN_KILLS: u64 = 1_000;

const CONFIG: &str = r#"
[topics."load.t2"]
compacted = true

[topics."load.t3"]
retention = { count = 500 }

[collections.counts]
fields = { seen = "number" }

[[projectors]]
name = "counter"
topic = "load.t1"
collections = ["counts"]
program = '{upsert: {collection: "counts", key: (.payload.by | tostring), inc: {seen: 1}}}'

[[compactors]]
topic = "load.t1"
every = "1s"
"#;

/// How often the server is killed; the time for all of it grows with that.
fn kills() -> u64 {
    std::env::var("PROMETHEAN_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(4)
}

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
    churn: JoinSet<()>,
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
    Load { shared, publishers, consumers, churn: JoinSet::new() }
}

impl Load {
    /// Deletes topics and groups from now on.
    fn start_churn(&mut self, server: &KillableServer) {
        self.churn.spawn(churn::run(Arc::clone(&self.shared), server.address));
    }

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
        while let Some(ended) = self.churn.join_next().await {
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
async fn export(server: &KillableServer, number: usize) -> ObservedTopic {
    let name = topic(number);
    #[derive(Deserialize)]
    struct Event {
        id: String,
        offset: u64,
        key: Option<String>,
        payload: Box<RawValue>,
    }
    let info: Value = serde_json::from_str(&server.get(&format!("/topics/{name}")).await).unwrap();
    let text = server.get(&format!("/export?topic={name}")).await;
    let read = |line: &str| {
        let event: Event = serde_json::from_str(line).unwrap();
        ObservedEvent::new(event.offset, &event.id, event.key.as_deref(), event.payload.get().as_bytes())
    };
    ObservedTopic {
        earliest: info["earliest"].as_u64().unwrap(),
        compacted: number == COMPACTED,
        events: text.lines().map(read).collect(),
    }
}

/// Checks that every acknowledged publish is in its topic once, and every answered ack was kept.
async fn check(server: &KillableServer, shared: &Shared) {
    let mut observed = ObservedTopics::new();
    for number in 0..TOPICS {
        observed.insert(topic(number), export(server, number).await);
    }
    let summary = shared.ledger.check(&observed).unwrap_or_else(|wrong| panic!("{wrong:#?}"));
    assert!(summary.ok >= BETWEEN_KILLS, "{summary:?}");
    for number in 0..TOPICS * GROUPS {
        let path = format!("/dlq?topic={}&group={}", topic(number), group(number));
        assert_eq!(server.get(&path).await, "{\"letters\":[]}");
    }
    check_deliveries(shared, &observed);
    check_counts(server, &observed[&topic(COUNTED)]).await;
}

/// Checks that every group acked every event that is in the log, and got no acked event again.
fn check_deliveries(shared: &Shared, observed: &ObservedTopics) {
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
        let may_be_gone = [COMPACTED, RETAINED].contains(&(number % TOPICS));
        let invented: Vec<_> = settled.difference(&there).filter(|_| !may_be_gone).collect();
        assert!(invented.is_empty(), "{group} on {topic} was given {invented:?}, which is not in the log");
    }
}

/// Checks that the projector counted each event of its topic once.
async fn check_counts(server: &KillableServer, counted: &ObservedTopic) {
    let mut events: BTreeMap<&str, u64> = BTreeMap::new();
    for event in &counted.events {
        *events.entry(event.key.as_deref().unwrap()).or_default() += 1;
    }
    let path = format!("/lag?topic={}&group=counter", topic(COUNTED));
    until("the projector has everything", async || {
        let lag: Value = serde_json::from_str(&server.get(&path).await).unwrap();
        lag["lag"] == 0
    })
    .await;
    for (key, count) in events {
        let path = format!("/collections/counts/snap/{}", key.trim_start_matches('k'));
        let doc: Value = serde_json::from_str(&server.get(&path).await).unwrap();
        assert_eq!(doc["seen"], count, "events of {key}");
    }
}

#[tokio::test]
async fn a_killed_server_loses_nothing_and_repeats_nothing_acked() {
    let kills = kills();
    let run = async {
        let mut server = KillableServer::with_config(CONFIG).await;
        let mut load = start_load(&server).await;
        load.start_churn(&server);
        for kill in 1..=kills {
            load.acknowledged(BETWEEN_KILLS).await;
            server.kill();
            load.shared.epoch.fetch_add(1, Ordering::SeqCst);
            if kill % KILLS_BETWEEN_CHECKS == 0 {
                server.verify();
            }
            server.restart().await;
        }
        load.acknowledged(BETWEEN_KILLS).await;
        let shared = load.finish(&server).await;
        check(&server, &shared).await;
        let unknown = shared.unknown.load(Ordering::Relaxed);
        assert!(unknown >= kills, "{unknown} publishes under way at the kills: they were not under load");
        assert!(shared.deletions.load(Ordering::Relaxed) > 0, "no topic was deleted");
        assert!(server.terminate().await.success());
        server.verify();
        let (acknowledged, deletions) = (&shared.acknowledged, &shared.deletions);
        eprintln!("{kills} kills, {acknowledged:?} events acknowledged, {deletions:?} topics deleted");
    };
    tokio::time::timeout(Duration::from_secs(120 + 10 * kills), run).await.unwrap();
}

#[tokio::test]
async fn a_stopped_server_closes_its_connections_and_loses_nothing() {
    let run = async {
        let mut server = KillableServer::with_config(CONFIG).await;
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
