//! `promethean replay`: publishes the events of one topic to another, filtered and mapped.
//!
//! The id of a published event is derived from its source, so that a second replay adds nothing as long as
//! the target topic remembers ids (its `dedupe_window`). `--resume` keeps the position in a file, to continue
//! from there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use promethean_jq::{Caps, Pool, Program};
use promethean_model::{EventId, TopicName};
use promethean_schema::VERSION_HEADER;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::output::JsonLine;
use crate::remote::{Remote, block_on};
use crate::target::TargetArgs;

/// Events that are read at once.
const PAGE: usize = 500;
/// Events that are published at once; the server takes no more.
const BATCH: usize = 500;

/// The flags of `promethean replay`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean replay --from orders.placed --to orders.copy --dry-run\n  promethean replay --from a --to b --filter '.payload.total > 100'"
)]
pub(crate) struct ReplayArgs {
    /// The topic to read
    #[arg(long, value_name = "TOPIC")]
    from: TopicName,
    /// The topic to publish to
    #[arg(long, value_name = "TOPIC")]
    to: TopicName,
    /// A jq program; events for which it returns `false`, `null` or nothing are skipped, also by --map and --key
    #[arg(long, value_name = "JQ")]
    filter: Option<String>,
    /// A jq program that makes the payloads to publish from the event; without it, the payload of the event
    #[arg(long, value_name = "JQ")]
    map: Option<String>,
    /// A jq program that makes the key from the event; without it, the key of the event
    #[arg(long, value_name = "JQ")]
    key: Option<String>,
    /// Start at this offset
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// Keep the position in this file, and continue from it if the file exists
    #[arg(long, value_name = "FILE", conflicts_with = "offset")]
    resume: Option<PathBuf>,
    /// Only count what would be published
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    server: TargetArgs,
}

/// The position that `--resume` keeps in its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayPosition {
    from: TopicName,
    to: TopicName,
    next: u64,
}

#[derive(Debug, Deserialize)]
struct RemotePage {
    events: Vec<Box<RawValue>>,
    next: Option<u64>,
}

/// The fields of a source event that a replay needs.
#[derive(Debug, Deserialize)]
struct Source<'a> {
    id: EventId,
    ts: i64,
    offset: u64,
    key: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    tags: Option<Vec<String>>,
    sid: Option<String>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

#[derive(Debug, Default)]
struct Counts {
    read: u64,
    passed_over: u64,
    published: u64,
    duplicates: u64,
}

pub(crate) fn run(args: &ReplayArgs) -> Result<ExitCode> {
    block_on(replay(args))
}

async fn replay(args: &ReplayArgs) -> Result<ExitCode> {
    if args.from == args.to {
        bail!("--from and --to are the same topic; the replay would never end");
    }
    let programs = Programs::new(args)?;
    let remote = Remote::new(&args.server)?;
    let mut next = begin(args)?;
    // Events that are published from now on are not replayed.
    let topic: Value = remote.get(&format!("/topics/{}", args.from)).await?;
    let end = topic
        .get("end")
        .and_then(Value::as_u64)
        .ok_or_else(|| anyhow!("the server does not say where `{}` ends", args.from))?;
    let bar = ProgressBar::new(end.saturating_sub(next));
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} events, {per_sec}, {eta} left") {
        bar.set_style(style);
    }
    let mut counts = Counts::default();
    while next < end {
        let path = format!("/replay?topic={}&from=offset&offset={next}&limit={PAGE}", args.from);
        let page: RemotePage = remote.get(&path).await?;
        let mut sources = Vec::with_capacity(page.events.len());
        for event in &page.events {
            let source: Source<'_> =
                serde_json::from_str(event.get()).context("an event in the answer of the server")?;
            if source.offset < end {
                sources.push((event.get(), source));
            }
        }
        let lines = programs.lines(args, &sources, &mut counts).await?;
        publish(args, &remote, lines, &mut counts).await?;
        let last = sources.last().map(|(_, source)| source.offset + 1);
        next = page.next.or(last).unwrap_or(end).max(next + 1);
        keep(args, next)?;
        bar.inc(PAGE.min(page.events.len()) as u64);
    }
    bar.finish_and_clear();
    let Counts { read, passed_over, published, duplicates } = counts;
    JsonLine::new()
        .with("read", read)
        .with("passed_over", passed_over)
        .with("published", published)
        .with("duplicates", duplicates)
        .with("next", next)
        .print()?;
    Ok(ExitCode::SUCCESS)
}

/// The compiled programs of the flags.
struct Programs {
    pool: Pool,
    filter: Option<Program>,
    map: Option<Program>,
    key: Option<Program>,
}

impl Programs {
    fn new(args: &ReplayArgs) -> Result<Self> {
        let compile = |name: &str, text: &Option<String>| {
            let compiled = text.as_deref().map(Program::compile).transpose();
            compiled.map_err(|error| anyhow!("--{name}: {error}"))
        };
        Ok(Self {
            pool: Pool::new(),
            filter: compile("filter", &args.filter)?,
            map: compile("map", &args.map)?,
            key: compile("key", &args.key)?,
        })
    }

