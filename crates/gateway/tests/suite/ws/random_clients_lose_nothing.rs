//! Clients that send random frames: no event is lost, and no durably acked event is delivered again.
//!
//! `CLIENTS_SEEDS=n` runs n seeds, `CLIENTS_FRESH=n` n fresh ones, `CLIENTS_SEED=s` one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures_util::{FutureExt, SinkExt, StreamExt};
use promethean_gateway::GatewayOptions;
use promethean_testkit::{SeededRng, seeds};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::client::Client;
use crate::suite::world::{StoreKind, World, soon};

const CLIENTS: u64 = 6;
const STEPS: usize = 150;
const TOPICS: [&str; 3] = ["a.b", "a.c", "d"];
const SUBJECTS: [&str; 5] = ["a.*", "a.b", "a.c", "**", "d"];
const GROUP: &str = "g";

/// The events of all clients.
#[derive(Default)]
struct Ledger {
    /// By id: whether it was durably acked.
    published: BTreeMap<String, bool>,
    next: u64,
}

type Shared = Arc<Mutex<Ledger>>;

/// One connection, with its open questions and the events it holds.
struct Actor {
    client: Client,
    rng: SeededRng,
    ledger: Shared,
    corr: u64,
    /// The subject of each unanswered frame.
    asked: BTreeMap<u64, Asked>,
    /// Events that are delivered and not settled: the subscribed text, topic and id.
    held: Vec<(String, String, String)>,
}

enum Asked {
    Publish(Vec<String>),
    Ack(Vec<String>),
    Other,
}

impl Actor {
    async fn new(world: &World, rng: SeededRng, ledger: &Shared) -> Self {
        let client = world.ws().await;
        let (asked, held) = (BTreeMap::new(), Vec::new());
        Self { client, rng, ledger: Arc::clone(ledger), corr: 0, asked, held }
    }

    fn pick<'a>(&mut self, among: &[&'a str]) -> &'a str {
        among[self.rng.range(0..among.len() as u64) as usize]
    }

    /// Queues a frame, and writes the queue in two of three calls.
    async fn send(&mut self, mut frame: Value, asked: Asked) {
        self.corr += 1;
        frame["corr"] = json!(self.corr);
        self.asked.insert(self.corr, asked);
        let text = Message::text(frame.to_string());
        let sent = match self.rng.range(0..3) {
            0 => self.client.socket.feed(text).await,
            _ => self.client.socket.send(text).await,
        };
        sent.unwrap();
    }

    fn new_id(&mut self) -> String {
        let mut ledger = self.ledger.lock().unwrap();
        ledger.next += 1;
        format!("00000000-0000-7000-8000-{:012x}", ledger.next)
    }

    async fn publish(&mut self) {
        for _ in 0..1 + self.rng.range(0..30) {
            let (topic, id) = (self.pick(&TOPICS), self.new_id());
            let filler = "x".repeat(self.rng.range(0..2_000) as usize);
            let frame =
                json!({"op": "PUBLISH", "topic": topic, "payload": {"filler": filler}, "opts": {"id": id}});
            self.send(frame, Asked::Publish(vec![id])).await;
        }
    }

    async fn publish_together(&mut self) {
        let count = 1 + self.rng.range(0..20);
        let ids: Vec<String> = (0..count).map(|_| self.new_id()).collect();
        let topic = self.pick(&TOPICS);
        let one = |id: &String| json!({"topic": topic, "payload": id, "opts": {"id": id}});
        let frame = json!({"op": "PUBLISH", "events": ids.iter().map(one).collect::<Vec<_>>()});
        self.send(frame, Asked::Publish(ids)).await;
    }

    async fn subscribe(&mut self) {
        let subject = self.pick(&SUBJECTS);
        let in_flight = 1 + self.rng.range(0..50);
        let frame = json!({"op": "SUBSCRIBE", "topic": subject, "group": GROUP, "batch": self.rng.range(0..2) == 0,
            "opts": {"from": "earliest", "maxInFlight": in_flight, "maxAttempts": 1_000}});
        self.send(frame, Asked::Other).await;
    }

    async fn about_subject(&mut self, op: &str) {
        let subject = self.pick(&SUBJECTS);
        self.send(json!({"op": op, "topic": subject, "group": GROUP}), Asked::Other).await;
        if op == "UNSUBSCRIBE" {
            self.held.retain(|(under, ..)| under != subject);
        }
    }

    /// Settles some of the held events, by the subscribed text or by their topic.
    async fn settle(&mut self, op: &str) {
        for _ in 0..self.rng.range(0..20) {
            if self.held.is_empty() {
                return;
            }
            let at = self.rng.range(0..self.held.len() as u64) as usize;
            let (under, topic, id) = self.held.swap_remove(at);
            let target = if self.rng.range(0..2) == 0 { under } else { topic };
            let frame = json!({"op": op, "topic": target, "group": GROUP, "id": id});
            let asked = if op == "ACK" { Asked::Ack(vec![id]) } else { Asked::Other };
            self.send(frame, asked).await;
        }
    }

    /// Reads frames that have arrived, up to a number.
    async fn look(&mut self, frames_max: u64) {
        for _ in 0..frames_max {
            match self.client.socket.next().now_or_never() {
                None => return tokio::task::yield_now().await,
                Some(Some(Ok(Message::Text(text)))) => self.saw(&serde_json::from_str(&text).unwrap()),
                Some(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
                other => panic!("not a frame: {other:?}"),
            }
        }
    }

    fn saw(&mut self, frame: &Value) {
        match frame["op"].as_str().unwrap() {
            "EVENT" => self.delivered(frame, &frame["event"]),
            "EVENTS" => {
                for one in frame["events"].as_array().unwrap() {
                    self.delivered(frame, &one["event"]);
                }
            }
            _ => self.answered(frame),
        }
    }

    fn delivered(&mut self, frame: &Value, event: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.held.push((text(&frame["topic"]), text(&event["topic"]), text(&event["id"])));
    }

    fn answered(&mut self, reply: &Value) {
        let asked = reply["corr"].as_u64().and_then(|corr| self.asked.remove(&corr));
        let asked = asked.unwrap_or_else(|| panic!("nobody asked: {reply}"));
        let (ok, mut ledger) = (reply["op"] == "OK", self.ledger.lock().unwrap());
        match asked {
            Asked::Publish(ids) => {
                assert!(ok, "{reply}");
                // The client that acked it may have got its reply before the publisher did.
                ids.into_iter().for_each(|id| _ = ledger.published.entry(id).or_insert(false));
            }
            Asked::Ack(ids) if ok && reply.get("stale").is_none() => {
                ids.into_iter().for_each(|id| _ = ledger.published.insert(id, true));
            }
            Asked::Ack(_) => assert!(ok || reply["code"] == "not_subscribed", "{reply}"),
            Asked::Other => {
                let codes = ["already_subscribed", "not_subscribed"];
                assert!(ok || codes.iter().any(|code| reply["code"] == *code), "{reply}");
            }
        }
    }

    async fn step(&mut self) {
        match self.rng.range(0..16) {
            0..=2 => self.publish().await,
            3 => self.publish_together().await,
            4 | 5 => self.subscribe().await,
            6 => self.about_subject("UNSUBSCRIBE").await,
            7 => self.about_subject("PAUSE").await,
            8 => self.about_subject("RESUME").await,
            9 | 10 => self.settle("ACK").await,
            11 => self.settle("NACK").await,
            _ => {
                let count = self.rng.range(0..200);
                self.look(count).await;
            }
        }
    }

    /// Waits until every frame is answered.
    async fn finish(&mut self) {
        self.client.socket.flush().await.unwrap();
        while !self.asked.is_empty() {
            let frame = self.client.next().await;
            self.saw(&frame);
        }
    }
}

