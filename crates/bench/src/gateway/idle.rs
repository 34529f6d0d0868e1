//! `idle`: sockets without traffic.

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;

use super::meter::{Meter, line};
use super::server_process::ServerProcess;
use super::{GatewayRun, block_on};
use crate::run::Goal;
use crate::wire::socket::ClientSocket;

const TARGET_BYTES: f64 = 16_384.0;
/// Number of sockets, and the most megabytes a server may use with them.
const MANY: (usize, f64) = (10_000, 200.0);
/// Sockets opened at the same time.
const AT_ONCE: usize = 32;
/// Open files of a process beside its sockets.
const OTHER_FILES: u64 = 200;

pub(super) fn run(bench: &mut GatewayRun) -> Result<()> {
    block_on(async {
        // Before the server starts, because it inherits the limit.
        let files = raise_file_limit(bench.plan.sockets.last().map_or(0, |most| *most as u64) + OTHER_FILES);
        let server = ServerProcess::start(bench, "idle").await?;
        // The first connection allocates memory that must not be counted for the sockets.
        let line_of_sync = line(bench, "idle", &server).await?;
        rest(bench).await;
        let before = server.resident()?;
        let mut sockets = Vec::new();
        for count in bench.plan.sockets.clone() {
            let line = line_of_sync.clone().with("sockets", count);
            if count as u64 + OTHER_FILES > files {
                let why = format!("a process may have {files} files open");
                line.with("skipped", why).print()?;
                continue;
            }
            open(&server, &mut sockets, count).await?;
            rest(bench).await;
            let meter = Meter::start(&server)?;
            rest(bench).await;
            let cost = meter.stop(&server, 0)?;
            let resident = server.resident()?;
            let bytes = (resident - before).max(0.0) / count as f64;
            line.figure("server_rss_mb", resident / 1e6)
                .figure("bytes_per_socket", bytes)
                .figure("seconds", cost.elapsed.as_secs_f64())
                .figure("server_processor_percent", cost.server_percent())
                .print()?;
            bench.goal(Goal::at_most(format!("bytes per idle socket, {count} of them"), TARGET_BYTES, bytes));
            if count == MANY.0 {
                bench.goal(Goal::at_most(format!("{count} idle sockets, MB"), MANY.1, resident / 1e6));
            }
        }
        Ok(())
    })
}

/// Opens sockets until there are `count`.
async fn open(server: &ServerProcess, sockets: &mut Vec<ClientSocket>, count: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    while sockets.len() + tasks.len() < count || !tasks.is_empty() {
        while tasks.len() < AT_ONCE && sockets.len() + tasks.len() < count {
            let address = server.address.clone();
            tasks.spawn(async move { ClientSocket::open(&address, None).await });
        }
        if let Some(opened) = tasks.join_next().await {
            sockets.push(opened.context("a client panicked")??);
        }
    }
    Ok(())
}

/// Waits until the server has finished its background work.
pub(super) async fn rest(bench: &GatewayRun) {
    let mut rest = tokio::time::interval(bench.plan.watch());
    // The first tick comes at once.
    rest.tick().await;
    rest.tick().await;
}

/// Raises the limit of open files of this process and its children, if allowed; returns the limit.
fn raise_file_limit(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let within = Rlimit { current: Some(limit.maximum.unwrap_or(wanted).min(wanted)), ..limit };
    let beyond = Rlimit { current: Some(wanted), maximum: Some(wanted) };
    // Raising the maximum needs privileges; without them it stays.
    if limit.maximum.is_none_or(|maximum| maximum >= wanted) || setrlimit(Resource::Nofile, beyond).is_err() {
        let _ = setrlimit(Resource::Nofile, within);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
