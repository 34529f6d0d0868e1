//! Projectors of the examples, the commands that read their state, and a server that is killed many times.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use super::running_server::RunningServer;
use super::{own_address, promethean, stderr, stdout, until};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn example(name: &str) -> String {
    examples().join(name).to_str().unwrap().to_owned()
}

fn beat(pid: u64) -> String {
    json!({"pid": pid, "name": "svc", "host": "h1", "cpu_pct": 1, "mem_mb": 2}).to_string()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A heartbeat is published, and its projector writes the process that it is about.
#[test]
fn a_heartbeat_becomes_a_process() {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", &example("processes.toml")]);
    server.ask(
        "POST",
        "/publish/heartbeat.received",
        r#"{"pid":1,"name":"stt","host":"local","cpu_pct":1,"mem_mb":2}"#,
    );
    until("the projector's cursor", || {
        let lag = parsed(&server.ask("GET", "/lag?topic=heartbeat.received&group=process-projector", ""));
        (lag["floor"] == 1).then_some(())
    });
    let list = until("the process", || {
        let list = parsed(&server.ask("GET", "/list?status=alive&host=local", ""));
        (list["count"] == 1).then_some(list)
    });
    assert_eq!(list["items"][0]["processId"], "local:stt:1");
    let host = parsed(&server.ask("GET", "/collections/host_stats/snap/local", ""));
    assert_eq!(host["seen"], 1);
    let url = server.url();
    let said = |args: &[&str]| {
        let mut all = args.to_vec();
        all.extend(["--server", &url]);
        promethean(dir.path(), &all)
    };
    assert_eq!(parsed(&stdout(&said(&["at", "process.state", "local:stt:1"])))["status"], "alive");
    let before = said(&["at", "process.state", "local:stt:1", "--at", "1h ago"]);
    assert_eq!(before.status.code(), Some(5), "{}", stderr(&before));
    let listed = stdout(&said(&["collections", "list"]));
    assert!(listed.contains("processes (default)") && listed.contains("(host, name) (status)"), "{listed}");
    assert_eq!(parsed(&stdout(&said(&["collections", "get", "processes", "local:stt:1"])))["pid"], 1);
    assert_eq!(said(&["collections", "get", "processes", "none"]).status.code(), Some(5));
    let refused = said(&["collections", "query", "processes", "color=red"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("unknown_field"), "{}", stderr(&refused));
    assert!(stderr(&said(&["collections", "drop", "processes"])).contains("collection_in_use"));
    let replay = ["replay", "--from", "process.state", "--to", "copies", "--resume", "place.json"];
    assert_eq!(parsed(&stdout(&said(&replay)))["published"], 1);
    server.ask("POST", "/publish/heartbeat.received", &beat(2));
    until("the second", || {
        (parsed(&server.ask("GET", "/topics/process.state", ""))["end"] == 2).then_some(())
    });
    let again = parsed(&stdout(&said(&replay)));
    assert_eq!(
        (again["read"].clone(), again["published"].clone()),
        (json!(1), json!(1)),
        "it continues where it stopped"
    );
    let other = said(&["replay", "--from", "copies", "--to", "more", "--resume", "place.json"]);
    assert!(stderr(&other).contains("name another file"), "{}", stderr(&other));
    let failing = said(&["replay", "--from", "process.state", "--to", "x", "--map", "error(\"no\")"]);
    assert!(stderr(&failing).contains("--map at offset 0"), "{}", stderr(&failing));
}

#[test]
fn the_changelog_example_keeps_the_same_collection() {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", &example("processes-changelog.toml")]);
    let state = json!({"processId": "a", "name": "n", "host": "h", "pid": 1, "cpu_pct": 1, "mem_mb": 2,
        "last_seen_ts": 5, "status": "alive"});
    server.ask("POST", "/publish/process.state?key=a", &state.to_string());
    let doc = until("the document", || {
        let list = parsed(&server.ask("GET", "/list", ""));
        list["items"].get(0).cloned()
    });
    assert_eq!((doc["_key"].clone(), doc["status"].clone()), (json!("a"), json!("alive")));
    server.ask("POST", "/publish/process.state?key=a", r#"null"#);
    until("the document goes", || (parsed(&server.ask("GET", "/list", ""))["count"] == 0).then_some(()));
    let groups = server.ask("GET", "/groups", "");
    assert!(groups.contains("changelog:processes"), "{groups}");
}

#[test]
fn dev_prints_a_guide_and_has_a_sample_service() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_promethean"));
    command.current_dir(dir.path()).args(["dev", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
    let mut child = Killed(command.stdin(Stdio::null()).spawn().unwrap());
    let mut out = BufReader::new(child.0.stdout.take().unwrap());
    let mut guide = String::new();
    while !guide.contains("/publish/heartbeat.received") {
        assert!(out.read_line(&mut guide).unwrap() > 0, "{guide}");
    }
    let address = guide.split_once("listens on ").unwrap().1.split_once(';').unwrap().0;
    assert!(guide.contains(&format!("curl http://{address}/snap/local:stt:1234")), "{guide}");
    let state = until("the sample service", || get(address.parse().unwrap(), "/snap/local:stt:1234"));
    assert_eq!((state["status"].clone(), state["pid"].clone()), (json!("alive"), json!(1234)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it leaves nothing behind");
}

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of an answer with 200.
fn get(address: SocketAddr, path: &str) -> Option<Value> {
    send(address, "GET", path, "", "")
}

fn send(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| serde_json::from_str(body).ok()).flatten()
}

/// How often the server is killed; `PROMETHEAN_KILLS` sets another number.
fn kills() -> u64 {
    std::env::var("PROMETHEAN_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(6)
}

/// The server is killed under load: `seen` counts each event once, and a rebuild gives the same.
#[test]
fn a_killed_server_counts_each_event_once() {
    let dir = tempfile::tempdir().unwrap();
    let address = own_address();
    let spawn = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_promethean"));
        command.current_dir(dir.path()).args(["serve", "--listen", &address.to_string(), "--data", "data"]);
        command.args(["--config", &example("processes.toml")]);
        let server = Killed(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        until("the server is ready", || get(address, "/ready"));
        server
    };
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut server = spawn();
    std::thread::scope(|scope| {
        for publisher in 0..4_u64 {
            let (stop, acknowledged) = (&stop, &acknowledged);
            scope.spawn(move || {
                let mut n = 0_u64;
                // It ends only after an acknowledgement: an event whose answer a kill took away may be in the log.
                while !stop.load(Ordering::Relaxed) {
                    let id = format!("x-event-id: {:08x}-0000-4000-8000-{n:012x}\r\n", publisher);
                    // The same id until it is acknowledged.
                    while send(address, "POST", "/publish/heartbeat.received", &id, &beat(n % 50)).is_none() {
                    }
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                    n += 1;
                }
            });
        }
        for kill in 0..kills() {
            let before = acknowledged.load(Ordering::Relaxed);
            until("some load", || {
                (acknowledged.load(Ordering::Relaxed) > before + 20 + kill % 7 * 10).then_some(())
            });
            drop(std::mem::replace(&mut server, Killed(Command::new("true").spawn().unwrap())));
            server = spawn();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let count = acknowledged.load(Ordering::Relaxed);
    let end = |topic: &str| get(address, &format!("/topics/{topic}")).and_then(|info| info["end"].as_u64());
    until("all states", || (end("process.state") == Some(count)).then_some(()));
    let seen = until("all counted", || {
        let seen = get(address, "/collections/host_stats/snap/h1")?["seen"].as_u64()?;
        (seen >= count).then_some(seen)
    });
    assert_eq!((seen, end("heartbeat.received")), (count, Some(count)));
    send(address, "POST", "/projectors/processes.txn/rebuild", "", "").unwrap();
    let rebuilt = until("the rebuild", || {
        let status = get(address, "/projectors")?;
        let of = status["projectors"].as_array()?.iter().find(|one| one["name"] == "processes.txn")?.clone();
        (of["rebuild"]["running"] == false).then(|| of["rebuild"].clone())
    });
    assert_eq!(rebuilt["equal"], true, "{rebuilt}");
    assert_eq!(get(address, "/collections/host_stats/snap/h1").unwrap()["seen"], count);
}

#[test]
fn wrong_projectors_stop_the_server_at_its_start() {
    let dir = tempfile::tempdir().unwrap();
    let serve = |config: &str| {
        std::fs::write(dir.path().join("c.toml"), config).unwrap();
        let output = promethean(
            dir.path(),
            &["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--config", "c.toml"],
        );
        assert_eq!(output.status.code(), Some(2), "{config}");
        stderr(&output)
    };
    let projector = |more: &str| format!("[[projectors]]\nname = \"p\"\ntopic = \"t\"\n{more}\n");
    for (config, said) in [
        (projector("program = '.a |'"), "projector `p`: `program`: expected"),
        (projector(""), "no `program`"),
        (projector("program = 'empty'\nprogram_file = 'x'"), "give one of them"),
        (projector("program = 'empty'\ncollections = ['c']"), "declare that"),
        (projector("program = 'empty'\nevery = '5s'"), "belong together"),
        (projector("program = 'empty'\nbatches = 5"), "`batches` is not known here"),
        ("[collections.c]\nindexes = [['a']]\n".to_owned(), "declare that field"),
        ("[collections.c]\nfields = { a = 'text' }\n".to_owned(), "`text` is not possible here"),
        ("[collections.c]\ndefault = true\n[collections.d]\ndefault = true\n".to_owned(), "both the default"),
        (
            "[[changelogs]]\ntopic = 't'\ncollection = 'c'\nkey = '.['\n[collections.c]\n".to_owned(),
            "changelog of `c`: `key`: expected",
        ),
        ("[reducers]\nt = '.x |'\n".to_owned(), "the reducer of `t`"),
    ] {
        let error = serve(&config);
        assert!(error.contains(said), "{config}\n{error}");
    }
}
