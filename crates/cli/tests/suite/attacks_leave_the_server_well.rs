//! Clients that ask for as much as they can, against a server process. Under each attack the memory of the process stays below a
//! bound, and `/health` is answered in time.
//!
//! `PROMETHEAN_ATTACK_ROUNDS=n` repeats each attack n times.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::running_server::RunningServer;
use super::{promethean, stdout, until};

/// The longest time that `/health` may take on a machine that does other work too. Each of the attacks once stopped it for longer,
/// or for good.
const HEALTH_MAX: Duration = Duration::from_secs(3);

fn rounds() -> usize {
    std::env::var("PROMETHEAN_ATTACK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// A field of `/proc/PID/status`, in MiB.
fn memory_mib(server: &RunningServer, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Asks for `/health` until `over`, and returns the longest time that an answer took.
#[expect(clippy::disallowed_methods, reason = "measures another process")]
fn watch_health<'scope>(
    scope: &'scope Scope<'scope, '_>,
    server: &'scope RunningServer,
    over: &'scope AtomicBool,
) -> ScopedJoinHandle<'scope, Duration> {
    scope.spawn(move || {
        let mut longest = Duration::ZERO;
        while !over.load(Ordering::Relaxed) {
            let asked = Instant::now();
            server.ask("GET", "/health", "");
            longest = longest.max(asked.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        longest
    })
}

/// Runs an attack against a server, which then takes an event. Its memory may grow by `grows_mib`.
fn attack(name: &str, grows_mib: u64, server: &RunningServer, run: impl Fn(&RunningServer)) {
    under_watch(name, grows_mib, server, run);
    server.ask("POST", "/publish/after.the.attack", "1");
}

fn under_watch(name: &str, grows_mib: u64, server: &RunningServer, run: impl Fn(&RunningServer)) {
    let before = memory_mib(server, "VmHWM");
    for _ in 0..rounds() {
        let over = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            let watch = watch_health(scope, server, &over);
            let attacked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(server)));
            over.store(true, Ordering::Relaxed);
            let longest = watch.join().unwrap();
            attacked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            longest
        });
        let grown = memory_mib(server, "VmHWM") - before;
        eprintln!("{name}: memory grew by {grown} MiB, the slowest /health took {longest:?}");
        assert!(grown <= grows_mib, "{name}: memory grew by {grown} MiB");
        assert!(longest <= HEALTH_MAX, "{name}: /health took {longest:?}");
    }
}

fn server(dir: &Path, config: &str) -> RunningServer {
    std::fs::write(dir.join("config.toml"), config).unwrap();
    RunningServer::start(dir, &["--config", "config.toml"])
}

#[test]
fn schemas_that_double_the_ways_with_each_level() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), "");
    let node = json!({"type": "object", "required": ["left"], "properties": {"left": {"$ref": "#"}}});
    let schema = json!({"oneOf": [node, node, {"type": "null"}]}).to_string();
    server.ask("POST", "/schemas/trees", &schema);
    let payload = (0..60).fold("1".to_owned(), |inner, _| format!(r#"{{"left":{inner}}}"#));
    attack("doubling schema", 128, &server, |server| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let published = server.answer("POST", "/publish/trees", &payload);
                        assert!(published.contains("schema_rejected"), "{published}");
                        let tried = server.answer("POST", "/schemas/trees/validate", &payload);
                        assert!(tried.starts_with("HTTP/1.0 200") || tried.contains("schema_"), "{tried}");
                    }
                });
            }
        });
    });
}

#[test]
fn bodies_that_never_end() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), "");
    let part = vec![b'1'; 1 << 20];
    // All together want 1.2 GiB; the server keeps 256 MiB of bodies, and refuses the others.
    attack("unfinished bodies", 400, &server, |server| {
        let mut open = Vec::new();
        for _ in 0..100 {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            let head = "POST /publish/large/batch HTTP/1.1\r\nhost: localhost\r\n";
            let head =
                format!("{head}content-type: application/x-ndjson\r\ncontent-length: 16000000\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            // The server may stop reading, or close the connection; both are its right.
            let _refused = (0..12).try_for_each(|_| stream.write_all(&part));
            open.push(stream);
        }
    });
}

#[test]
fn plain_connections_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), "");
    attack("plain connections", 96, &server, |server| {
        let mut open: Vec<TcpStream> = Vec::new();
        for count in 0..3_000 {
            open.push(TcpStream::connect(server.address()).unwrap());
            if count % 10 == 0 {
                server.ask("POST", "/publish/beside", "1");
            }
            if open.len() > 600 {
                open.remove(0);
            }
        }
    });
}

async fn web_socket(address: &str) -> WebSocketStream<tokio::net::TcpStream> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    tokio_tungstenite::client_async(format!("ws://{address}/"), stream).await.unwrap().0
}

#[test]
fn messages_in_fragments_that_never_end() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), "");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // All together want 960 MiB; the server keeps 256 MiB of messages, and closes the other connections.
    attack("unfinished messages", 400, &server, |server| {
        runtime.block_on(async {
            let mut open = Vec::new();
            for _ in 0..80 {
                let mut socket = web_socket(server.address()).await;
                for part in 0..12 {
                    let kind =
                        if part == 0 { OpCode::Data(Data::Text) } else { OpCode::Data(Data::Continue) };
                    let frame = Message::Frame(Frame::message(vec![b'1'; 1 << 20], kind, false));
                    let sent = tokio::time::timeout(Duration::from_millis(500), socket.send(frame)).await;
                    // The server may stop reading, or close the connection.
                    if !matches!(sent, Ok(Ok(()))) {
                        break;
                    }
                }
                open.push(socket);
            }
        });
    });
}

