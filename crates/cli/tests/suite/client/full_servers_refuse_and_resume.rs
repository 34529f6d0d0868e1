//! A server that is full or busy refuses by name and loses nothing; the client goes on when there is room.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Mutex};

use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use promethean_client::{Client, ClientError, EventId, EventToPublish, StartFrom};
use promethean_testkit::until;
use serde::{Deserialize, Serialize};

use super::super::running_server::RunningServer;
use super::{eventually, quick, until_lag};

#[derive(Debug, Serialize, Deserialize)]
struct Parcel {
    n: u64,
    text: String,
}

fn parcel(n: u64) -> Parcel {
    Parcel { n, text: "x".repeat(1_000) }
}

fn event_id(n: u64) -> EventId {
    EventId::from_bytes((1_u128 << 64 | u128::from(n)).to_be_bytes())
}

/// Offsets of confirmed events, by number.
type Confirmed = BTreeMap<u64, u64>;

/// Publishes until the server refuses, and returns the refusal.
async fn fill(client: &Client, confirmed: &mut Confirmed) -> ClientError {
    for n in confirmed.len() as u64..10_000 {
        match client.publish("t", &parcel(n)).id(event_id(n)).await {
            Ok(receipt) => drop(confirmed.insert(n, receipt.offset)),
            Err(error) => return error,
        }
    }
    panic!("the server was never full");
}

/// Every confirmed event is there once, at its offset, and nothing else is.
async fn check(client: &Client, confirmed: &Confirmed) {
    let events: Vec<_> =
        client.reader().replay::<Parcel>("t", StartFrom::Earliest, 1_000).try_collect().await.unwrap();
    let stored: Vec<_> = events.iter().map(|event| (event.payload.n, event.offset)).collect();
    assert_eq!(stored, confirmed.iter().map(|(n, offset)| (*n, *offset)).collect::<Vec<_>>());
}

fn assert_full(error: &ClientError) {
    let asked = (error.code(), error.is_retryable(), error.has_no_side_effects());
    assert_eq!(asked, ("storage_full", true, true), "{error:?}");
    assert!(error.advice().contains("free space"), "{}", error.advice());
}

/// Publishes what was refused, with its id, when there is room again; all of it is then handled.
async fn resume(client: &Client, confirmed: &mut Confirmed, handled: &Mutex<Vec<u64>>) {
    let n = confirmed.len() as u64;
    until("publishing resumes", async || match client.publish("t", &parcel(n)).id(event_id(n)).await {
        Ok(receipt) => confirmed.insert(n, receipt.offset).is_none(),
        Err(error) => error.code() != "storage_full",
    })
    .await;
    eventually("all is handled", || handled.lock().unwrap().len() == confirmed.len()).await;
    check(client, confirmed).await;
}

/// Handles the events of a group, and notes them.
async fn note(client: &Client) -> Arc<Mutex<Vec<u64>>> {
    let handled = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&handled);
    let subscription = client.subscribe::<Parcel>("t", "g").from(StartFrom::Earliest);
    let handling = subscription.handle(move |lease| {
        noted.lock().unwrap().push(lease.payload.n);
        async { Ok(()) }
    });
    handling.await.unwrap();
    handled
}

#[tokio::test]
async fn a_server_without_memory_goes_on_delivering_and_accepts_again_after_a_deletion() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("c.toml"), "memory_bytes = 200_000\n").unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let client = Client::new(&server.url()).unwrap();
    client.publish_many((0..50).map(|n| EventToPublish::new("ballast", &parcel(n)))).await.unwrap();
    let (handled, mut confirmed) = (note(&client).await, Confirmed::new());
    let error = fill(&client, &mut confirmed).await;
    assert_full(&error);
    assert!(error.message().contains("memory_bytes"), "{error}");
    let batch = (0..2).map(|_| EventToPublish::new("t", &parcel(99_999)));
    assert_full(&client.publish_many(batch).await.unwrap_err());
    eventually("what is there is handled", || handled.lock().unwrap().len() == confirmed.len()).await;
    until_lag(&client, "t", "g", 0).await;
    client.admin().delete_topic("ballast").await.unwrap();
    resume(&client, &mut confirmed, &handled).await;
    client.close().await.unwrap();
}

