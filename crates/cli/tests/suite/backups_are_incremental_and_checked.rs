//! What a backup fetches, what `verify` and `restore` find in a damaged one, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use promethean_testkit::SeededRng;
use serde_json::{Value, json};

use super::running_server::RunningServer;
use super::{promethean, stderr, stdout};

fn parsed(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_str(&stdout(output)).unwrap()
}

fn backup(server: &RunningServer, dir: &Path, to: &str) -> Value {
    parsed(&promethean(dir, &["backup", to, "--json", "--url", &server.url()]))
}

/// Publishes events of about a kilobyte. The topic has segments of 128 KiB.
fn publish(server: &RunningServer, topic: &str, count: usize) {
    let line = json!({"payload": {"text": "x".repeat(1000)}}).to_string();
    for _ in 0..count / 100 {
        server.ask("POST", &format!("/publish/{topic}/batch"), &vec![line.as_str(); 100].join("\n"));
    }
}

fn filled(dir: &Path) -> RunningServer {
    let server = RunningServer::start(dir, &["--data", "data"]);
    server.ask("PUT", "/topics/orders", r#"{"retention":{"bytes":1048576}}"#);
    publish(&server, "orders", 400);
    server.ask("POST", "/publish/notes", r#"{"a":1}"#);
    server
}

fn point(dir: &Path, number: u32) -> Value {
    let text = fs::read_to_string(dir.join(format!("points/{number:08}.json"))).unwrap();
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

fn files(point: &Value) -> Vec<&Value> {
    point["files"].as_array().unwrap().iter().collect()
}

/// All files of a backup that a point needs.
fn needed(root: &Path, number: u32) -> Vec<PathBuf> {
    let point = point(root, number);
    let mut hashes: Vec<String> = Vec::new();
    let lists = files(&point).into_iter().map(|file| &file["pieces"]).chain([&point["state"]]);
    for list in lists {
        hashes.extend(list.as_array().unwrap().iter().map(|hash| hash.as_str().unwrap().to_owned()));
    }
    let pieces = hashes.iter().map(|hash| root.join("pieces").join(&hash[..2]).join(hash));
    let mut paths: Vec<PathBuf> = pieces.filter(|path| fs::metadata(path).unwrap().len() > 0).collect();
    paths.push(root.join(format!("points/{number:08}.json")));
    paths.push(root.join("BACKUP"));
    paths
}

fn flip(path: &Path, at: u64, bit: u64) {
    let mut bytes = fs::read(path).unwrap();
    let at = (at % bytes.len() as u64) as usize;
    bytes[at] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_second_backup_fetches_only_what_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("backup");
    let server = filled(dir.path());
    let first = backup(&server, dir.path(), "backup");
    assert_eq!((&first["complete"], &first["point"], &first["topics"]), (&json!(true), &json!(1), &json!(2)));
    assert_eq!((&first["events"], &first["fetched_files"]), (&json!(401), &first["files"]));
    publish(&server, "orders", 200);
    let second = backup(&server, dir.path(), "backup");
    assert_eq!((&second["point"], &second["events"]), (&json!(2), &json!(601)));

    let (one, two) = (point(&root, 1), point(&root, 2));
    let same = |file: &&Value| {
        files(&one).iter().any(|old| old["file"] == file["file"] && old["pieces"] == file["pieces"])
    };
    let kept = files(&two).into_iter().filter(same).count() as u64;
    let sealed = |file: &&&Value| file["file"].as_str().unwrap().ends_with(".seg") && same(file);
    assert!(files(&two).iter().filter(sealed).count() >= 3, "{two}");
    assert_eq!(second["fetched_files"], second["files"].as_u64().unwrap() - kept);

    // Each point restores to what it was.
    for (number, events) in [(1, 401), (2, 601)] {
        let (to, at) = (format!("restored-{number}"), number.to_string());
        let args = ["restore", "backup", "--data", &to, "--point", &at, "--json"];
        let restored = parsed(&promethean(dir.path(), &args));
        assert_eq!((&restored["topics"], &restored["events"]), (&json!(2), &json!(events)), "{restored}");
        let copy = RunningServer::start(dir.path(), &["--data", &to]);
        let topic: Value = serde_json::from_str(&copy.ask("GET", "/topics/orders", "")).unwrap();
        assert_eq!(topic["end"], events - 1);
        assert_eq!(topic["settings"]["retention"]["bytes"], 1_048_576);
        publish(&copy, "orders", 100);
        copy.stop();
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found_and_refused_and_the_next_backup_mends_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("backup");
    let server = filled(dir.path());
    backup(&server, dir.path(), "backup");
    let clean = promethean(dir.path(), &["verify", "backup"]);
    assert!(clean.status.success() && stdout(&clean).contains("everything fits"), "{}", stdout(&clean));
    let mut rng = SeededRng::new(7);
    for path in needed(&root, 1) {
        let (at, bit) = (rng.range(0..1 << 40), rng.range(0..8));
        let what = format!("{} byte {at} bit {bit}", path.display());
        flip(&path, at, bit);
        let found = promethean(dir.path(), &["verify", "backup", "--json"]);
        assert_eq!(found.status.code(), Some(1), "{what}: {}", stdout(&found));
        let restored = promethean(dir.path(), &["restore", "backup", "--data", "restored"]);
        assert!(matches!(restored.status.code(), Some(1 | 2)), "{what}: {}", stdout(&restored));
        assert!(!dir.path().join("restored").exists(), "{what}");
        flip(&path, at, bit);
    }
    // The damage is named by topic, offsets and file.
    let point_one = point(&root, 1);
    let segment = files(&point_one).into_iter().find(|file| file["to"].as_u64() > Some(100)).unwrap();
    let hash = segment["pieces"][0].as_str().unwrap();
    flip(&root.join("pieces").join(&hash[..2]).join(hash), 77, 3);
    let found = promethean(dir.path(), &["verify", "backup", "--json"]);
    let report: Value = serde_json::from_str(&stdout(&found)).unwrap();
    let damage = &report["damage"][0];
    assert_eq!((&damage["file"], &damage["topic"]), (&segment["file"], &json!("orders")), "{report}");
    assert_eq!((&damage["from_offset"], &damage["to_offset"]), (&segment["from"], &segment["to"]));
    let said = promethean(dir.path(), &["verify", "backup"]);
    assert!(stdout(&said).contains("topic `orders` offsets"), "{}", stdout(&said));
    // The next backup fetches the damaged piece again, and both points are whole.
    assert_eq!(backup(&server, dir.path(), "backup")["point"], 2);
    let mended = promethean(dir.path(), &["verify", "backup"]);
    assert!(mended.status.success(), "{}", stdout(&mended));
}

#[test]
fn what_cannot_work_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let server = filled(dir.path());
    let url = server.url();
    let run = |args: &[&str], code: i32, said: &str| {
        let output = promethean(dir.path(), args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}{}", stdout(&output), stderr(&output));
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
    };
    backup(&server, dir.path(), "backup");
    fs::create_dir(dir.path().join("full")).unwrap();
    fs::write(dir.path().join("full/file"), "mine").unwrap();
    run(&["backup", "full", "--url", &url], 2, "name a new or empty directory");
    run(&["restore", "backup", "--data", "full"], 1, "nothing is overwritten");
    run(&["restore", "backup", "--data", "data"], 1, "nothing is overwritten");
    run(&["restore", "full", "--data", "new"], 2, "is not a backup");
    run(&["restore", "none", "--data", "new"], 2, "is not a backup");
    run(&["restore", "backup", "--data", "new", "--point", "9"], 2, "choose one of: 1");
    run(&["verify", "backup", "--repair"], 2, "cannot be repaired");
    run(&["verify", "full"], 2, "is not a data directory");
    run(&["backup", "other", "--url", "http://127.0.0.1:9"], 3, "no server at");
    assert!(!dir.path().join("new").exists());
    assert_eq!(fs::read_dir(dir.path().join("full")).unwrap().count(), 1, "it was not touched");

    // One backup is read at a time, and the next can be taken when it has ended.
    let begun: Value = serde_json::from_str(&server.ask("POST", "/admin/backups", "")).unwrap();
    run(&["backup", "backup", "--url", &url], 1, "backup_running");
    let id = begun["backup"].as_str().unwrap();
    assert!(
        server
            .answer("GET", &format!("/admin/backups/{id}/piece?file=x&piece=0"), "")
            .contains("unknown_backup")
    );
    assert!(
        server
            .answer("GET", &format!("/admin/backups/{id}/piece?file=manifest&piece=9"), "")
            .contains(" 404 ")
    );
    assert!(server.answer("GET", &format!("/admin/backups/{id}/state?after=zz"), "").contains("bad_request"));
    assert!(server.answer("GET", &format!("/admin/backups/{id}/state?after=09"), "").contains("bad_request"));
    assert!(fs::read_dir(dir.path().join("data/backup")).unwrap().count() > 0);
    server.ask("DELETE", &format!("/admin/backups/{id}"), "");
    assert_eq!(fs::read_dir(dir.path().join("data/backup")).unwrap().count(), 0, "nothing stays staged");
    assert!(server.answer("DELETE", &format!("/admin/backups/{id}"), "").contains("unknown_backup"));
    assert_eq!(backup(&server, dir.path(), "backup")["point"], 2);
    server.stop();

    let memory = RunningServer::in_memory(dir.path(), &[]);
    run(&["backup", "memory", "--url", &memory.url()], 1, "not_offered");
}
