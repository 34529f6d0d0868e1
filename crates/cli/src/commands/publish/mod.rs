//! `promethean pub`: publishes events from an argument, a file or standard input.

mod fill;
mod input;
mod lane;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use promethean_client::{Client, EventToPublish, PublishReceipt};
use promethean_model::{EventId, TopicName, plain};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use self::fill::Filler;
pub(super) use self::input::{InputLine, PayloadInput};
pub(super) use self::lane::{LaneCounts, PublishLane};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{OutputArgs, Paint, Tone, count_text, print_json, print_line};
use crate::session::{Interrupt, connect, with_client};
use crate::target::TargetArgs;

const EXAMPLES: &str = "Examples:
  promethean pub orders.placed '{\"order\": 7}' --key customer-1
  promethean pub load.test '{\"n\": {{count}}}' --template -n 1000 --rate 100

With --template, {{count}} counts from 1, {{random 1 100}} is a number,
{{pick red green}} one of the words, {{text 8}} random letters, {{id}} a new
id, {{time}} the time in ms, {{date}} as a date, {{line}} the line read.";

/// The flags of `promethean pub`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PubArgs {
    /// The topic; its first event creates it
    topic: TopicName,
    /// The payload, as JSON; without it, each line of --file or of standard input is the payload of one event
    #[arg(conflicts_with = "file")]
    payload: Option<String>,
    /// Read payloads from this file, one on each line; `-` is standard input
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Take payloads as text, not as JSON
    #[arg(long)]
    text: bool,
    /// Fill in {{count}}, {{random 1 100}} and others in payload, key and headers; see below
    #[arg(long)]
    template: bool,
    /// Publish the payload this many times
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1, requires = "payload")]
    count: u64,
    /// Publish at most this many events per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// What the event is about; events with the same key keep their order
    #[arg(long, short)]
    key: Option<String>,
    /// A header of the event, as in `x-region: eu`; can be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// A word to filter by; can be given several times
    #[arg(long = "tag", value_name = "WORD")]
    tags: Vec<String>,
    /// The id of the event, a UUID: publishing the same id again adds nothing
    #[arg(long, requires = "payload", conflicts_with = "count")]
    id: Option<EventId>,
    /// Publish at most this many events in one commit
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    /// Go on after an event that is refused
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

/// An event with the line it comes from.
#[derive(Debug, Clone)]
pub(super) struct PreparedEvent {
    pub(super) line: u64,
    pub(super) event: EventToPublish,
}

pub(crate) fn run(args: &PubArgs) -> Result<ExitCode> {
    let filler = Filler::new(args)?;
    with_client(&args.target, async |client| match (&args.payload, args.count) {
        (Some(payload), 1) if !args.template || args.id.is_some() => {
            one(args, client, &filler, payload).await
        }
        _ => many(args, client, filler).await,
    })
}

async fn one(args: &PubArgs, client: &Client, filler: &Filler, payload: &str) -> Result<ExitCode> {
    let prepared = filler.prepare(&InputLine { number: 1, text: payload.to_owned() })?;
    connect(client).await?;
    let event = match args.id {
        Some(id) => prepared.event.id(id),
        None => prepared.event,
    };
    let receipt = client.publish_event(event).await?;
    print_receipt(args, &receipt)?;
    client.close().await?;
    Ok(ExitCode::SUCCESS)
}

fn print_receipt(args: &PubArgs, receipt: &PublishReceipt) -> Result<()> {
    if args.output.json {
        let mut answer = serde_json::to_value(receipt)?;
        if let Some(fields) = answer.as_object_mut() {
            fields.insert("topic".to_owned(), json!(args.topic));
        }
        return print_json(&answer);
    }
    if args.output.quiet {
        return Ok(());
    }
    let paint = Paint::stdout();
    let durability = serde_json::to_value(receipt.durability)?;
    let again = if receipt.is_duplicate { "; the event was there already" } else { "" };
    Ok(print_line(&format!(
        "{} offset {}  {}  durability {}{again}",
        paint.paint(Tone::Strong, args.topic.as_str()),
        paint.paint(Tone::Mark, &receipt.offset.to_string()),
        receipt.id,
        durability.as_str().unwrap_or_default(),
    ))?)
}