/// Does its steps; now and then the client drops its connection and connects again.
async fn act(world: Arc<World>, seed: u64, ledger: Shared) {
    let mut rng = SeededRng::new(seed);
    let mut actor = Actor::new(&world, SeededRng::new(rng.next_u64()), &ledger).await;
    for _ in 0..STEPS {
        if rng.range(0..40) == 0 {
            actor.finish().await;
            actor = Actor::new(&world, SeededRng::new(rng.next_u64()), &ledger).await;
        }
        actor.step().await;
    }
    actor.finish().await;
}

/// How many events the group has not finished.
async fn lag(world: &World) -> u64 {
    let mut lag = 0;
    for topic in TOPICS {
        let progress = world.bus.group(&topic.parse().unwrap(), &GROUP.parse().unwrap()).await;
        lag += progress.map_or(0, |progress| progress.lag);
    }
    lag
}

/// A client that comes last gets every event that no client acked.
async fn collect(world: &World, ledger: &Shared) {
    let mut last = world.ws().await;
    last.subscribe("**", GROUP, json!({"from": "earliest", "maxInFlight": 1_000})).await;
    let published = std::mem::take(&mut ledger.lock().unwrap().published);
    let (acked, missing): (Vec<_>, Vec<_>) = published.into_iter().partition(|(_, acked)| *acked);
    let acked: BTreeSet<String> = acked.into_iter().map(|(id, _)| id).collect();
    let mut missing: BTreeSet<String> = missing.into_iter().map(|(id, _)| id).collect();
    eprintln!("{} events were acked, {} were not", acked.len(), missing.len());
    while !missing.is_empty() {
        let frame = tokio::select! {
            biased;
            frame = last.next() => frame,
            // Each event counts until it is acked, and it is acked after it was seen here.
            lag = lag(world) => {
                assert_ne!(lag, 0, "these are lost: {missing:?}");
                // Some events wait for a backoff.
                world.advance(100);
                tokio::task::yield_now().await;
                continue;
            }
        };
        assert_eq!(frame["op"], "EVENT", "{frame}");
        let id = frame["event"]["id"].as_str().unwrap();
        assert!(!acked.contains(id), "{id} was acked for good and is delivered again");
        missing.remove(id);
        last.send(super::client::about("ACK", &frame)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_clients_do_nothing_is_lost() {
    for seed in seeds("CLIENTS", 3, &[], 2) {
        eprintln!("CLIENTS_SEED={seed}");
        let kind = if seed % 2 == 0 { StoreKind::Memory } else { StoreKind::Embedded };
        // Time jumps, and a client that does not read its socket does not answer pings.
        let options = GatewayOptions { ping_every_ms: 1 << 40, ..GatewayOptions::default() };
        let world = Arc::new(World::over(kind, options).await);
        let ledger = Shared::default();
        let mut acting = tokio::task::JoinSet::new();
        for n in 0..CLIENTS {
            acting.spawn(act(world.clone(), seed * 1_000 + n, ledger.clone()));
        }
        soon("the clients are done", acting.join_all()).await;
        soon("everything is accounted for", collect(&world, &ledger)).await;
        Arc::into_inner(world).unwrap().stop().await;
    }
}
