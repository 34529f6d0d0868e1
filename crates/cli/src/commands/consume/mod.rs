//! `promethean sub` and `promethean tail`: events as they come.

mod filter;
mod format;
mod position;
mod source;
mod tail;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use futures_util::stream::{FuturesUnordered, StreamExt};
use promethean_client::{Client, SettleAnswer, StartFrom};

pub(crate) use self::filter::JqFilter;
pub(crate) use self::format::{EventFormatArgs, EventWriter, UntypedEvent};
pub(crate) use self::position::parse_position;
use self::source::{EventSource, IncomingEvent};
pub(crate) use self::tail::{TailArgs, run as run_tail};
use crate::output::{count_text, stdout_is_terminal};
use crate::session::{Interrupt, with_client};
use crate::target::TargetArgs;

/// Acks whose answers are awaited, at most.
const ACKS_MAX: usize = 4_096;

const EXAMPLES: &str = "Examples:
  promethean sub orders.placed --from earliest --filter '.payload.total > 100'
  promethean sub 'orders.*' --group billing --format json | ./handle-orders

Without --group nothing is kept: the command only looks. With --group the
server keeps the position, members share the events, and an event is finished
when it was printed (--ack). A group that exists goes on where it was.";

/// The flags of `promethean sub`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SubArgs {
    /// The topics, or patterns such as `orders.*`
    #[arg(required = true)]
    topics: Vec<String>,
    /// Take the events as a member of this group
    #[arg(long, short)]
    group: Option<String>,
    /// Where to begin: earliest, latest, an offset, a date, "5m ago", or after the id of an event [default: latest]
    #[arg(long, value_name = "WHERE", value_parser = parse_position)]
    from: Option<StartFrom>,
    /// Print only events for which this jq program gives neither false nor null; with a group, others are finished
    #[arg(long, value_name = "JQ")]
    filter: Option<String>,
    /// End after this many printed events
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Finish an event of a group when it was printed, when the server has sent it (auto), or never (none)
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = AckMode::Printed, requires = "group")]
    ack: AckMode,
    #[command(flatten)]
    format: EventFormatArgs,
    /// Print no notes, only events and errors
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// When an event is finished for its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AckMode {
    // After it was printed.
    Printed,
    // When the server has sent it: fastest, and events can be lost.
    Auto,
    // Never: the events come again when the command ends.
    None,
}

pub(crate) fn run(args: &SubArgs) -> Result<ExitCode> {
    let writer = EventWriter::new(&args.format)?;
    let filter = JqFilter::new(args.filter.as_deref())?;
    if args.group.is_some() {
        ensure!(args.topics.len() == 1, "a group has one topic or pattern; give one, such as 'orders.*'");
    }
    with_client(&args.target, async |client| follow(args, client, &writer, &filter).await)
}

async fn follow(
    args: &SubArgs,
    client: &Client,
    writer: &EventWriter,
    filter: &JqFilter,
) -> Result<ExitCode> {
    let mut interrupt = Interrupt::new()?;
    let note = |text: &str| {
        if !args.quiet && stdout_is_terminal() {
            eprintln!("{text}");
        }
    };
    // Shows within moments whether there is a server; subscribing would go on trying.
    client.admin().health().await?;
    let mut source = match &args.group {
        Some(group) => EventSource::group(args, client, group).await?,
        None => {
            EventSource::topics(client, &args.topics, args.from.unwrap_or(StartFrom::Latest), &note).await?
        }
    };
    note(&format!("waiting for events of {}; Ctrl-C ends", args.topics.join(", ")));
    let mut printer = EventPrinter::new(args.ack, args.limit);
    let ended = loop {
        let deliveries = tokio::select! {
            deliveries = source.next_batch() => deliveries,
            () = interrupt.wait() => break Ok(()),
        };
        match deliveries {
            Ok(Some(deliveries)) => match printer.print(deliveries, writer, filter).await {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            },
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    printer.settle().await;
    source.close().await?;
    if !args.quiet && (stdout_is_terminal() || args.group.is_some()) {
        eprintln!("{}", printer.summary(args.group.as_deref()));
    }
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Prints events and finishes them.
struct EventPrinter {
    ack: AckMode,
    left: Option<u64>,
    printed: u64,
    left_out: u64,
    lost: u64,
    /// Leases that are never acked.
    held: Vec<IncomingEvent>,
    acks: FuturesUnordered<SettleAnswer>,
    buffer: Vec<u8>,
}

impl EventPrinter {
    fn new(ack: AckMode, limit: Option<u64>) -> Self {
        let (held, acks, buffer) = (Vec::new(), FuturesUnordered::new(), Vec::new());
        Self { ack, left: limit, printed: 0, left_out: 0, lost: 0, held, acks, buffer }
    }

    /// Prints a batch with one write, and then finishes its events. Returns whether more are wanted.
    async fn print(
        &mut self,
        deliveries: Vec<IncomingEvent>,
        writer: &EventWriter,
        filter: &JqFilter,
    ) -> Result<bool> {
        let events: Vec<&UntypedEvent> = deliveries.iter().map(IncomingEvent::event).collect();
        let passed = filter.passes(&events).await?;
        drop(events);
        self.buffer.clear();
        let mut done = Vec::with_capacity(deliveries.len());
        for (delivery, passes) in deliveries.into_iter().zip(passed) {
            if self.left == Some(0) {
                // A lease that is dropped is given back.
                break;
            }
            match passes {
                true => {
                    writer.write(&mut self.buffer, delivery.event())?;
                    self.printed += 1;
                    self.left = self.left.map(|left| left - 1);
                }
                false => self.left_out += 1,
            }
            done.push(delivery);
        }
        let mut out = std::io::stdout().lock();
        out.write_all(&self.buffer)?;
        out.flush()?;
        drop(out);
        for delivery in done {
            match self.ack {
                AckMode::None => self.held.push(delivery),
                AckMode::Printed => self.acks.extend(delivery.ack()),
                AckMode::Auto => {}
            }
        }
        while self.acks.len() > ACKS_MAX {
            self.settle_one().await;
        }
        Ok(self.left != Some(0))
    }

    async fn settle_one(&mut self) {
        if let Some(Err(_)) = self.acks.next().await {
            self.lost += 1;
        }
    }

    /// Waits for the answers to all acks.
    async fn settle(&mut self) {
        while !self.acks.is_empty() {
            self.settle_one().await;
        }
        self.held.clear();
    }

    fn summary(&self, group: Option<&str>) -> String {
        let mut text = format!("{} event(s) printed", count_text(self.printed));
        if self.left_out > 0 {
            text.push_str(&format!(", {} left out by the filter", count_text(self.left_out)));
        }
        match (group, self.ack) {
            (None, _) => {}
            (Some(group), AckMode::None) => text.push_str(&format!("; `{group}` has finished none of them")),
            (Some(group), _) => text.push_str(&format!("; `{group}` has finished them")),
        }
        if self.lost > 0 {
            text.push_str(&format!(", except {} that come again", count_text(self.lost)));
        }
        text
    }
}

/// Refuses a pattern where one topic is meant.
fn check_topic(topic: &str) -> Result<()> {
    if topic.contains('*') {
        bail!("`{topic}` is a pattern; name one topic");
    }
    Ok(())
}
