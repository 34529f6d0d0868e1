//! `promethean groups` and `promethean seek`: showing, pausing, moving and deleting consumer groups.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use futures_util::stream::TryStreamExt;
use promethean_client::{Client, GroupDescription, StartFrom, TopicProgress};
use serde_json::Value;

use super::consume::parse_position;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{
    Column, OutputArgs, Paint, TextTable, Tone, count_text, print_json, print_line, time_text,
};
use crate::session::with_client;
use crate::target::TargetArgs;

/// The subcommands of `promethean groups`.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupsCommand {
    /// List the groups: how far they are behind, and why they wait
    List(GroupListArgs),
    /// Show one group with its options, topics and members
    #[command(
        after_help = "Examples:\n  promethean groups show billing\n  promethean groups show billing --json"
    )]
    Show(GroupArgs),
    /// Deliver nothing to a group until it is resumed
    #[command(
        after_help = "Examples:\n  promethean groups pause billing\n  promethean groups pause billing --topic orders.placed"
    )]
    Pause(GroupArgs),
    /// Deliver to a paused group again
    #[command(
        after_help = "Examples:\n  promethean groups resume billing\n  promethean groups resume billing --topic orders.placed"
    )]
    Resume(GroupArgs),
    /// Delete a group that has no members, with its position and dead letters
    #[command(
        after_help = "Examples:\n  promethean groups delete billing --yes\n  promethean groups delete billing --topic orders.placed --yes"
    )]
    Delete(GroupDeleteArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean groups list\n  promethean groups list --topic orders.placed --json"
)]
pub(crate) struct GroupListArgs {
    /// Only groups of this topic
    #[arg(long, short, value_name = "TOPIC")]
    topic: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    /// The group
    group: String,
    /// Its topic or pattern; needed if several topics have a group of this name
    #[arg(long, short, value_name = "TOPIC")]
    topic: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GroupDeleteArgs {
    /// Delete it; without this flag the command only says what would be lost
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    group: GroupArgs,
}

/// The flags of `promethean seek`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean seek billing --to \"1h ago\" --dry-run\n  promethean seek billing --to earliest"
)]
pub(crate) struct SeekArgs {
    /// The group
    group: String,
    /// The topic; needed if several topics have a group of this name, or if the group has a pattern
    #[arg(long, short, value_name = "TOPIC")]
    topic: Option<String>,
    /// Where the group goes on: earliest, latest, an offset, a date, "5m ago", or after the id of an event
    #[arg(long, value_name = "WHERE", value_parser = parse_position)]
    to: StartFrom,
    /// Only say what would be delivered again and what would be skipped
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

pub(crate) fn run(command: &GroupsCommand) -> Result<ExitCode> {
    match command {
        GroupsCommand::List(args) => with_client(&args.target, async |client| list(args, client).await),
        GroupsCommand::Show(args) => with_client(&args.target, async |client| show(args, client).await),
        GroupsCommand::Pause(args) => {
            with_client(&args.target, async |client| pause(args, client, true).await)
        }
        GroupsCommand::Resume(args) => {
            with_client(&args.target, async |client| pause(args, client, false).await)
        }
        GroupsCommand::Delete(args) => {
            with_client(&args.group.target, async |client| delete(args, client).await)
        }
    }
}

async fn list(args: &GroupListArgs, client: &Client) -> Result<ExitCode> {
    if let Some(topic) = &args.topic {
        client.admin().topic(topic).await?;
    }
    let groups: Vec<_> = client.admin().groups(args.topic.as_deref()).try_collect().await?;
    if args.output.json {
        groups.iter().try_for_each(print_json)?;
    } else if groups.is_empty() {
        args.output.note("there are no groups; subscribing creates one: promethean sub hello --group first");
    } else {
        table(&groups).print()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The groups as a table.
pub(super) fn table(groups: &[GroupDescription]) -> TextTable {
    let mut table = TextTable::new(&[
        Column::Text("GROUP"),
        Column::Text("TOPIC"),
        Column::Number("LAG"),
        Column::Number("IN FLIGHT"),
        Column::Number("MEMBERS"),
        Column::Text("STATE"),
    ]);
    for group in groups {
        let sum = |field: fn(&TopicProgress) -> u64| group.topics.iter().map(field).sum::<u64>();
        let state = state_of(group);
        let tone = tone_of(&state);
        let cells = [
            group.group.clone(),
            group.topic.clone(),
            count_text(sum(|one| one.lag)),
            count_text(sum(|one| one.in_flight)),
            group.topics.iter().map(|one| one.members).max().unwrap_or(0).to_string(),
            state,
        ];
        table.toned(cells, tone);
    }
    table
}

/// The state of a group in one word: that of its topic, or of its topic that is furthest behind.
pub(super) fn state_of(group: &GroupDescription) -> String {
    let worst = group.topics.iter().max_by_key(|topic| topic.lag);
    match (group.paused, worst) {
        (true, _) => "paused".to_owned(),
        (false, Some(topic)) => topic.reason.clone(),
        (false, None) => "no topic yet".to_owned(),
    }
}

/// How grave a state is.
pub(super) fn tone_of(state: &str) -> Tone {
    match state {
        "caught_up" | "delivering" => Tone::Good,
        "halted" | "stuck" => Tone::Bad,
        "leased" | "no topic yet" => Tone::Faint,
        _ => Tone::Warn,
    }
}

async fn show(args: &GroupArgs, client: &Client) -> Result<ExitCode> {
    let group = find(client, &args.group, args.topic.as_deref()).await?;
    let group = client.admin().group(&group.topic, &group.group).await?;
    if args.output.json {
        print_json(&group)?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::stdout();
    let line = |name: &str, value: &str| {
        print_line(&format!("{}{value}", paint.paint(Tone::Faint, &format!("{name:<16}"))))
    };
    line("group", &paint.paint(Tone::Strong, &group.group))?;
    line("topic", &group.topic)?;
    if let Some(created) = group.more.get("created").and_then(Value::as_i64) {
        line("created", &time_text(created))?;
    }
    let state = state_of(&group);
    line("state", &format!("{}  {}", paint.paint(tone_of(&state), &state), advice(&state)))?;
    for (name, value) in group.more.get("options").and_then(Value::as_object).into_iter().flatten() {
        line(name, &value.as_str().map_or_else(|| value.to_string(), str::to_owned))?;
    }
    print_line("")?;
    let mut table = TextTable::new(&[
        Column::Text("TOPIC"),
        Column::Number("FINISHED UP TO"),
        Column::Number("END"),
        Column::Number("LAG"),
        Column::Number("IN FLIGHT"),
        Column::Number("MEMBERS"),
        Column::Text("STATE"),
    ]);
    for topic in &group.topics {
        let (lag, in_flight) = (count_text(topic.lag), count_text(topic.in_flight));
        let (floor, end, members) =
            (topic.floor.to_string(), topic.end.to_string(), topic.members.to_string());
        let cells = [topic.topic.clone(), floor, end, lag, in_flight, members, topic.reason.clone()];
        table.toned(cells, tone_of(&topic.reason));
    }
    table.print()?;
    Ok(ExitCode::SUCCESS)
}

/// What a state means, and what to do about it.
pub(super) fn advice(state: &str) -> &'static str {
    match state {
        "caught_up" => "every event is finished",
        "no_members" => "no member takes the events; start a consumer",
        "paused" => "nothing is delivered; continue with `promethean groups resume`",
        "credit" => "the members hold as many events as they may; ack, or raise max_in_flight",
        "leased" => "all remaining events are being handled",
        "backoff" => "all remaining events failed and wait for their next attempt",
        "blocked_key" => "all remaining events wait for an earlier event of their key",
        "rate" => "the delivery rate of the member is reached",
        "halted" => "the projector waits for a person; see `promethean ops`",
        "retrying" => "the projector tries an event again; see `promethean ops`",
        "stuck" => "the program of the projector does not end; repair it",
        "window" => "too many events are finished out of order; finish the oldest",
        _ => "",
    }
}

async fn pause(args: &GroupArgs, client: &Client, is_paused: bool) -> Result<ExitCode> {
    let group = find(client, &args.group, args.topic.as_deref()).await?;
    let admin = client.admin();
    let (answer, word) = match is_paused {
        true => (admin.pause(&group.topic, &group.group).await?, "paused"),
        false => (admin.resume(&group.topic, &group.group).await?, "resumed"),
    };
    args.output.done(&format!("group `{}` of `{}` is {word}", group.group, group.topic), &answer)?;
    Ok(ExitCode::SUCCESS)
}

async fn delete(delete: &GroupDeleteArgs, client: &Client) -> Result<ExitCode> {
    let args = &delete.group;
    let group = find(client, &args.group, args.topic.as_deref()).await?;
    if !delete.yes {
        let letters = client
            .admin()
            .dead_letters(&group.topic, &group.group)
            .try_fold(0, async |count, _| Ok(count + 1));
        let lag = group.topics.iter().map(|topic| topic.lag).sum();
        let message = format!(
            "nothing was deleted: group `{}` of `{}` would lose its position, {} event(s) before the end, and {} dead \
             letter(s); add --yes to delete it",
            group.group,
            group.topic,
            count_text(lag),
            letters.await?
        );
        return Err(CommandFailure::new(FailureKind::Usage, message).into());
    }
    let answer = client.admin().delete_group(&group.topic, &group.group).await?;
    args.output.done(&format!("group `{}` of `{}` is deleted", group.group, group.topic), &answer)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn seek(args: &SeekArgs) -> Result<ExitCode> {
    with_client(&args.target, async |client| {
        let topic = one_topic(client, &args.group, args.topic.as_deref()).await?;
        let outcome = client.admin().seek(&topic, &args.group, args.to, args.dry_run).await?;
        let would = if args.dry_run { "would go" } else { "went" };
        let sentence = format!(
            "group `{}` of `{topic}` {would} from offset {} to {}: {} event(s) again, {} skipped",
            args.group,
            outcome.from,
            outcome.to,
            count_text(outcome.replayed),
            count_text(outcome.skipped)
        );
        args.output.done(&sentence, &outcome)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// The group with this name: on the topic, or the only one.
pub(super) async fn find(client: &Client, group: &str, topic: Option<&str>) -> Result<GroupDescription> {
    let admin = client.admin();
    if let Some(topic) = topic {
        return Ok(admin.group(topic, group).await?);
    }
    let named = admin.groups(None).try_filter(|one| std::future::ready(one.group == group));
    let mut found: Vec<_> = named.try_collect().await?;
    match (found.pop(), found.as_slice()) {
        (Some(one), []) => Ok(one),
        (Some(last), others) => {
            let topics: Vec<&str> = others.iter().chain([&last]).map(|one| one.topic.as_str()).collect();
            bail!("several topics have a group `{group}`: {}; name one with --topic", topics.join(", "))
        }
        (None, _) => {
            let message =
                format!("there is no group `{group}` that you may see; `promethean groups list` shows all");
            Err(CommandFailure::new(FailureKind::NotFound, message).into())
        }
    }
}

/// The topic of a group where one topic is meant.
pub(super) async fn one_topic(client: &Client, group: &str, topic: Option<&str>) -> Result<String> {
    if let Some(topic) = topic {
        return Ok(topic.to_owned());
    }
    let found = find(client, group, None).await?;
    if !found.topic.contains('*') {
        return Ok(found.topic);
    }
    match found.topics.as_slice() {
        [only] => Ok(only.topic.clone()),
        topics => {
            let names: Vec<&str> = topics.iter().map(|one| one.topic.as_str()).collect();
            bail!(
                "`{group}` has the pattern `{}`; name one topic with --topic: {}",
                found.topic,
                names.join(", ")
            )
        }
    }
}
