//! Backups under load, with kills of the server and of the command: every point that is complete restores to
//! exactly the events up to it, with the cursor of a group and the documents of a projector that fit them.
//!
//! `BACKUP_SEED=n` runs one seed, `BACKUP_ROUNDS=n` more rounds of each.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use promethean_model::{Clock, SystemClock};
use promethean_testkit::SeededRng;
use serde_json::{Value, json};

use super::running_server::RunningServer;
use super::{own_address, promethean, stderr, stdout, until};

const TOPIC: &str = "heartbeat.received";

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn config() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/processes.toml");
    path.to_str().unwrap().to_owned()
}

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(dir: &Path, args: &[&str], stdout: Stdio) -> Killed {
    let mut command = Command::new(env!("CARGO_BIN_EXE_promethean"));
    command.current_dir(dir).args(args).stdin(Stdio::null()).stderr(Stdio::null()).stdout(stdout);
    Killed(command.spawn().unwrap())
}

/// A server that keeps its address over kills.
struct LoadedServer<'a> {
    dir: &'a Path,
    address: SocketAddr,
    process: Option<Killed>,
}

impl LoadedServer<'_> {
    fn start(&mut self) {
        // The old process must be gone before the next one takes its lock.
        self.process = None;
        let (address, config) = (self.address.to_string(), config());
        let args = ["serve", "--listen", &address, "--data", "data", "--config", &config];
        self.process = Some(spawn(self.dir, &args, Stdio::null()));
        until("the server is ready", || ask(self.address, "GET", "/ready", "", ""));
    }
}

fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> Option<Value> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| serde_json::from_str(body).ok()).flatten()
}

/// What users know: for each acknowledged event its offset, its id, and when the answer came.
#[derive(Default)]
struct Acknowledged(Mutex<BTreeMap<u64, (String, i64)>>);

/// Publishes until told to stop; each event is tried until it is acknowledged.
fn publish(address: SocketAddr, publisher: u64, known: &Acknowledged, stop: &AtomicBool) {
    let clock = SystemClock::new();
    let mut n = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let id = format!("{publisher:08x}-0000-4000-8000-{n:012x}");
        let header = format!("x-event-id: {id}\r\n");
        let beat = json!({"pid": n % 50, "name": "svc", "host": "h1", "cpu_pct": 1, "mem_mb": 2}).to_string();
        let answer = loop {
            if let Some(answer) = ask(address, "POST", &format!("/publish/{TOPIC}"), &header, &beat) {
                break answer;
            }
        };
        let offset = answer["offset"].as_u64().unwrap();
        known.0.lock().unwrap().insert(offset, (id, clock.wall_ms()));
        n += 1;
    }
}

/// The ids of all events of the topic, by offset.
fn events(url: &str, dir: &Path) -> Vec<String> {
    let exported = promethean(dir, &["export", TOPIC, "--quiet", "--url", url]);
    assert!(exported.status.success(), "{}", stderr(&exported));
    let events: Vec<Value> = super::json_lines(&stdout(&exported));
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["offset"], at, "offsets have no holes");
    }
    events.into_iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
}

fn floor(address: SocketAddr) -> Option<u64> {
    ask(address, "GET", &format!("/lag?topic={TOPIC}&group=readers"), "", "")?["floor"].as_u64()
}

/// A point that the command said to be complete.
struct Complete {
    point: Value,
    /// The highest floor of the group that was seen before the point was taken, and a floor seen after it.
    floors: (u64, u64),
}

/// Takes backups while publishers, a group and a projector work, and kills one side or the other.
fn take_backups(server: &mut LoadedServer<'_>, rng: &mut SeededRng, rounds: u64) -> Vec<Complete> {
    let url = format!("http://{}", server.address);
    let mut complete = Vec::new();
    let mut seen: Vec<(i64, u64)> = Vec::new();
    let clock = SystemClock::new();
    for round in 0..rounds {
        seen.extend(floor(server.address).map(|floor| (clock.wall_ms(), floor)));
        let mut command = spawn(server.dir, &["backup", "backup", "--json", "--url", &url], Stdio::piped());
        let pause = Duration::from_millis(rng.range(0..120));
        match (round + 1 == rounds, rng.range(0..3)) {
            (false, 0) => {
                wait(pause);
                command.0.kill().unwrap();
            }
            (false, 1) => {
                wait(pause);
                server.start();
            }
            _ => {}
        }
        let mut text = String::new();
        std::io::Read::read_to_string(&mut command.0.stdout.take().unwrap(), &mut text).unwrap();
        command.0.wait().unwrap();
        if let Ok(point) = serde_json::from_str::<Value>(&text) {
            assert_eq!(point["complete"], true, "{point}");
            let taken = point["taken"].as_i64().unwrap();
            let before = seen.iter().filter(|(at, _)| *at < taken).map(|(_, floor)| *floor).max();
            let after = until("the group's progress", || floor(server.address));
            complete.push(Complete { point, floors: (before.unwrap_or(0), after) });
        }
    }
    complete
}

