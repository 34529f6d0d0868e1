//! `snap`: documents per second over HTTP, with client and server on the same machine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use promethean_gateway::auth::Open;
use promethean_gateway::gateway::{Gateway, GatewayParts};
use promethean_gateway::options::GatewayOptions;
use promethean_model::TopicName;
use promethean_projections::{Changelog, CollectionDeclared, Declared, Logic, Projections, Projector};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::StateRun;
use super::filled_bus::{self, FilledBus};
use crate::run::Goal;
use crate::run::measurement;
use crate::timing::{now, processor_time};

const CONNECTIONS: u64 = 8;
/// Unanswered requests of each connection.
const PIPELINED: u64 = 16;
const DOCUMENTS: u64 = 1_000;
const RATE_MIN: f64 = 30_000.0;
/// Rounds of each kind of answer, in turn, so that other load of the machine affects both.
const ROUNDS: u64 = 10;
/// Bytes added to a document.
const PADDINGS: [usize; 2] = [0, 4_000];

/// The name of a kind of answer, its status, and the header of the request.
type Kind = (&'static str, &'static str, &'static str);
const KINDS: [Kind; 2] = [("whole", "200", ""), ("unchanged", "304", "if-none-match: *\r\n")];

pub(super) async fn run(run: &mut StateRun) -> Result<()> {
    for padding in PADDINGS {
        let bus = FilledBus::open(run, "snap").await?;
        let payload = json!({
            "name": "worker", "host": "host-1", "pid": 7, "cpu_pct": 1.5, "mem_mb": 512, "status": "alive",
            "note": "n".repeat(padding),
        });
        let (topic, payload): (TopicName, _) = ("process.state".parse()?, payload.to_string());
        bus.fill(&topic, DOCUMENTS, |n| (format!("k{n}"), payload.clone())).await?;
        let projections = projected(&bus, topic).await?;
        let parts = GatewayParts {
            bus: bus.local.bus.clone(),
            projections: Some(projections.clone()),
            auth: Arc::new(Open),
            clock: Arc::clone(&bus.local.clock),
            options: GatewayOptions::default(),
        };
        let gateway = Gateway::start(parts, &[SocketAddr::from(([127, 0, 0, 1], 0))]).await?;
        let address = *gateway.addresses().first().context("no address")?;
        measure(run, address, payload.len()).await?;
        gateway.stop().await;
        projections.close().await;
        bus.close().await;
    }
    Ok(())
}

async fn measure(run: &mut StateRun, address: SocketAddr, payload_bytes: usize) -> Result<()> {
    let each = if run.plan.quick { 2_000 } else { 40_000 };
    let mut spent = [(Duration::ZERO, Duration::ZERO); KINDS.len()];
    for _ in 0..ROUNDS {
        for (kind, (took, used)) in KINDS.into_iter().zip(&mut spent) {
            let (start, before) = (now(), processor_time());
            round(address, each, kind).await?;
            *took += start.elapsed();
            *used += processor_time() - before;
        }
    }
    let requests = each * ROUNDS;
    for ((name, ..), (took, used)) in KINDS.into_iter().zip(spent) {
        let rate = requests as f64 / took.as_secs_f64();
        measurement("snap")
            .with("answers", name)
            .with("payload_bytes", payload_bytes)
            .with("requests", requests)
            .with("connections", CONNECTIONS)
            .with("pipelined", PIPELINED)
            .figure("requests_per_s", rate)
            .figure("processor_us_per_request", used.as_secs_f64() * 1e6 / requests as f64)
            .print()?;
        let what = format!("/snap requests/s, {payload_bytes} B, {name}");
        run.goal(Goal::at_least(what, RATE_MIN, rate));
    }
    let [(_, whole), (_, unchanged)] = spent;
    let what = format!("processor time of a 304 to that of a 200, {payload_bytes} B");
    run.goal(Goal::at_most(what, 1.0, unchanged.as_secs_f64() / whole.as_secs_f64()));
    Ok(())
}

async fn round(address: SocketAddr, requests: u64, (_, status, header): Kind) -> Result<()> {
    let mut clients = JoinSet::new();
    for number in 0..CONNECTIONS {
        clients.spawn(ask(address, number, requests / CONNECTIONS, header, status));
    }
    while let Some(done) = clients.join_next().await {
        done.context("a client")??;
    }
    Ok(())
}

async fn projected(bus: &FilledBus, topic: TopicName) -> Result<Projections> {
    let collection: promethean_model::CollectionName = "processes".parse()?;
    let logic = Logic::rust(Changelog::new(collection.clone()));
    let projector = Projector::new("changelog:processes".parse()?, topic, logic).writes([collection.clone()]);
    let name = projector.name.clone();
    let declared = Declared {
        collections: vec![CollectionDeclared::new(collection.clone())],
        projectors: vec![projector],
        default_collection: Some(collection),
        ..Declared::default()
    };
    let projections = bus.projections(declared).await?;
    filled_bus::projected(&projections, &name, DOCUMENTS).await?;
    Ok(projections)
}

/// Requests documents over one connection, several at a time.
async fn ask(address: SocketAddr, first: u64, requests: u64, header: &str, status: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let wanted = format!("HTTP/1.1 {status}");
    let (mut sent, mut done) = (0, 0);
    let (mut buffer, mut filled) = (vec![0_u8; 64 << 10], 0);
    while done < requests {
        if sent - done <= PIPELINED / 2 && sent < requests {
            let mut batch = String::new();
            while sent < requests && sent - done < PIPELINED {
                let key = (first * 131 + sent) % DOCUMENTS;
                batch.push_str(&format!("GET /snap/k{key} HTTP/1.1\r\nhost: localhost\r\n{header}\r\n"));
                sent += 1;
            }
            stream.write_all(batch.as_bytes()).await?;
        }
        let read = stream.read(buffer.get_mut(filled..).unwrap_or_default()).await?;
        ensure!(read > 0, "the server closed the connection");
        filled += read;
        let taken = answers(buffer.get(..filled).unwrap_or_default(), &wanted, &mut done)?;
        buffer.copy_within(taken..filled, 0);
        filled -= taken;
    }
    Ok(())
}

/// Counts complete answers; returns the number of their bytes.
fn answers(bytes: &[u8], wanted: &str, done: &mut u64) -> Result<usize> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(head) = memchr::memmem::find(rest, b"\r\n\r\n") else { return Ok(at) };
        let text = std::str::from_utf8(rest.get(..head).unwrap_or_default())?;
        ensure!(text.starts_with(wanted), "{text}");
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        // A 304 has no body, even if it has a content-length.
        let length =
            if wanted.ends_with("304") { 0 } else { length.context("no length")?.parse::<usize>()? };
        if rest.len() < head + 4 + length {
            return Ok(at);
        }
        at += head + 4 + length;
        *done += 1;
    }
}
