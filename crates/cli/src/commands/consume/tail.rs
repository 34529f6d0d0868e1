//! `promethean tail`: the latest events of a topic, and then new ones as they come.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use futures_util::stream::StreamExt;
use promethean_client::{Client, StartFrom};

use super::filter::JqFilter;
use super::format::{EventFormatArgs, EventWriter};
use super::source::{EventSource, IncomingEvent};
use super::{AckMode, EventPrinter, check_topic, parse_position};
use crate::session::{Interrupt, with_client};
use crate::target::TargetArgs;

/// Events that are printed at once, and the size of a page.
const BATCH: usize = 500;

const EXAMPLES: &str = "Examples:
  promethean tail orders.placed -n 20
  promethean tail orders.placed --from \"1h ago\" --format raw";

/// The flags of `promethean tail`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TailArgs {
    /// The topic
    topic: String,
    /// How many of the latest events to print
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    lines: u64,
    /// Print all events from here on instead: earliest, an offset, a date, "5m ago", or after the id of an event
    #[arg(long, value_name = "WHERE", conflicts_with = "lines", value_parser = parse_position)]
    from: Option<StartFrom>,
    /// Go on with new events as they come
    #[arg(long, short)]
    follow: bool,
    /// Print only events for which this jq program gives neither false nor null
    #[arg(long, value_name = "JQ")]
    filter: Option<String>,
    #[command(flatten)]
    format: EventFormatArgs,
    #[command(flatten)]
    target: TargetArgs,
}

pub(crate) fn run(args: &TailArgs) -> Result<ExitCode> {
    check_topic(&args.topic)?;
    let writer = EventWriter::new(&args.format)?;
    let filter = JqFilter::new(args.filter.as_deref())?;
    with_client(&args.target, async |client| tail(args, client, &writer, &filter).await)
}

async fn tail(args: &TailArgs, client: &Client, writer: &EventWriter, filter: &JqFilter) -> Result<ExitCode> {
    let mut interrupt = Interrupt::new()?;
    let topic = client.admin().topic(&args.topic).await?;
    let from =
        args.from.unwrap_or(StartFrom::Offset(topic.end.saturating_sub(args.lines).max(topic.earliest)));
    let mut printer = EventPrinter::new(AckMode::Auto, None);
    let mut pages = client.reader().replay(args.topic.as_str(), from, BATCH).ready_chunks(BATCH);
    loop {
        let chunk = tokio::select! {
            chunk = pages.next() => chunk,
            () = interrupt.wait() => return Ok(ExitCode::SUCCESS),
        };
        let Some(chunk) = chunk else { break };
        let mut events = Vec::with_capacity(chunk.len());
        for event in chunk {
            events.push(event?);
        }
        // Events that came meanwhile are printed once, by the stream that follows.
        let is_over = events.iter().any(|event| event.offset >= topic.end);
        events.retain(|event| event.offset < topic.end);
        printer.print(events.into_iter().map(IncomingEvent::Seen).collect(), writer, filter).await?;
        if is_over {
            break;
        }
    }
    if !args.follow {
        return Ok(ExitCode::SUCCESS);
    }
    let next = StartFrom::Offset(topic.end);
    let mut source = EventSource::topics(client, std::slice::from_ref(&args.topic), next, &|_| {}).await?;
    loop {
        tokio::select! {
            deliveries = source.next_batch() => match deliveries? {
                Some(deliveries) => drop(printer.print(deliveries, writer, filter).await?),
                None => return Ok(ExitCode::SUCCESS),
            },
            () = interrupt.wait() => return Ok(ExitCode::SUCCESS),
        }
    }
}