#[expect(clippy::disallowed_methods, reason = "a kill comes at any moment of another process")]
fn wait(pause: Duration) {
    std::thread::sleep(pause);
}

/// Restores a point and compares it with what users know.
fn check(dir: &Path, complete: &Complete, live: &[String], known: &Acknowledged, what: &str) {
    let number = complete.point["point"].to_string();
    let data = format!("restored-{number}");
    let restored =
        promethean(dir, &["restore", "backup", "--data", &data, "--point", &number, "--quiet", "--json"]);
    assert!(restored.status.success(), "{what}: {}", stderr(&restored));
    let report: Value = serde_json::from_str(&stdout(&restored)).unwrap();
    assert!(
        report["groups"].as_u64() >= Some(1) && report["collections"].as_u64() >= Some(2),
        "{what}: {report}"
    );
    let copy = RunningServer::start(dir, &["--data", &data, "--config", &config()]);
    let address: SocketAddr = copy.address().parse().unwrap();
    let events = events(&copy.url(), dir);
    // Exactly the events up to one point: a beginning of what the server has.
    assert_eq!(events[..], live[..events.len()], "{what}");
    let taken = complete.point["taken"].as_i64().unwrap();
    for (offset, (id, at)) in known.0.lock().unwrap().iter() {
        if *at < taken {
            assert_eq!(events.get(*offset as usize), Some(id), "{what}: acknowledged before the point");
        }
    }
    let floor = floor(address).unwrap();
    let (before, after) = complete.floors;
    assert!((before..=after).contains(&floor), "{what}: the group is at {floor}, not in {before}..={after}");
    assert!(floor <= events.len() as u64, "{what}");
    // Both projectors go on where their documents are: each event is published once more and counted once.
    let count = events.len() as u64;
    for (topic, projector) in [(TOPIC, "process-projector"), ("process.state", "processes.txn")] {
        until("the projectors", || {
            let lag = ask(address, "GET", &format!("/lag?topic={topic}&group={projector}"), "", "")?;
            (lag["floor"].as_u64()? >= count && lag["lag"] == 0).then_some(())
        });
    }
    let seen = ask(address, "GET", "/collections/host_stats/snap/h1", "", "").unwrap();
    assert_eq!(seen["seen"], count, "{what}");
    assert_eq!(ask(address, "GET", "/topics/process.state", "", "").unwrap()["end"], count, "{what}");
    let settings = ask(address, "GET", "/topics/settled", "", "").unwrap();
    assert_eq!(settings["settings"]["max_attempts"], 3, "{what}");
    let schema = ask(address, "GET", "/schemas/settled/1", "", "").unwrap();
    assert_eq!(schema["schema"]["type"], "object", "{what}: {schema}");
    copy.stop();
}

fn run(seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = SeededRng::new(seed);
    let mut server = LoadedServer { dir: dir.path(), address: own_address(), process: None };
    server.start();
    let (address, url) = (server.address, format!("http://{}", server.address));
    ask(address, "PUT", "/topics/settled", "", r#"{"max_attempts":3}"#).unwrap();
    ask(address, "POST", "/schemas/settled", "", r#"{"type":"object"}"#).unwrap();
    let (known, stop) = (Acknowledged::default(), AtomicBool::new(false));
    let mut complete = Vec::new();
    std::thread::scope(|scope| {
        for publisher in 0..3 {
            let (known, stop) = (&known, &stop);
            scope.spawn(move || publish(address, publisher, known, stop));
        }
        until("events", || (known.0.lock().unwrap().len() > 50).then_some(()));
        let args =
            ["sub", TOPIC, "--group", "readers", "--from", "earliest", "--url", &url, "--format", "json"];
        let _group = spawn(dir.path(), &args, Stdio::null());
        until("the group", || floor(address).filter(|floor| *floor > 0));
        complete = take_backups(&mut server, &mut rng, number("BACKUP_ROUNDS").unwrap_or(6));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(!complete.is_empty(), "seed {seed}: the last round kills nothing");
    let live = events(&url, dir.path());
    let whole = promethean(dir.path(), &["verify", "backup"]);
    assert!(whole.status.success(), "seed {seed}: {}", stdout(&whole));
    for point in complete.iter().rev().take(2) {
        check(dir.path(), point, &live, &known, &format!("seed {seed}, point {}", point.point["point"]));
    }
}

#[test]
fn complete_points_restore_exactly_what_was_acknowledged() {
    let fresh = SystemClock::new().wall_ms() as u64 % 1_000_000;
    println!("fresh seed {fresh}");
    match number("BACKUP_SEED") {
        Some(seed) => run(seed),
        None => [1, 2, fresh].into_iter().for_each(run),
    }
}
