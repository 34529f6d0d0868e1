//! A client costs little while its server is away, and its memory does not grow with the events that pass.
//!
//! `CLIENT_MEMORY_EVENTS=n` asks for more events.

use std::process::Command;
use std::time::Duration;

use promethean_client::{Client, StartFrom};
use tokio::net::TcpListener;

use super::super::running_server::RunningServer;

const EVENTS: u64 = 60_000;
const PART: u64 = 20_000;
/// How much more memory the last part may need than the first.
const GROWTH_MB_MAX: f64 = 8.0;
const CHILD: &str = "CLIENT_MEMORY_SERVER";

/// Processor time of this thread so far. The runtime of the test runs all tasks of the client on it.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_server_that_is_away_costs_next_to_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::builder(&url).max_queued(100, 1 << 20).on_error(|_| {}).build().unwrap();
    let sent: Vec<_> = (0..100).map(|n| client.publish("t", &n).send().unwrap()).collect();
    let waiting = client.publish("t", &100);
    let before = processor_time();
    let waited = tokio::time::timeout(Duration::from_secs(5), waiting).await;
    let cost = processor_time() - before;
    assert!(waited.is_err(), "there is no server");
    assert!(cost < Duration::from_millis(100), "{cost:?} in 5 s");
    assert_eq!(client.pending_publishes(), 100);
    assert_eq!(client.publish("t", &0).send().unwrap_err().code(), "outbox_full");
    client.close_within(Duration::ZERO).await.unwrap_err();
    for pending in sent {
        let error = pending.await.unwrap_err();
        assert_eq!((error.code(), error.has_no_side_effects()), ("client_closed", true));
    }
}

/// The resident memory of this process.
fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1_000.0
}

/// Publishes and handles events, part after part; returns the memory after each part.
async fn pass_events(url: &str, events: u64) -> Vec<f64> {
    let client = Client::new(url).unwrap();
    let mut leases = client.subscribe::<String>("t", "g").from(StartFrom::Earliest).leases().await.unwrap();
    let (payload, mut resident) = ("x".repeat(100), Vec::new());
    for _ in 0..events / PART {
        let publishing = async {
            for _ in 0..PART {
                client.room().await;
                // The answer is not awaited: every event is seen below.
                drop(client.publish("t", &payload).send().unwrap());
            }
        };
        let consuming = async {
            for _ in 0..PART {
                let lease = leases.next().await.unwrap().unwrap();
                drop(lease.ack());
            }
        };
        tokio::join!(publishing, consuming);
        resident.push(resident_mb());
    }
    drop(leases);
    client.close().await.unwrap();
    resident
}

#[tokio::test]
async fn memory_does_not_grow_with_the_events_that_pass() {
    let events = std::env::var("CLIENT_MEMORY_EVENTS").ok().and_then(|events| events.parse().ok());
    let events = events.unwrap_or(EVENTS);
    if let Ok(url) = std::env::var(CHILD) {
        let resident = pass_events(&url, events).await;
        let (first, last) = (resident[0], resident[resident.len() - 1]);
        assert!(last < first + GROWTH_MB_MAX, "MB after each {PART} events: {resident:?}");
        return;
    }
    // A process of its own: the memory of this one belongs to all tests.
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::in_memory(dir.path(), &[]);
    let name = "suite::client::costs_are_bounded::memory_does_not_grow_with_the_events_that_pass";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--test-threads", "1"]).env(CHILD, server.url());
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
