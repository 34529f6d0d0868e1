//! A service that reports itself to the bus and answers each alarm once. Start a bus, then this, and perhaps the
//! service in `examples/node-service`, which raises the alarms:
//!
//! ```text
//! promethean dev
//! cargo run -p promethean-client --example rust-service
//! node examples/node-service/service.js
//! ```
//!
//! `PROMETHEAN_URL` is the address of the bus (ws://127.0.0.1:8090), `PROMETHEAN_TOKEN` its token.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::time::Duration;

use promethean_client::{Client, ClientError, Lease, ServerDedupe, StartFrom};
use serde::{Deserialize, Serialize};

/// What `promethean dev` expects of a process.
#[derive(Debug, Serialize)]
struct Heartbeat {
    pid: u32,
    name: &'static str,
    host: String,
    cpu_pct: f64,
    mem_mb: f64,
}

/// What the service in `examples/node-service` publishes when a process is silent.
#[derive(Debug, Deserialize)]
struct Alarm {
    process: String,
}

/// The answer to an alarm.
#[derive(Debug, Serialize)]
struct AlarmAnswer {
    process: String,
    answered_by: &'static str,
}

/// Works until `ended` is over, then finishes what is under way.
pub(crate) async fn run(
    url: &str,
    token: Option<String>,
    ended: impl Future<Output = ()>,
) -> Result<(), ClientError> {
    let client = Client::builder(url)
        .token(token)
        .on_error(|error| eprintln!("{error} ({})", error.advice()))
        .build()?;
    client.connect().await?;

    // Each alarm is answered once: the server remembers which ones were.
    let publisher = client.clone();
    let consumer = client
        .subscribe::<Alarm>("alarm.raised", "on-call")
        .from(StartFrom::Earliest)
        .concurrency(4)
        .handle_once(ServerDedupe::new(&client), move |lease: Lease<Alarm>| {
            let client = publisher.clone();
            async move {
                println!("alarm: {} is silent", lease.payload.process);
                let answer =
                    AlarmAnswer { process: lease.payload.process.clone(), answered_by: "rust-service" };
                // An id that is derived from the alarm makes a repetition a duplicate.
                client.publish("alarm.answered", &answer).id(lease.produced_id(0)).await?;
                Ok(())
            }
        })
        .await?;
    println!("watching alarm.raised");

    let beats = async {
        let mut every = tokio::time::interval(Duration::from_secs(1));
        loop {
            every.tick().await;
            if let Err(error) = client.publish("heartbeat.received", &heartbeat()).await {
                eprintln!("{error}");
            }
        }
    };
    tokio::select! {
        () = beats => {}
        () = ended => {}
    }
    // Everything that is under way is finished before the process ends.
    consumer.close().await?;
    client.close().await?;
    println!("closed");
    Ok(())
}

fn heartbeat() -> Heartbeat {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "local".to_owned());
    Heartbeat { pid: std::process::id(), name: "rust-service", host, cpu_pct: 0.0, mem_mb: memory_mb() }
}

/// The memory of this process, if the system tells.
fn memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or_default() / 1_000.0
}

#[tokio::main]
#[allow(dead_code, reason = "the test calls `run`")]
async fn main() -> Result<(), ClientError> {
    let url = std::env::var("PROMETHEAN_URL").unwrap_or_else(|_| "ws://127.0.0.1:8090".to_owned());
    let ended = async {
        // Without a signal the service runs until it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    run(&url, std::env::var("PROMETHEAN_TOKEN").ok(), ended).await
}
