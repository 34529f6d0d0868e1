//! `promethean import`: publishes the events of a file that `promethean export` wrote.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use promethean_client::{Client, EventToPublish};
use promethean_model::{EventId, TopicName, plain};
use promethean_schema::VERSION_HEADER;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::position::TransferPosition;
use crate::commands::publish::{InputLine, PayloadInput, PreparedEvent, PublishLane};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{OutputArgs, count_text, print_json, stderr_is_terminal};
use crate::session::{Interrupt, connect, with_client};
use crate::target::TargetArgs;

/// Events of one commit, at most.
const BATCH: usize = 500;
/// Batches after which the position is kept.
const KEEP_EVERY: u64 = 20;
const WORD: &str = "imported";

/// The flags of `promethean import`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  promethean import orders.copy orders.ndjson.gz
  promethean import orders.placed orders.ndjson --resume --keep-going

Events keep their ids, times, keys, headers and tags, so that importing a file
again adds nothing while the topic remembers ids (its dedupe_window). For lines
that are payloads alone, use `promethean pub --file`.")]
pub(crate) struct ImportArgs {
    /// The topic to publish to
    topic: TopicName,
    /// The file, plain or compressed; `-`, or none, is standard input
    file: Option<PathBuf>,
    /// Give the events new ids and times
    #[arg(long)]
    new_ids: bool,
    /// Go on where the last import of this file ended; the position is kept in FILE.imported
    #[arg(long, requires = "file")]
    resume: bool,
    /// Go on after an event that is refused
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

/// A line of the file.
#[derive(Debug, Deserialize)]
struct ImportedEvent<'a> {
    id: Option<EventId>,
    ts: Option<i64>,
    key: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    caused_by: Vec<EventId>,
    sid: Option<String>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

pub(crate) fn run(args: &ImportArgs) -> Result<ExitCode> {
    with_client(&args.target, async |client| import(args, client).await)
}

async fn import(args: &ImportArgs, client: &Client) -> Result<ExitCode> {
    let mut interrupt = Interrupt::new()?;
    let path = args.file.as_deref().filter(|path| *path != Path::new("-"));
    let known = match path.filter(|_| args.resume) {
        Some(path) => TransferPosition::read(path, WORD, args.topic.as_str())?,
        None => None,
    };
    let skipped = known.map_or(0, |known| known.next);
    let (reader, read, bar) = open(args, path)?;
    connect(client).await?;
    let mut input = PayloadInput::read(reader, BATCH)?;
    let mut lane = PublishLane::new(client.clone(), args.keep_going);
    let keep = |line: u64| match path.filter(|_| args.resume) {
        Some(path) => {
            TransferPosition { topic: args.topic.to_string(), next: line, bytes: 0 }.write(path, WORD)
        }
        None => Ok(()),
    };
    let (mut is_interrupted, mut batches) = (false, 0_u64);
    let ended = loop {
        let lines = tokio::select! {
            lines = input.next(BATCH) => lines,
            () = interrupt.wait() => {
                is_interrupted = true;
                break Ok(());
            }
        };
        let lines = match lines {
            Ok(Some(lines)) => lines,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let mut events = Vec::with_capacity(lines.len());
        for line in lines.iter().filter(|line| line.number > skipped) {
            match event_of(args, line) {
                Ok(event) => events.push(event),
                Err(error) => lane.refused(line.number, &format!("{error:#}")),
            }
        }
        if let Err(error) = lane.send(events).await {
            break Err(error);
        }
        batches += 1;
        if batches.is_multiple_of(KEEP_EVERY) {
            keep(lane.counts.line.max(skipped))?;
        }
        bar.set_position(read.load(Ordering::Relaxed));
        bar.set_message(count_text(lane.counts.published));
        if lane.is_stopped() {
            break Ok(());
        }
    };
    let ended = ended.and(lane.finish().await);
    bar.finish_and_clear();
    keep(lane.counts.line.max(skipped))?;
    report(args, &lane, is_interrupted)?;
    ended?;
    client.close().await?;
    match (lane.counts.refused, is_interrupted) {
        (0, false) => Ok(ExitCode::SUCCESS),
        (0, true) => Ok(FailureKind::Interrupted.code()),
        (refused, _) => {
            let message = format!("{} line(s) refused", count_text(refused));
            Err(CommandFailure::new(FailureKind::Refused, message).into())
        }
    }
}

fn report(args: &ImportArgs, lane: &PublishLane, is_interrupted: bool) -> Result<()> {
    let counts = &lane.counts;
    if args.output.json {
        return print_json(&json!({
            "published": counts.published, "duplicates": counts.duplicates, "refused": counts.refused,
            "line": counts.line, "interrupted": is_interrupted,
        }));
    }
    let again = match counts.duplicates {
        0 => String::new(),
        count => format!(", {} were there already", count_text(count)),
    };
    let interrupted = if is_interrupted { "interrupted: " } else { "" };
    let published = count_text(counts.published);
    args.output.note(&format!("{interrupted}{published} event(s) are published to `{}`{again}", args.topic));
    Ok(())
}

fn event_of(args: &ImportArgs, line: &InputLine) -> Result<PreparedEvent> {
    let ImportedEvent { id, ts, key, headers, tags, caused_by, sid, payload } =
        serde_json::from_str(&line.text).map_err(|error| {
            let reason = plain::json_reason(&error);
            anyhow!("the line is not an event as `promethean export` writes it: {reason}")
        })?;
    let payload = payload.ok_or_else(|| {
        anyhow!("the event has no `payload`; use `promethean pub --file` for payloads alone")
    })?;
    let mut event = EventToPublish::new(args.topic.as_str(), payload);
    if !args.new_ids {
        event = id.into_iter().fold(event, EventToPublish::id);
        event = ts.into_iter().fold(event, EventToPublish::ts);
    }
    event = key.into_iter().fold(event, EventToPublish::key);
    event = sid.into_iter().fold(event, EventToPublish::sid);
    event = tags.into_iter().fold(event, EventToPublish::tag);
    event = caused_by.into_iter().fold(event, EventToPublish::caused_by);
    // The server sets the version of the schema itself.
    let headers = headers.into_iter().filter(|(name, _)| name != VERSION_HEADER);
    event = headers.fold(event, |event, (name, value)| event.header(name, value));
    Ok(PreparedEvent { line: line.number, event })
}

/// Opens the input: the lines, how many bytes of the file are read, and the progress in bytes.
fn open(
    args: &ImportArgs,
    path: Option<&Path>,
) -> Result<(Box<dyn Read + Send>, Arc<AtomicU64>, ProgressBar)> {
    let read = Arc::new(AtomicU64::new(0));
    let (source, length): (Box<dyn Read + Send>, Option<u64>) = match path {
        Some(path) => {
            let what = || format!("cannot read `{}`", path.display());
            let file = File::open(path).with_context(what)?;
            let length = file.metadata().with_context(what)?.len();
            (Box::new(file), Some(length))
        }
        None => (Box::new(io::stdin()), None),
    };
    let mut counted = BufReader::with_capacity(256 << 10, CountedReader { source, read: Arc::clone(&read) });
    let is_compressed = counted.fill_buf().context("cannot read the input")?.starts_with(&[0x1f, 0x8b]);
    let reader: Box<dyn Read + Send> =
        if is_compressed { Box::new(MultiGzDecoder::new(counted)) } else { Box::new(counted) };
    let bar = match length.filter(|_| stderr_is_terminal() && !args.output.quiet) {
        Some(length) => ProgressBar::new(length),
        None => ProgressBar::hidden(),
    };
    let template = "{bar:30} {bytes}/{total_bytes}, {msg} events, {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    Ok((reader, read, bar))
}

/// Counts the bytes that are read.
struct CountedReader {
    source: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for CountedReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buf)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
