//! `promethean topics`: showing and changing the topics of a server.

use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use futures_util::stream::TryStreamExt;
use promethean_client::{Client, TopicDescription, TopicSettings};
use promethean_model::{TopicName, plain};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::failure::{CommandFailure, FailureKind};
use crate::output::{
    Column, OutputArgs, Paint, TextTable, Tone, bytes_text, count_text, print_json, print_line,
};
use crate::session::with_client;
use crate::target::TargetArgs;

/// The subcommands of `promethean topics`.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicsCommand {
    /// List the topics with their events and sizes
    List(TopicListArgs),
    /// Show one topic with its settings and groups
    Show(TopicShowArgs),
    /// Create a topic, or change some of its settings
    Set(TopicSetArgs),
    /// Delete a topic with all its events and groups
    Delete(TopicDeleteArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  promethean topics list\n  promethean topics list orders --json")]
pub(crate) struct TopicListArgs {
    /// Only topics whose name contains this text
    contains: Option<String>,
    /// Show topics of the system too, such as dead letters
    #[arg(long, short)]
    all: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean topics show orders.placed\n  promethean topics show orders.placed --json"
)]
pub(crate) struct TopicShowArgs {
    /// The topic
    topic: TopicName,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

const SET_EXAMPLES: &str = "Examples:
  promethean topics set orders.placed retention.age=7d max_attempts=3
  promethean topics set prices.latest compacted=true retention.age=

Settings: retention.age, retention.bytes, retention.count, compacted,
partitions, dedupe_window, durability, schema, compat, undeclared,
max_attempts. A setting without a value gets its default; one that is not
named stays as it is.";

#[derive(Debug, Args)]
#[command(after_help = SET_EXAMPLES)]
pub(crate) struct TopicSetArgs {
    /// The topic
    topic: TopicName,
    /// Settings to change; without any, the topic is created if it does not exist
    #[arg(value_name = "SETTING=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean topics delete load.test\n  promethean topics delete load.test --yes"
)]
pub(crate) struct TopicDeleteArgs {
    /// The topic
    topic: TopicName,
    /// Delete it; without this flag, the command only says what would be lost
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

pub(crate) fn run(command: &TopicsCommand) -> Result<ExitCode> {
    match command {
        TopicsCommand::List(args) => with_client(&args.target, async |client| list(args, client).await),
        TopicsCommand::Show(args) => with_client(&args.target, async |client| show(args, client).await),
        TopicsCommand::Set(args) => with_client(&args.target, async |client| set(args, client).await),
        TopicsCommand::Delete(args) => with_client(&args.target, async |client| delete(args, client).await),
    }
}

async fn list(args: &TopicListArgs, client: &Client) -> Result<ExitCode> {
    let columns = [
        Column::Text("TOPIC"),
        Column::Number("EVENTS"),
        Column::Number("END"),
        Column::Number("SIZE"),
        Column::Text("KEEPS"),
    ];
    let (mut table, mut count, mut hidden) = (TextTable::new(&columns), 0, 0);
    let mut topics = client.admin().topics();
    while let Some(topic) = topics.try_next().await? {
        if args.contains.as_deref().is_some_and(|text| !topic.topic.contains(text)) {
            continue;
        }
        if !args.all && topic.topic.parse::<TopicName>().is_ok_and(|name| name.is_system()) {
            hidden += 1;
            continue;
        }
        count += 1;
        if args.output.json {
            print_json(&topic)?;
            continue;
        }
        let events = count_text(topic.end - topic.earliest);
        table.row([
            topic.topic.clone(),
            events,
            topic.end.to_string(),
            bytes_text(topic.bytes),
            keeps(&topic.settings),
        ]);
    }
    if args.output.json {
        return Ok(ExitCode::SUCCESS);
    }
    match count {
        0 => args
            .output
            .note("there are no topics; the first event creates one: promethean pub hello '{\"x\": 1}'"),
        _ => table.print()?,
    }
    if hidden > 0 {
        args.output.note(&format!("{hidden} topic(s) of the system are not shown; --all shows them"));
    }
    Ok(ExitCode::SUCCESS)
}

/// What retention and compaction leave of a topic, in a few words.
fn keeps(settings: &Value) -> String {
    let mut words = Vec::new();
    if settings.get("compacted") == Some(&Value::Bool(true)) {
        words.push("latest of each key".to_owned());
    }
    for (name, value) in settings.get("retention").and_then(Value::as_object).into_iter().flatten() {
        words.push(format!("{name} {}", text_of(value)));
    }
    if words.is_empty() { "everything".to_owned() } else { words.join(", ") }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

async fn show(args: &TopicShowArgs, client: &Client) -> Result<ExitCode> {
    let topic = client.admin().topic(args.topic.as_str()).await?;
    if args.output.json {
        print_json(&topic)?;
        return Ok(ExitCode::SUCCESS);
    }
    print_topic(&topic)?;
    let groups: Vec<_> = client.admin().groups(Some(args.topic.as_str())).try_collect().await?;
    if !groups.is_empty() {
        print_line("")?;
        super::groups::table(&groups).print()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_topic(topic: &TopicDescription) -> Result<()> {
    let paint = Paint::stdout();
    let line = |name: &str, value: &str| {
        print_line(&format!("{}{value}", paint.paint(Tone::Faint, &format!("{name:<16}"))))
    };
    line("topic", &paint.paint(Tone::Strong, &topic.topic))?;
    let events = count_text(topic.end - topic.earliest);
    line("events", &format!("{events} (offsets {} to {})", topic.earliest, topic.end.saturating_sub(1)))?;
    line("size", &bytes_text(topic.bytes))?;
    for (name, value) in topic.settings.as_object().into_iter().flatten() {
        match value {
            Value::Object(fields) => {
                for (field, value) in fields {
                    line(&format!("{name}.{field}"), &text_of(value))?;
                }
            }
            value => line(name, &text_of(value))?,
        }
    }
    Ok(())
}

async fn set(args: &TopicSetArgs, client: &Client) -> Result<ExitCode> {
    let admin = client.admin();
    let (before, is_new) = match admin.topic(args.topic.as_str()).await {
        Ok(topic) => (topic.settings, false),
        Err(error) if error.code() == "unknown_topic" => (Value::Object(Map::new()), true),
        Err(error) => return Err(error.into()),
    };
    let settings = changed(before, &args.settings)?;
    let topic = admin.set_topic(args.topic.as_str(), &settings).await?;
    let sentence = match (is_new, args.settings.is_empty()) {
        (true, _) => format!("topic `{}` is created", args.topic),
        (false, true) => format!("topic `{}` exists; no setting was named", args.topic),
        (false, false) => format!("topic `{}` is changed: {}", args.topic, args.settings.join(", ")),
    };
    args.output.done(&sentence, &topic)?;
    if !is_new && args.settings.iter().any(|setting| setting.starts_with("max_attempts")) {
        args.output.note("groups that exist keep their number of attempts; new groups get this one");
    }
    Ok(ExitCode::SUCCESS)
}

/// The settings with these changes.
fn changed(before: Value, changes: &[String]) -> Result<TopicSettings> {
    let mut settings = before;
    for change in changes {
        let Some((name, value)) = change.split_once('=') else {
            bail!("`{change}` is no setting; write SETTING=VALUE, as in retention.age=7d");
        };
        let mut place = &mut settings;
        let mut parts = name.split('.').peekable();
        while let Some(part) = parts.next() {
            let Value::Object(fields) = place else {
                bail!("`{name}` is no setting; `promethean topics show TOPIC` lists those there are")
            };
            if parts.peek().is_some() {
                place = fields.entry(part).or_insert_with(|| Value::Object(Map::new()));
            } else if value.is_empty() {
                fields.remove(part);
                break;
            } else {
                let is_plain = |value: &Value| value.is_number() || value.is_boolean();
                let read = serde_json::from_str(value).ok().filter(is_plain);
                fields.insert(part.to_owned(), read.unwrap_or_else(|| Value::String(value.to_owned())));
                break;
            }
        }
        // Read after each change, so that the refusal names the one that is wrong.
        read_settings(&settings).map_err(|reason| anyhow!("`{change}`: {reason}"))?;
    }
    let settings = read_settings(&settings)
        .map_err(|reason| anyhow!("the settings that the server has are not understood: {reason}"))?;
    settings.validate()?;
    Ok(settings)
}

fn read_settings(settings: &Value) -> Result<TopicSettings, String> {
    TopicSettings::deserialize(settings).map_err(|error| plain::json_reason(&error))
}

async fn delete(args: &TopicDeleteArgs, client: &Client) -> Result<ExitCode> {
    let admin = client.admin();
    let topic = admin.topic(args.topic.as_str()).await?;
    if !args.yes {
        let groups =
            admin.groups(Some(args.topic.as_str())).try_fold(0, async |count, _| Ok(count + 1)).await?;
        let message = format!(
            "nothing was deleted: `{}` has {} event(s) and {groups} group(s), which would be lost; add --yes to delete it",
            args.topic,
            count_text(topic.end - topic.earliest)
        );
        return Err(CommandFailure::new(FailureKind::Usage, message).into());
    }
    let answer = admin.delete_topic(args.topic.as_str()).await?;
    args.output.done(&format!("topic `{}` is deleted", args.topic), &answer)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_change_one_by_one() {
        let before = serde_json::json!({"retention": {"age": "7d"}, "max_attempts": 3});
        let change = |changes: &[&str]| {
            changed(before.clone(), &changes.iter().map(|change| (*change).to_owned()).collect::<Vec<_>>())
        };
        let settings = change(&["compacted=true", "retention.count=5"]).unwrap();
        assert!(settings.compacted && settings.max_attempts == 3);
        assert_eq!(
            (settings.retention.age.map(|age| age.get()), settings.retention.count),
            (Some(604_800_000), Some(5))
        );
        assert_eq!(change(&["retention.age="]).unwrap().retention.age, None);
        assert_eq!(change(&["max_attempts="]).unwrap().max_attempts, 5);
        for wrong in ["nonsense=1", "compacted=maybe", "max_attempts", "max_attempts=0", "max_attempts.x=1"] {
            assert!(change(&[wrong]).is_err(), "{wrong}");
        }
    }
}
