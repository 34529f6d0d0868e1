//! `promethean dlq`.

use promethean_client::{Client, StartFrom};
use serde_json::Value;

use super::super::json_lines;
use super::Shell;

/// Publishes events and gives each of them up.
fn give_up(shell: &Shell, count: usize) {
    let lines: String = (0..count).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    assert!(shell.run(&["pub", "a.b", "-q"], &lines).status.success());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::new(&shell.server.url()).unwrap();
        let subscribe = client
            .subscribe::<Value>("a.b", "g")
            .from(StartFrom::Earliest)
            .max_attempts(1)
            .member_id("worker-1");
        let mut leases = subscribe.leases().await.unwrap();
        for _ in 0..count {
            let lease = leases.next().await.unwrap().unwrap();
            let reason = format!("no luck with {}", lease.payload["n"]);
            lease.nack(&reason, None).await.unwrap();
        }
        client.close().await.unwrap();
    });
}

#[test]
fn letters_are_listed_redriven_and_dropped() {
    let shell = Shell::new();
    give_up(&shell, 6);
    let list = shell.says(&["dlq", "list", "g"]);
    assert!(list.contains("no luck with 3") && list.lines().count() == 7, "{list}");
    let letters = json_lines(&shell.says(&["dlq", "list", "g", "--json"]));
    assert!(letters.iter().all(|letter| letter["by"] == "worker-1"), "{letters:?}");
    assert!(list.lines().next().unwrap().contains("BY") && list.matches("worker-1").count() == 6, "{list}");
    let count = || json_lines(&shell.says(&["dlq", "list", "g", "--json"])).len();
    let shown: Value = serde_json::from_str(&shell.says(&["dlq", "show", "g", "2"])).unwrap();
    assert_eq!(shown["event"]["payload"]["n"], 2);
    shell.fails(&["dlq", "show", "g", "77"], 5);
    assert!(shell.fails(&["dlq", "redrive", "g"], 2).contains("--all"));
    let tried = shell.says(&["dlq", "redrive", "g", "--filter", ".event.payload.n >= 4", "--dry-run"]);
    assert_eq!((tried.as_str(), count()), ("2 dead letter(s) would be delivered again\n", 6));
    // To the topic: new events for all groups.
    shell.says(&["dlq", "redrive", "g", "--filter", ".event.payload.n >= 4", "--to", "topic"]);
    assert_eq!(shell.says(&["tail", "a.b", "-n", "2", "--format", "raw"]), "{\"n\":4}\n{\"n\":5}\n");
    assert_eq!(count(), 4);
    let id = shown["event"]["id"].as_str().unwrap();
    assert!(shell.says(&["dlq", "drop", "g", id, "1"]).contains("2 dead letter(s) are closed"));
    assert_eq!(count(), 2);
    // To the group: it gets the events again.
    shell.says(&["dlq", "redrive", "g", "--all"]);
    let again = shell.says(&["sub", "a.b", "--group", "g", "--limit", "4", "--template", "{{payload.n}}"]);
    let mut again: Vec<&str> = again.lines().collect();
    again.sort_unstable();
    assert_eq!(again, ["0", "3", "4", "5"]);
    assert_eq!(count(), 0);
    shell.fails(&["dlq", "drop", "g", "9"], 5);
}
