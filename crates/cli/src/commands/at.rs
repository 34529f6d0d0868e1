//! `promethean at`: the state of a key or a collection on a server at a given time.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use promethean_model::{Clock, CollectionName, Moment, SystemClock, TopicName};
use serde_json::Value;

use crate::output::print_line;
use crate::remote::{Remote, block_on, escape};
use crate::target::TargetArgs;

/// The flags of `promethean at`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean at process.state local:stt:1234 --at \"5m ago\"\n  promethean at --collection processes --since \"1h ago\""
)]
pub(crate) struct AtArgs {
    /// The topic
    #[arg(required_unless_present = "collection")]
    topic: Option<TopicName>,
    /// The key
    #[arg(required_unless_present = "collection")]
    key: Option<String>,
    /// Print all documents of a collection that keeps its history, instead of one key of a topic
    #[arg(long, value_name = "NAME", conflicts_with_all = ["topic", "key"])]
    collection: Option<CollectionName>,
    /// The time: a date such as 2027-01-31T12:00:00Z, milliseconds since 1970, or how long ago, such as "5m
    /// ago"
    #[arg(long, value_name = "TIME", default_value = "now", allow_hyphen_values = true)]
    at: String,
    /// With --collection: print the differences between this earlier time and --at
    #[arg(long, value_name = "TIME", requires = "collection", allow_hyphen_values = true)]
    since: Option<String>,
    /// Print the whole answer of the server, not only the state
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: TargetArgs,
}

pub(crate) fn run(args: &AtArgs) -> Result<ExitCode> {
    block_on(async {
        match (&args.collection, &args.topic, &args.key) {
            (Some(collection), _, _) => documents(args, collection).await,
            (None, Some(topic), Some(key)) => state(args, topic, key).await,
            _ => bail!("name a topic and a key, or --collection"),
        }
    })
}

async fn state(args: &AtArgs, topic: &TopicName, key: &str) -> Result<ExitCode> {
    let path = format!("/state/{topic}/{}?at={}", escape(key), escape(&args.at));
    let body: Value = Remote::new(&args.server)?.get(&path).await?;
    let shown = if args.json { &body } else { body.get("state").unwrap_or(&Value::Null) };
    print_line(&shown.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the documents, or their differences, one per line.
async fn documents(args: &AtArgs, collection: &CollectionName) -> Result<ExitCode> {
    let remote = Remote::new(&args.server)?;
    // Computed once, so that all pages are about the same time.
    let now = SystemClock::new().wall_ms();
    let at = Moment::parse(&args.at, now)?.ms();
    let (asked, list) = match &args.since {
        None => (format!("at?at={at}"), "documents"),
        Some(since) => (format!("diff?from={}&to={at}", Moment::parse(since, now)?.ms()), "differences"),
    };
    let mut after: Option<String> = None;
    loop {
        let mut path = format!("/collections/{collection}/{asked}&limit=1000");
        if let Some(after) = &after {
            path.push_str(&format!("&after={}", escape(after)));
        }
        let body: Value = remote.get(&path).await?;
        for one in body.get(list).and_then(Value::as_array).into_iter().flatten() {
            let shown =
                if args.json || args.since.is_some() { one } else { one.get("document").unwrap_or(one) };
            print_line(&shown.to_string())?;
        }
        match body.get("next").and_then(Value::as_str) {
            Some(next) => after = Some(next.to_owned()),
            None => return Ok(ExitCode::SUCCESS),
        }
    }
}