    /// Makes the lines to publish from a page of events. `--map` and `--key` see only the events that `--filter`
    /// keeps.
    async fn lines(
        &self,
        args: &ReplayArgs,
        sources: &[(&str, Source<'_>)],
        counts: &mut Counts,
    ) -> Result<Vec<String>> {
        let all: Vec<_> = sources.iter().collect();
        let kept = match self.run("filter", &self.filter, &all).await? {
            None => all,
            Some(outputs) => {
                let keeps = |output: &Vec<String>| {
                    output.first().is_some_and(|first| first != "false" && first != "null")
                };
                all.into_iter()
                    .zip(&outputs)
                    .filter(|(_, output)| keeps(output))
                    .map(|(source, _)| source)
                    .collect()
            }
        };
        counts.read += sources.len() as u64;
        counts.passed_over += (sources.len() - kept.len()) as u64;
        let mapped = self.run("map", &self.map, &kept).await?;
        let keyed = self.run("key", &self.key, &kept).await?;
        let mut lines = Vec::new();
        for (at, (_, source)) in kept.iter().enumerate() {
            let key = match &keyed {
                None => source.key.clone(),
                Some(keys) => keys.get(at).and_then(|outputs| key_of(outputs)),
            };
            let own = vec![source.payload.get().to_owned()];
            let payloads = mapped.as_ref().and_then(|all| all.get(at)).unwrap_or(&own);
            for (n, payload) in payloads.iter().enumerate() {
                lines.push(line(args, source, n, key.as_deref(), payload)?);
            }
        }
        Ok(lines)
    }

    /// Runs a program on events; `None` without a program.
    async fn run(
        &self,
        name: &str,
        program: &Option<Program>,
        events: &[&(&str, Source<'_>)],
    ) -> Result<Option<Vec<Vec<String>>>> {
        let Some(program) = program else { return Ok(None) };
        let inputs = events.iter().map(|(text, _)| (*text).to_owned()).collect();
        let ran = program.run_each(&self.pool, inputs, Caps::default()).await;
        let outputs = ran.into_iter().zip(events).map(|(output, (_, source))| {
            output.map_err(|error| anyhow!("--{name} at offset {}: {error}", source.offset))
        });
        outputs.collect::<Result<_>>().map(Some)
    }
}

/// The key that a program made: its first output as text, none for `null` and for no output.
fn key_of(outputs: &[String]) -> Option<String> {
    match serde_json::from_str(outputs.first()?).ok()? {
        Value::String(key) => Some(key),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

fn line(
    args: &ReplayArgs,
    source: &Source<'_>,
    n: usize,
    key: Option<&str>,
    payload: &str,
) -> Result<String> {
    let mut name = Vec::new();
    for part in [args.from.as_str(), args.to.as_str()] {
        name.extend_from_slice(part.as_bytes());
        name.push(0);
    }
    name.extend_from_slice(source.id.as_bytes());
    name.extend_from_slice(&source.offset.to_be_bytes());
    name.extend_from_slice(&(n as u64).to_be_bytes());
    let mut opts =
        json!({"id": EventId::derive(b"replay", &name), "ts": source.ts, "caused_by": [source.id]});
    if let Value::Object(fields) = &mut opts {
        // The server sets the version of the schema itself.
        let headers = source.headers.clone().map(|mut headers| {
            headers.remove(VERSION_HEADER);
            headers
        });
        let headers = headers.filter(|headers| !headers.is_empty());
        let more = [
            ("key", key.map(Value::from)),
            ("headers", headers.map(|headers| json!(headers))),
            ("tags", source.tags.clone().map(|tags| json!(tags))),
            ("sid", source.sid.clone().map(Value::from)),
        ];
        fields.extend(more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
    // The payload stays text, so that numbers keep the form they were written in.
    let payload: &RawValue = serde_json::from_str(payload).context("the output of --map")?;
    #[derive(Serialize)]
    struct ReplayLine<'a> {
        payload: &'a RawValue,
        opts: Value,
    }
    Ok(serde_json::to_string(&ReplayLine { payload, opts })?)
}

async fn publish(args: &ReplayArgs, remote: &Remote, lines: Vec<String>, counts: &mut Counts) -> Result<()> {
    for batch in lines.chunks(BATCH) {
        if args.dry_run {
            counts.published += batch.len() as u64;
            continue;
        }
        let path = format!("/publish/{}/batch", args.to);
        let said = remote.ask("POST", &path, batch.join("\n")).await?.ok()?;
        let duplicates = said.get("duplicates").and_then(Value::as_u64).unwrap_or(0);
        counts.duplicates += duplicates;
        counts.published += batch.len() as u64 - duplicates;
    }
    Ok(())
}

/// The offset to start at: that of the file of `--resume` if it exists.
fn begin(args: &ReplayArgs) -> Result<u64> {
    let Some(path) = args.resume.as_deref().filter(|path| path.exists()) else { return Ok(args.offset) };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let position: ReplayPosition = serde_json::from_str(&text)
        .with_context(|| format!("`{}` does not hold the position of a replay", path.display()))?;
    if (&position.from, &position.to) != (&args.from, &args.to) {
        bail!(
            "`{}` is about a replay from `{}` to `{}`; name another file",
            path.display(),
            position.from,
            position.to
        );
    }
    Ok(position.next)
}

/// Writes the position after everything before it was published. A crash in between publishes those events
/// again, which adds nothing.
fn keep(args: &ReplayArgs, next: u64) -> Result<()> {
    let Some(path) = args.resume.as_deref().filter(|_| !args.dry_run) else { return Ok(()) };
    let position = ReplayPosition { from: args.from.clone(), to: args.to.clone(), next };
    let write = |path: &Path, text: &str| -> std::io::Result<()> {
        let beside = path.with_extension("tmp");
        std::fs::write(&beside, text)?;
        std::fs::rename(beside, path)
    };
    write(path, &serde_json::to_string(&position)?)
        .with_context(|| format!("cannot write `{}`", path.display()))
}
