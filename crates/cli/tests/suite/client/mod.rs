//! The Rust client against the real server.

mod chaos_loses_nothing;
mod closing_loses_nothing;
mod costs_are_bounded;
mod events_are_handled;
mod example_runs;
mod fetches_are_safe_to_drop;
mod full_servers_refuse_and_resume;
mod http_reads_and_changes;
mod leases_are_kept;
mod mistakes_are_named;
mod produced_ids_are_the_same_everywhere;
mod proxy;
mod publishes_are_confirmed;
mod secure_servers_are_trusted;
mod state_is_warmed_up;
mod tokens_expire;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use promethean_client::{Client, ClientBuilder, ClientError};

use super::running_server::RunningServer;

/// A server in memory, and a folder for it.
fn server() -> (tempfile::TempDir, RunningServer) {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::in_memory(dir.path(), &[]);
    (dir, server)
}

/// Errors that a client reported on its own.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<ClientError>>>);

impl Reports {
    fn codes(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|error| error.code().to_owned()).collect()
    }

    fn attach(&self, builder: ClientBuilder) -> ClientBuilder {
        let reports = self.clone();
        builder.on_error(move |error| reports.0.lock().unwrap().push(error.clone()))
    }
}

/// A client with short waits.
fn quick(url: &str) -> ClientBuilder {
    Client::builder(url)
        .reconnect(Duration::from_millis(20), Duration::from_millis(300))
        .keep_alive(Duration::from_millis(700), Duration::from_millis(700))
        .open_timeout(Duration::from_secs(2))
}

/// Lets time pass. The server is another process, with the clock of this machine.
#[expect(clippy::disallowed_methods, reason = "what is waited for is the time itself")]
async fn real_time(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits until a group has finished every event, or all but `lag` of them.
async fn until_lag(client: &Client, topic: &str, group: &str, lag: u64) {
    let mut often = tokio::time::interval(Duration::from_millis(5));
    let wait = async {
        while client.admin().lag(topic, group).await.unwrap().lag > lag {
            often.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait)
        .await
        .unwrap_or_else(|_| panic!("waited too long: `{group}` finishes `{topic}`"));
}

/// Waits until `look` is true; another task or process makes it so.
async fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let mut often = tokio::time::interval(Duration::from_millis(5));
    let wait = async {
        while !look() {
            often.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait)
        .await
        .unwrap_or_else(|_| panic!("waited too long: {what}"));
}
