//! A client that begins a topic and a group, and deletes both, again and again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::server::ask;
use super::shared::Shared;

/// Names that are used in turn, so that a topic begins again after its deletion.
const NAMES: usize = 3;

/// Runs until publishers must stop. It ends with no topic left.
pub(super) async fn run(shared: Arc<Shared>, address: SocketAddr) {
    let mut count = 0;
    while !shared.done.load(Ordering::Relaxed) {
        let topic = format!("brief.t{}", count % NAMES);
        repeat(address, "POST", &format!("/publish/{topic}"), &[200]).await;
        subscribe_once(&shared, &topic).await;
        // The member goes with its connection; until the server has seen that, the group cannot be deleted. An answer that a kill
        // took away may have deleted it.
        repeat(address, "DELETE", &format!("/groups/passer?topic={topic}"), &[200, 404]).await;
        repeat(address, "DELETE", &format!("/topics/{topic}"), &[200, 404]).await;
        repeat(address, "GET", &format!("/topics/{topic}"), &[404]).await;
        count += 1;
        shared.deletions.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends a request until it is answered with one of these statuses. While the server is away, there is no answer; while it ends, or
/// a member is still there, it refuses.
async fn repeat(address: SocketAddr, method: &str, path: &str, wanted: &[u16]) {
    let mut often = tokio::time::interval(Duration::from_millis(10));
    loop {
        often.tick().await;
        match ask(address, method, path, if method == "POST" { "1" } else { "" }).await {
            Some((status, _)) if wanted.contains(&status) => return,
            Some((409 | 500 | 503, _)) | None => {}
            Some(other) => panic!("{method} {path}: {other:?}"),
        }
    }
}

/// Subscribes, and leaves after the answer.
async fn subscribe_once(shared: &Shared, topic: &str) {
    let mut client = shared.connect().await;
    let opts = json!({"from": "earliest"});
    client.send(&json!({"op": "SUBSCRIBE", "topic": topic, "group": "passer", "opts": opts})).await;
    let _answer_or_end = client.next(shared).await;
}
