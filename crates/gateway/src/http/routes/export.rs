//! `/export`: all events of a time range, streamed.

use std::io::Write;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use promethean_bus::read::Scan;
use promethean_bus::rows::StartPosition;
use promethean_bus::{Bus, Render};
use promethean_delivery::Subject;
use promethean_model::{Offset, TopicName};
use tracing::warn;

use super::params::{EXACT, NORMALIZE, TOPIC};
use crate::app::App;
use crate::events;
use crate::http::call::{Call, ReadGrant};
use crate::http::operation::{Answer, Media, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, BodyWriter, Buffers, Gone, Reply};
use crate::refusal::Refusal;

/// A page that is read, rendered and sent at once: small enough to stay in the processor's cache.
const PAGE_EVENTS: usize = 20_000;
const PAGE_BYTES: usize = 256 << 10;
/// Pieces that wait for the client, at most. Together with the piece that waits for a place, and those that the
/// connection holds, they are less than the 2 MiB that a client may still get after its token is revoked.
const CHUNKS_AHEAD: usize = 4;

pub(in crate::http) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/export",
    id: "export",
    summary: "Exactly the events with `fromTs` <= `ts` <= `toTs`, each once, in offset order. After a break, go on with \
              `fromOffset` = the last event's offset + 1; after the end, with the header `x-next-offset`: the first \
              event that was left out because its `ts` is after `toTs`, else the end of the topic.",
    params: &[
        TOPIC,
        Param::query("fromTs", EXACT, "the earliest time, epoch ms; 0 if left out"),
        Param::query("toTs", EXACT, "the latest time, epoch ms; now if left out"),
        Param::query("fromOffset", ParamType::Offset, "pass over everything below this offset"),
        Param::query("ndjson", ParamType::Flag, "1, as if left out: an event on each line; 0: a JSON array"),
        NORMALIZE,
        Param::query("gzip", ParamType::Flag, "1: compressed, if `accept-encoding` has gzip too"),
    ],
    body: None,
    answer: Answer { media: &[Media::Ndjson, Media::Json], schema: "Events", about: "The events" },
    refusals: &[],
    need: Need::Subscribe,
    handler: |call| Box::pin(export(call)),
}];

async fn export(call: &mut Call) -> Reply {
    let (topic, args, app) = (call.topic()?, &call.args, &call.app);
    let from_ts = args.parse("fromTs")?.unwrap_or(0);
    let to_ts = args.parse("toTs")?.unwrap_or_else(|| app.clock.wall_ms());
    let ndjson = args.flag("ndjson", true);
    // The scan starts at the first event of that time; the times of all later events are checked one by one.
    let scan = app.bus.scan(&topic, StartPosition::Ts(from_ts)).await?;
    let mut scan = scan.normalize(args.flag("normalize", false));
    if let Some(offset) = args.parse("fromOffset")? {
        scan.skip_to(Offset(offset));
    }
    let next = first_after(&app.bus, &topic, to_ts, scan.next()..scan.end()).await?;
    let gzip = args.flag("gzip", false) && accepts_gzip(&call.headers);
    let write_timeout = Duration::from_millis(app.options.write_timeout_ms);
    let (writer, body) = reply::stream(CHUNKS_AHEAD, write_timeout);
    let encoder = gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
    let (render, buffers) = (renderer(ndjson, from_ts..=to_ts), Buffers::default());
    let reader = call.reader(Subject::Topic(topic));
    let export = Export { app: app.clone(), writer, encoder, ndjson, render, buffers, reader };
    let permit = call.permit.take();
    app.tasks.spawn(async move {
        export.run(scan).await;
        drop(permit);
    });
    let mut response = reply::with(if ndjson { Media::Ndjson } else { Media::Json }, body);
    let headers = response.headers_mut();
    headers.insert("x-next-offset", HeaderValue::from(next.get()));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// The first offset in a range whose event has a `ts` after `to_ts`; the end of the range if there is none. An export that
/// goes on from there misses no event.
async fn first_after(
    bus: &Bus,
    topic: &TopicName,
    to_ts: i64,
    range: Range<Offset>,
) -> Result<Offset, Refusal> {
    let Some(after) = to_ts.checked_add(1).filter(|_| !range.is_empty()) else { return Ok(range.end) };
    let first = bus.scan(topic, StartPosition::Ts(after)).await?.next();
    if first >= range.start {
        return Ok(first.min(range.end));
    }
    // The first such event of the topic is before the range, which is therefore searched.
    let found = Arc::new(AtomicU64::new(range.end.get()));
    let seen = Arc::clone(&found);
    let note: Arc<Render> = Arc::new(move |_, event| {
        if event.ts > to_ts {
            seen.fetch_min(event.offset.get(), Ordering::Relaxed);
        }
        Ok(())
    });
    let mut scan = bus.scan(topic, StartPosition::Offset(range.start)).await?;
    while scan.next() < Offset(found.load(Ordering::Relaxed)) {
        if scan.next_rendered(PAGE_EVENTS, PAGE_BYTES, Vec::new(), &note).await?.is_none() {
            break;
        }
    }
    Ok(Offset(found.load(Ordering::Relaxed)))
}

pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepts = |part: &str| {
        let (coding, weight) = part.split_once(';').unwrap_or((part, ""));
        let refused = matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        matches!(coding.trim(), "gzip" | "x-gzip" | "*") && !refused
    };
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(accepts)
}

