//! The example of a service in Rust.

#[path = "../../../../../examples/rust-service/service.rs"]
mod service;

use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use promethean_client::{Client, StartFrom, TypedEvent};
use promethean_testkit::until;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::super::running_server::RunningServer;

#[tokio::test]
async fn the_service_reports_itself_answers_each_alarm_once_and_closes_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--token", "secret"]);
    let url = server.url();
    let client = Client::builder(&url).token("secret").build().unwrap();
    for process in ["a", "b"] {
        client
            .publish("alarm.raised", &json!({"process": process, "last_seen_ts": 1}))
            .key(process)
            .await
            .unwrap();
    }
    let answers = || client.reader().replay::<Value>("alarm.answered", StartFrom::Earliest, 100);
    for _ in 0..2 {
        let (end, ended) = oneshot::channel::<()>();
        let service = service::run(&url, Some("secret".to_owned()), async { ended.await.unwrap_or(()) });
        let watch = async {
            let mut beats = client.reader().follow::<Value>("heartbeat.received", StartFrom::Latest);
            assert_eq!(beats.next().await.unwrap().unwrap().payload["name"], "rust-service");
            until("both alarms are answered", async || {
                answers().try_collect::<Vec<_>>().await.unwrap().len() == 2
            })
            .await;
            end.send(()).unwrap();
        };
        let (closed, ()) =
            tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(service, watch) })
                .await
                .unwrap();
        closed.unwrap();
    }
    let answers: Vec<TypedEvent<Value>> = answers().try_collect().await.unwrap();
    assert_eq!(answers.len(), 2, "each alarm is answered once");
    let mut processes: Vec<_> = answers.iter().map(|answer| answer.payload["process"].to_string()).collect();
    processes.sort_unstable();
    assert_eq!(processes, ["\"a\"", "\"b\""]);
    assert_eq!(answers[0].payload["answered_by"], "rust-service");
    client.close().await.unwrap();
}

#[tokio::test]
async fn the_command_of_the_example_starts_it_and_an_interrupt_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::in_memory(dir.path(), &[]);
    let client = Client::new(&server.url()).unwrap();
    client.publish("alarm.raised", &json!({"process": "a", "last_seen_ts": 1})).await.unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut service = Command::new(env!("CARGO"));
    service.current_dir(root).args([
        "run",
        "--quiet",
        "-p",
        "promethean-client",
        "--example",
        "rust-service",
    ]);
    service.env("PROMETHEAN_URL", server.url()).env_remove("PROMETHEAN_TOKEN").stdout(Stdio::piped());
    let service = service.spawn().unwrap();
    // The command builds the example first.
    let mut answers = client.reader().follow::<Value>("alarm.answered", StartFrom::Earliest);
    let answer =
        tokio::time::timeout(Duration::from_secs(600), answers.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(answer.payload, json!({"process": "a", "answered_by": "rust-service"}));
    let interrupted = Command::new("kill").args(["-INT", &service.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    let ended = tokio::task::spawn_blocking(move || service.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success() && said.ends_with("closed\n"), "{said}");
    client.close().await.unwrap();
}