/// Publishes the events of the input, several batches at a time.
async fn many(args: &PubArgs, client: &Client, mut filler: Filler) -> Result<ExitCode> {
    let mut interrupt = Interrupt::new()?;
    connect(client).await?;
    let mut input = PayloadInput::open(args)?;
    let bar = args.output.bar(args.payload.is_some().then_some(args.count));
    let (start, mut lane) = (Instant::now(), PublishLane::new(client.clone(), args.keep_going));
    let mut is_interrupted = false;
    let ended = loop {
        let lines = tokio::select! {
            lines = input.next(batch_size(args)) => lines,
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
        for line in lines {
            match filler.prepare_next(line) {
                Ok(event) => events.push(event),
                Err((number, error)) => lane.refused(number, &format!("{error:#}")),
            }
        }
        if let Err(error) = lane.send(events).await {
            break Err(error);
        }
        bar.set_position(lane.counts.published);
        if lane.is_stopped() {
            break Ok(());
        }
        pace(args.rate, start, lane.sent).await;
    };
    let ended = ended.and(lane.finish().await);
    bar.finish_and_clear();
    summary(args, &lane.counts, start.elapsed(), is_interrupted)?;
    ended?;
    client.close().await?;
    match (lane.counts.refused, is_interrupted) {
        (0, false) => Ok(ExitCode::SUCCESS),
        (0, true) => Ok(FailureKind::Interrupted.code()),
        (refused, _) => {
            let more = if args.keep_going { "" } else { "; --keep-going publishes the others all the same" };
            let message = format!("{} event(s) refused{more}", count_text(refused));
            Err(CommandFailure::new(FailureKind::Refused, message).into())
        }
    }
}

/// The most events of one batch: with a low rate, those of a twentieth of a second.
fn batch_size(args: &PubArgs) -> usize {
    let batch = usize::from(args.batch);
    args.rate.map_or(batch, |rate| batch.min((rate as usize / 20).max(1)))
}

/// Waits until the rate allows one event more than the `sent` ones.
async fn pace(rate: Option<u32>, start: Instant, sent: u64) {
    if let Some(rate) = rate {
        tokio::time::sleep_until(start + Duration::from_secs_f64(sent as f64 / f64::from(rate))).await;
    }
}

fn summary(args: &PubArgs, counts: &LaneCounts, took: Duration, is_interrupted: bool) -> Result<()> {
    let ms = took.as_millis() as u64;
    if args.output.json {
        return print_json(&json!({
            "published": counts.published, "refused": counts.refused, "duplicates": counts.duplicates,
            "last_offset": counts.last_offset, "ms": ms, "interrupted": is_interrupted,
        }));
    }
    let rate = (counts.published as f64 / took.as_secs_f64().max(0.001)) as u64;
    let (count, rate, seconds) = (count_text(counts.published), count_text(rate), took.as_secs_f64());
    let interrupted = if is_interrupted { "interrupted: " } else { "" };
    let last = counts.last_offset.map(|offset| format!(", up to offset {offset}")).unwrap_or_default();
    args.output.note(&format!(
        "{interrupted}published {count} event(s) to `{}`{last} in {seconds:.1} s ({rate}/s)",
        args.topic
    ));
    Ok(())
}

/// The payload of a line: JSON as it is, or a text.
fn payload_of(text: &str, is_text: bool) -> Result<Box<RawValue>> {
    if is_text {
        return Ok(serde_json::value::to_raw_value(text)?);
    }
    serde_json::from_str(text).map_err(|error| {
        let shown: String = text.chars().take(40).collect();
        let reason = plain::json_reason(&error);
        anyhow!(
            "`{shown}` is not JSON ({reason}); write text in double quotes, as in '\"hello\"', or add --text"
        )
    })
}

/// A header, from `name: value`.
fn header_of(text: &str) -> Result<(String, String)> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => bail!("`{text}` is not a header; write NAME: VALUE, as in 'x-region: eu'"),
    }
}