/// Starts a server whose data is on a file system of its own.
const ON_OWN_DISK: &str =
    r#"exec unshare -Urm sh -c 'mount -t tmpfs -o size=1g,mode=700 tmpfs data && exec "$0" "$@"' "$0" "$@""#;

/// Changes the size of the file system of a server.
fn resize(server: &RunningServer, data: &std::path::Path, size: &str) {
    let mut command = Command::new("nsenter");
    command.args(["--preserve-credentials", "-U", "-m", "-t", &server.id().to_string()]);
    command.args(["mount", "-o", &format!("remount,size={size}")]).arg(data);
    assert!(command.status().unwrap().success(), "{command:?}");
}

/// A machine without `unshare`, and without the right to use it, cannot run this; where all tests must run, that is a
/// failure.
fn can_mount() -> bool {
    let possible = Command::new("unshare").args(["-Urm", "true"]).output();
    let can_mount = possible.is_ok_and(|output| output.status.success());
    assert!(
        can_mount || std::env::var_os("CI").is_none(),
        "`unshare -Urm` must work where all tests must run"
    );
    can_mount
}

#[tokio::test]
async fn a_server_whose_disk_is_full_keeps_what_it_confirmed_and_resumes() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let server = RunningServer::limited(ON_OWN_DISK, dir.path(), &["--data", "data"]);
    let client = Client::new(&server.url()).unwrap();
    let mut confirmed = Confirmed::new();
    for n in 0..50 {
        let receipt = client.publish("t", &parcel(n)).id(event_id(n)).await.unwrap();
        confirmed.insert(n, receipt.offset);
    }
    resize(&server, &data, "300m");
    assert_full(&fill(&client, &mut confirmed).await);
    let handled = note(&client).await;
    eventually("what is there is handled", || handled.lock().unwrap().len() == confirmed.len()).await;
    until_lag(&client, "t", "g", 0).await;
    resize(&server, &data, "1g");
    resume(&client, &mut confirmed, &handled).await;
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_server_that_receives_as_much_as_it_may_is_tried_again_and_gets_each_event_once() {
    const MOST: usize = 16 << 20;
    let dir = tempfile::tempdir().unwrap();
    let limits = format!("[limits]\nreceiving_bytes = {MOST}\ntoken_receiving_bytes = {MOST}\n");
    std::fs::write(dir.path().join("c.toml"), limits).unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let client = quick(&server.url()).build().unwrap();
    client.connect().await.unwrap();
    let mut greedy = TcpStream::connect(server.address()).unwrap();
    let head =
        "POST /publish/greedy/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n";
    write!(greedy, "{head}content-length: {MOST}\r\n\r\n").unwrap();
    greedy.write_all(&vec![b' '; MOST - 50_000]).unwrap();
    until("the server receives as much as it may", async || {
        let metrics = server.ask("GET", "/metrics", "");
        let value = |line: &str| line.strip_prefix("receiving_bytes ")?.parse::<usize>().ok();
        metrics.lines().find_map(value).unwrap() > MOST - 100_000
    })
    .await;
    let mut states = client.watch_state();
    states.mark_unchanged();
    let large = "y".repeat(500_000);
    let sent: Vec<_> = (0..3).map(|_| client.publish("t", &large).send().unwrap()).collect();
    states.changed().await.unwrap();
    drop(greedy);
    let mut offsets: Vec<_> =
        try_join_all(sent).await.unwrap().into_iter().map(|receipt| receipt.offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, [0, 1, 2]);
    assert_eq!(client.reader().end("t").await.unwrap(), 3);
    client.close().await.unwrap();
}
