//! `promethean dlq`: the dead letters of a group.

use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use futures_util::stream::{StreamExt, TryStreamExt};
use promethean_client::{ChosenLetters, Client, LetterOutcome, LetterTarget, OpenLetter};
use promethean_jq::{Caps, Pool, Program};
use promethean_model::EventId;
use serde_json::{Value, json};

use super::groups::one_topic;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{Column, OutputArgs, TextTable, count_text, print_json, print_line, time_text};
use crate::session::with_client;
use crate::target::TargetArgs;

/// Letters that are named in one request, at most.
const NAMED_MAX: usize = 500;

/// The subcommands of `promethean dlq`.
#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List the dead letters of a group: events that it gave up
    List(LetterListArgs),
    /// Show dead letters with their events, as JSON
    Show(LetterShowArgs),
    /// Deliver dead letters again, to the group or as new events to the whole topic
    Redrive(LetterRedriveArgs),
    /// Close dead letters; the topic of the dead letters keeps them
    Drop(LetterDropArgs),
}

/// The flags that name a group.
#[derive(Debug, Args)]
pub(crate) struct LetterGroupArgs {
    /// The group
    group: String,
    /// The topic; needed if several topics have a group of this name, or if the group has a pattern
    #[arg(long, short, value_name = "TOPIC")]
    topic: Option<String>,
}