/// Publishes one event with a token, and returns the whole answer.
fn publish_as(server: &RunningServer, token: &str, topic: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let head =
        format!("POST /publish/{topic} HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n");
    write!(stream, "{head}content-type: application/json\r\ncontent-length: 1\r\n\r\n1").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn topics_that_one_token_makes_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = "[limits.events]\ntopics_max = 1_000\n".to_owned();
    for (token, scope) in [("greedy", "publish:**"), ("other", "publish:**"), ("operator-token", "admin")] {
        let hash = stdout(&promethean(dir.path(), &["token", "hash", token]));
        config += &format!(
            "[[auth.tokens]]\nname = \"{token}\"\nscopes = [\"{scope}\"]\nsha256 = \"{}\"\n",
            hash.trim()
        );
    }
    let server = server(dir.path(), &config);
    assert!(publish_as(&server, "other", "mine").contains(" 200 "));
    under_watch("topics without end", 128, &server, |server| {
        std::thread::scope(|scope| {
            for part in 0..4 {
                scope.spawn(move || {
                    let answers =
                        (0..300).map(|n| publish_as(server, "greedy", &format!("greedy.{part}.{n}")));
                    let answers: Vec<String> = answers.collect();
                    let last = answers.last().unwrap();
                    assert!(last.contains("too_many_topics"), "{last}");
                });
            }
        });
    });
    assert!(server.ask("GET", "/health", "").contains(r#""topics_scarce":true"#));
    // Topics that exist are published to, and the operator can make new ones.
    assert!(publish_as(&server, "other", "mine").contains(" 200 "));
    let made = publish_as(&server, "operator-token", "needed");
    assert!(made.contains(" 200 "), "{made}");
}

/// Makes groups of one topic over one WebSocket.
async fn make_groups(address: &str, count: usize) {
    let mut socket = web_socket(address).await;
    for group in 0..count {
        for op in ["SUBSCRIBE", "UNSUBSCRIBE"] {
            let frame = json!({"op": op, "topic": "busy", "group": format!("g{group:05}"), "corr": group});
            socket.feed(Message::text(frame.to_string())).await.unwrap();
        }
        if group % 50 == 49 || group + 1 == count {
            socket.flush().await.unwrap();
            // Every 50 groups have 100 answers, so the server is never far behind.
            let mut answers = 2 * (group % 50 + 1);
            while answers > 0 {
                let frame = socket.next().await.unwrap().unwrap();
                answers -= usize::from(frame.is_text());
            }
        }
    }
}

#[test]
fn listings_of_thousands_of_groups_and_topics() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), "");
    server.ask("POST", "/publish/busy", "1");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(make_groups(server.address(), 3_000));
    for topics in 0..20 {
        let names = (0..250).map(|topic| format!(r#"{{"topic":"many.t{topics}-{topic}","payload":1}}"#));
        let events: Vec<String> = names.collect();
        let frame = format!(r#"{{"op":"PUBLISH","events":[{}],"corr":1}}"#, events.join(","));
        runtime.block_on(async {
            let mut socket = web_socket(server.address()).await;
            socket.send(Message::text(frame)).await.unwrap();
            let answer = socket.next().await.unwrap().unwrap().into_text().unwrap();
            assert!(answer.contains(r#""op":"OK""#), "{answer}");
        });
    }
    attack("listings", 128, &server, |server| {
        std::thread::scope(|scope| {
            for path in ["/groups", "/ops", "/cursors?topic=busy", "/topics?limit=1000"] {
                scope.spawn(move || {
                    for _ in 0..20 {
                        server.ask("GET", path, "");
                    }
                });
            }
        });
    });
}

/// Payloads that make one program search without end, keep as much as it can, and match as often as it can.
const COSTLY: &str = r#"
[collections.c]
fields = {}

[[projectors]]
name = "p"
topic = "work"
collections = ["c"]
on_failure = "dead_letter"
program = '''
.payload.text as $text
| if .payload.kind == "loop" then [range(1e12)]
  elif .payload.kind == "search" then $text | test("(a?){400}b") | empty
  elif .payload.kind == "keep" then [range(20000) | $text + "."] | length | empty
  elif .payload.kind == "replace" then $text | gsub("(?<x>a)(?<y>a)?"; "\(.x)\(.y)") | empty
  elif .payload.kind == "split" then [range(1000) | $text | split("a"; "g")] | length | empty
  else {upsert: {collection: "c", key: "k", inc: {n: 1}}} end
'''
"#;

#[test]
fn payloads_on_which_a_program_never_ends() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), COSTLY);
    attack("costly programs", 600, &server, |server| {
        // The interpreter cannot end a search: its thread works on beside those of the next events.
        for (kind, bytes) in
            [("loop", 1), ("search", 1 << 18), ("keep", 60_000), ("replace", 60_000), ("split", 30_000)]
        {
            let payload = json!({"kind": kind, "text": "a".repeat(bytes)}).to_string();
            for _ in 0..if kind == "search" { 5 } else { 2 } {
                server.ask("POST", "/publish/work", &payload);
            }
        }
        server.ask("POST", "/publish/work", "{}");
        until("the projector goes on", || {
            server.ask("GET", "/lag?topic=work&group=p", "").contains(r#""lag":0"#).then_some(())
        });
    });
    assert!(server.ask("GET", "/collections/c/snap/k", "").contains(r#""n":"#));
    let letters = server.ask("GET", "/dlq?topic=work&group=p", "");
    for reason in ["took too long", "too large", "steps"] {
        assert!(letters.contains(reason), "{reason}: {letters}");
    }
    assert!(server.ask("GET", "/health", "").contains(r#""status":"ok""#));
}