/// An export under way.
struct Export {
    app: App,
    writer: BodyWriter,
    encoder: Option<GzEncoder<Vec<u8>>>,
    ndjson: bool,
    render: Arc<Render>,
    buffers: Buffers,
    reader: ReadGrant,
}

impl Export {
    /// Sends all events. Memory is bounded by the pages that wait for the client and the one that is
    /// rendered.
    async fn run(mut self, mut scan: Scan) {
        if self.send(&mut scan).await.is_ok() {
            // If the client goes away now, it has all events.
            let _ = self.writer.finish().await;
        }
    }

    async fn send(&mut self, scan: &mut Scan) -> Result<(), StopExport> {
        // In an array, `[` replaces the comma before the first event.
        let mut opening = if self.ndjson { None } else { Some(b'[') };
        loop {
            let page = tokio::select! {
                page = scan.next_rendered(PAGE_EVENTS, PAGE_BYTES, self.buffers.take(), &self.render) => page,
                () = self.writer.gone() => return Err(StopExport),
                () = self.app.stopping.cancelled() => return Err(StopExport),
            };
            match page {
                Ok(None) => break,
                Ok(Some(mut page)) => {
                    if let Some(comma) = page.first_mut()
                        && let Some(opening) = opening.take()
                    {
                        *comma = opening;
                    }
                    self.write(page).await?;
                }
                Err(error) => {
                    warn!(%error, "an export was cut");
                    return Err(StopExport);
                }
            }
        }
        if !self.ndjson {
            let end: &[u8] = if opening.is_some() { b"[]\n" } else { b"]\n" };
            self.write(end.to_vec()).await?;
        }
        match self.encoder.take() {
            Some(encoder) => self.forward(encoder.finish().map_err(|_| StopExport)?).await,
            None => Ok(()),
        }
    }

    async fn write(&mut self, chunk: Vec<u8>) -> Result<(), StopExport> {
        let Some(mut encoder) = self.encoder.take() else { return self.forward(chunk).await };
        // Compression takes long enough to delay other tasks, so it runs on a blocking thread.
        let compressed = self.app.tasks.spawn_blocking(move || {
            encoder.write_all(&chunk)?;
            let out = std::mem::take(encoder.get_mut());
            Ok::<_, std::io::Error>((encoder, out))
        });
        let (encoder, out) = compressed.await.map_err(|_| StopExport)?.map_err(|_| StopExport)?;
        self.encoder = Some(encoder);
        self.forward(out).await
    }

    async fn forward(&mut self, chunk: Vec<u8>) -> Result<(), StopExport> {
        if chunk.is_empty() {
            return Ok(());
        }
        let mut rest = self.buffers.lend(chunk);
        // In pieces, each with the whole write timeout: a slow client is not a gone client.
        while !rest.is_empty() {
            // A page can be one large event, so each piece is checked.
            if !self.reader.may_read_on().await {
                return Err(StopExport);
            }
            let piece = rest.split_to(rest.len().min(PAGE_BYTES));
            tokio::select! {
                sent = self.writer.send(piece) => sent.map_err(|Gone| StopExport)?,
                () = self.app.stopping.cancelled() => return Err(StopExport),
            }
        }
        Ok(())
    }
}

/// Renders an event as a line, or as an array item after a comma.
fn renderer(ndjson: bool, times: RangeInclusive<i64>) -> Arc<Render> {
    Arc::new(move |out, event| {
        if !times.contains(&event.ts) {
            return Ok(());
        }
        if !ndjson {
            out.push(b',');
        }
        events::render(out, event)?;
        if ndjson {
            out.push(b'\n');
        }
        Ok(())
    })
}

/// The client is gone, or the export cannot go on; the client then sees that the export is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StopExport;