/// The flags that choose letters.
#[derive(Debug, Args)]
pub(crate) struct LetterChoiceArgs {
    /// Offsets or ids of events
    #[arg(value_name = "OFFSET|ID")]
    named: Vec<String>,
    /// All letters of the group
    #[arg(long, conflicts_with = "named")]
    all: bool,
    /// Letters for which this jq program gives neither false nor null, as in '.reason | test("timeout")'
    #[arg(long, value_name = "JQ", conflicts_with_all = ["named", "all"])]
    filter: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean dlq list billing\n  promethean dlq list billing --limit 1000 --json"
)]
pub(crate) struct LetterListArgs {
    #[command(flatten)]
    group: LetterGroupArgs,
    /// List at most this many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean dlq show billing 17\n  promethean dlq show billing --filter '.attempts > 3'"
)]
pub(crate) struct LetterShowArgs {
    #[command(flatten)]
    group: LetterGroupArgs,
    #[command(flatten)]
    choice: LetterChoiceArgs,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean dlq redrive billing 17 18\n  promethean dlq redrive billing --to topic --filter '.attempts > 3'"
)]
pub(crate) struct LetterRedriveArgs {
    #[command(flatten)]
    group: LetterGroupArgs,
    #[command(flatten)]
    choice: LetterChoiceArgs,
    /// Deliver them to the group that gave them up, or to the topic as new events for all groups
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = RedriveWhere::Group)]
    to: RedriveWhere,
    /// Only say how many letters are meant
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean dlq drop billing 17\n  promethean dlq drop billing --all --dry-run"
)]
pub(crate) struct LetterDropArgs {
    #[command(flatten)]
    group: LetterGroupArgs,
    #[command(flatten)]
    choice: LetterChoiceArgs,
    /// Only say how many letters are meant
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RedriveWhere {
    Group,
    Topic,
}

pub(crate) fn run(command: &DlqCommand) -> Result<ExitCode> {
    match command {
        DlqCommand::List(args) => with_client(&args.target, async |client| list(args, client).await),
        DlqCommand::Show(args) => with_client(&args.target, async |client| show(args, client).await),
        DlqCommand::Redrive(args) => with_client(&args.target, async |client| redrive(args, client).await),
        DlqCommand::Drop(args) => with_client(&args.target, async |client| drop_letters(args, client).await),
    }
}

async fn list(args: &LetterListArgs, client: &Client) -> Result<ExitCode> {
    let LetterGroupArgs { group, topic } = &args.group;
    let topic = one_topic(client, group, topic.as_deref()).await?;
    let mut letters = client.admin().dead_letters(&topic, group);
    let mut table = TextTable::new(&[
        Column::Number("OFFSET"),
        Column::Text("GIVEN UP"),
        Column::Number("ATTEMPTS"),
        Column::Text("KEY"),
        Column::Text("REASON"),
        Column::Text("BY"),
        Column::Text("PAYLOAD"),
    ]);
    let mut count = 0;
    while let Some(letter) = letters.try_next().await? {
        if count == args.limit {
            args.output.note(&format!("there are more than {count}; --limit shows more"));
            break;
        }
        count += 1;
        if args.output.json {
            print_json(&letter)?;
            continue;
        }
        let last = letter.more.get("last_ts").and_then(Value::as_i64).map(time_text).unwrap_or_default();
        let (key, payload) = match &letter.event {
            Some(event) => (event.key.clone().unwrap_or_default(), event.payload.to_string()),
            None => (String::new(), "the event is gone".to_owned()),
        };
        let by = letter.more.get("by").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (offset, attempts) = (letter.offset.to_string(), letter.attempts.to_string());
        let reason = match letter.more.get("last_error").and_then(Value::as_str) {
            Some(error) => format!("{}, before: {error}", letter.reason),
            None => letter.reason,
        };
        table.row([offset, last, attempts, key, reason, by, payload]);
    }
    match (count, args.output.json) {
        (0, _) => args.output.note(&format!("`{group}` has no dead letters on `{topic}`")),
        (_, true) => {}
        (_, false) => table.print()?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(args: &LetterShowArgs, client: &Client) -> Result<ExitCode> {
    let LetterGroupArgs { group, topic } = &args.group;
    let topic = one_topic(client, group, topic.as_deref()).await?;
    let wanted = choose(&args.choice)?;
    let mut letters = client.admin().dead_letters(&topic, group);
    let mut found = 0_u64;
    while let Some(letter) = letters.try_next().await? {
        if wanted.has(&letter).await? {
            print_line(&serde_json::to_string_pretty(&letter)?)?;
            found += 1;
        }
    }
    match found {
        0 => Err(CommandFailure::new(
            FailureKind::NotFound,
            format!("`{group}` has no such dead letter on `{topic}`"),
        )
        .into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

async fn redrive(args: &LetterRedriveArgs, client: &Client) -> Result<ExitCode> {
    let LetterGroupArgs { group, topic } = &args.group;
    let topic = one_topic(client, group, topic.as_deref()).await?;
    let chosen = chosen(client, &topic, group, &choose(&args.choice)?, args.dry_run).await?;
    let (admin, mut total) = (client.admin(), LetterTotal::default());
    let to = match args.to {
        RedriveWhere::Group => LetterTarget::Group,
        RedriveWhere::Topic => LetterTarget::Topic,
    };
    for letters in &chosen.requests {
        total.add(&admin.redrive(&topic, group, letters, to).await?);
    }
    if args.dry_run {
        return dry_run(args.output, chosen.count, "delivered again");
    }
    let goal = if args.to == RedriveWhere::Group {
        format!("`{group}`")
    } else {
        format!("`{topic}`, as new events")
    };
    total.report(args.output, &format!("{} dead letter(s) go to {goal}", count_text(total.redriven)))
}

async fn drop_letters(args: &LetterDropArgs, client: &Client) -> Result<ExitCode> {
    let LetterGroupArgs { group, topic } = &args.group;
    let topic = one_topic(client, group, topic.as_deref()).await?;
    let chosen = chosen(client, &topic, group, &choose(&args.choice)?, args.dry_run).await?;
    let (admin, mut total) = (client.admin(), LetterTotal::default());
    for letters in &chosen.requests {
        total.add(&admin.drop_letters(&topic, group, letters).await?);
    }
    if args.dry_run {
        return dry_run(args.output, chosen.count, "closed");
    }
    total.report(args.output, &format!("{} dead letter(s) are closed", count_text(total.dropped)))
}

fn dry_run(output: OutputArgs, count: u64, what: &str) -> Result<ExitCode> {
    output.done(
        &format!("{} dead letter(s) would be {what}", count_text(count)),
        &json!({"selected": count, "applied": false}),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// What became of all chosen letters.
#[derive(Debug, Default)]
struct LetterTotal {
    selected: u64,
    redriven: u64,
    dropped: u64,
}

impl LetterTotal {
    fn add(&mut self, outcome: &LetterOutcome) {
        self.selected += outcome.selected;
        self.redriven += outcome.redriven;
        self.dropped += outcome.dropped;
    }

    /// Prints the total. Finding none of the named letters is a failure.
    fn report(&self, output: OutputArgs, sentence: &str) -> Result<ExitCode> {
        let answer = json!({"selected": self.selected, "redriven": self.redriven, "dropped": self.dropped});
        if self.selected == 0 {
            output.done("no dead letter is meant by this", &answer)?;
            return Ok(FailureKind::NotFound.code());
        }
        output.done(sentence, &answer)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Letters as the flags choose them.
enum LetterWanted {
    All,
    Named(Vec<u64>, Vec<EventId>),
    Program(Box<Program>, Pool),
}

fn choose(args: &LetterChoiceArgs) -> Result<LetterWanted> {
    if args.all {
        return Ok(LetterWanted::All);
    }
    if let Some(text) = &args.filter {
        let program = Program::compile(text).map_err(|error| anyhow!("--filter: {error}"))?;
        return Ok(LetterWanted::Program(Box::new(program), Pool::new()));
    }
    let (mut offsets, mut ids) = (Vec::new(), Vec::new());
    for name in &args.named {
        match (name.parse::<u64>(), name.parse::<EventId>()) {
            (Ok(offset), _) => offsets.push(offset),
            (_, Ok(id)) => ids.push(id),
            _ => bail!("`{name}` is neither an offset nor the id of an event"),
        }
    }
    if offsets.is_empty() && ids.is_empty() {
        bail!("say which dead letters: their offsets or ids, --filter JQ, or --all");
    }
    Ok(LetterWanted::Named(offsets, ids))
}

impl LetterWanted {
    async fn has(&self, letter: &OpenLetter) -> Result<bool> {
        Ok(match self {
            Self::All => true,
            Self::Named(offsets, ids) => {
                offsets.contains(&letter.offset)
                    || letter.event.as_ref().is_some_and(|event| ids.contains(&event.id))
            }
            Self::Program(program, pool) => {
                let output = program.run(pool, &serde_json::to_string(letter)?, Caps::default()).await;
                let output =
                    output.map_err(|error| anyhow!("--filter fails at offset {}: {error}", letter.offset))?;
                output.first().is_some_and(|first| first != "false" && first != "null")
            }
        })
    }
}

/// The requests that name the chosen letters, and how many letters these are if that was looked up.
struct ChosenRequests {
    requests: Vec<ChosenLetters>,
    count: u64,
}

async fn chosen(
    client: &Client,
    topic: &str,
    group: &str,
    wanted: &LetterWanted,
    is_dry_run: bool,
) -> Result<ChosenRequests> {
    let by_name = match (wanted, is_dry_run) {
        (LetterWanted::All, false) => vec![ChosenLetters::All],
        (LetterWanted::Named(offsets, ids), false) => {
            let offsets = offsets.chunks(NAMED_MAX).map(|part| ChosenLetters::Offsets(part.to_vec()));
            offsets.chain(ids.chunks(NAMED_MAX).map(|part| ChosenLetters::Ids(part.to_vec()))).collect()
        }
        _ => {
            let mut offsets = Vec::new();
            let mut letters = client.admin().dead_letters(topic, group);
            while let Some(letter) = letters.next().await {
                let letter = letter?;
                if wanted.has(&letter).await? {
                    offsets.push(letter.offset);
                }
            }
            let count = offsets.len() as u64;
            let requests = match is_dry_run {
                true => Vec::new(),
                false => {
                    offsets.chunks(NAMED_MAX).map(|part| ChosenLetters::Offsets(part.to_vec())).collect()
                }
            };
            return Ok(ChosenRequests { requests, count });
        }
    };
    Ok(ChosenRequests { requests: by_name, count: 0 })
}
