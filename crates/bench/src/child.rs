//! Work in a process of its own, to be killed or to have its memory measured.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use promethean_log::{Log, LogOptions, Topic};
use promethean_model::Durability;

use crate::data_dir;
use crate::load::{self, Load};
use crate::log::publish;
use crate::output::{JsonLine, print_line};

const PUBLISHERS: usize = 8;
const OUTSTANDING: usize = 16;
const BATCH_EVENTS: usize = 16;
/// The line that the child prints when all events are published.
const FULL: &str = "full";
/// Further events after which the child is certainly publishing.
const UNDER_WAY: u64 = 1_000;

/// The flags of the hidden `bench child`.
#[derive(Debug, Args)]
pub(crate) struct ChildArgs {
    #[arg(long)]
    task: ChildTask,
    #[arg(long)]
    data: PathBuf,
    #[arg(long)]
    events: u64,
    #[arg(long)]
    event_bytes: u32,
    #[arg(long)]
    keys: u64,
    #[arg(long)]
    topics: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChildTask {
    /// Publishes the events, prints `full`, and goes on publishing until it is killed.
    Fill,
    /// Publishes the events and prints its memory.
    Load,
    /// Subscribes to `topics` groups, waits for `events` seconds, and prints its memory and processor time.
    Idle,
}

/// The arguments of a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildJob<'a> {
    pub(crate) data: &'a Path,
    pub(crate) events: u64,
    pub(crate) event_bytes: usize,
    pub(crate) keys: u64,
    pub(crate) topics: usize,
}

/// Runs the task of the child process.
pub(crate) fn run(args: &ChildArgs) -> Result<()> {
    match args.task {
        ChildTask::Idle => crate::bus::idle_child(&args.data, args.topics as usize, args.events),
        ChildTask::Fill | ChildTask::Load => fill(args),
    }
}

fn fill(args: &ChildArgs) -> Result<()> {
    let (log, _) = data_dir::open(&args.data, LogOptions::default())?;
    let load = Load {
        publishers: PUBLISHERS,
        outstanding: OUTSTANDING,
        batch_events: BATCH_EVENTS,
        one_call: false,
        events: args.events,
        event_bytes: args.event_bytes as usize,
        keys: args.keys,
        durability: Durability::Fsync,
        given_ids: false,
    };
    let topics = load::topics(&log, "child", args.topics as usize, load)?;
    publish(&log, &topics, load)?;
    if args.task == ChildTask::Fill {
        return go_on_until_killed(&log, &topics, load);
    }
    memory_line()?.print()?;
    log.checkpoint()?;
    log.maintain()?;
    memory_line()?.print()
}

/// Prints `full` while further publishes are under way, so that the kill comes in the middle of them.
fn go_on_until_killed(log: &Arc<Log>, topics: &Arc<[Topic]>, load: Load) -> Result<()> {
    let published = || topics.iter().map(Topic::end).sum::<u64>();
    let under_way = published() + UNDER_WAY;
    // Limited, in case the kill never comes.
    let more = Load { events: load.events.max(1_000_000), ..load };
    thread::scope(|scope| {
        let publishing = scope.spawn(|| publish(log, topics, more));
        while published() < under_way && !publishing.is_finished() {
            thread::yield_now();
        }
        print_line(FULL)
    })?;
    bail!("this process was not killed")
}

/// A figure of this process from `/proc`, in KiB.
pub(crate) fn status_kib(name: &str) -> Result<u64> {
    status_kib_of("self", name)
}

/// A figure of a process from `/proc`, in KiB.
pub(crate) fn status_kib_of(process: &str, name: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).context("read a process's status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = line.and_then(|line| line.split_whitespace().next()).with_context(|| name.to_owned())?;
    Ok(value.parse()?)
}

/// The memory and open files of this process, as an output line.
fn memory_line() -> Result<JsonLine> {
    Ok(JsonLine::new()
        .figure("rss_mb", status_kib("VmRSS")? as f64 * 1.024e-3)
        .figure("anon_mb", status_kib("RssAnon")? as f64 * 1.024e-3)
        .figure("peak_mb", status_kib("VmHWM")? as f64 * 1.024e-3)
        .with("open_files", fs::read_dir("/proc/self/fd")?.count()))
}

/// Fills a directory in a child process and kills the child while it publishes.
pub(crate) fn fill_and_kill(job: ChildJob<'_>) -> Result<()> {
    let (mut child, mut out) = spawn(ChildTask::Fill, job)?;
    let mut line = String::new();
    let read = out.read_line(&mut line);
    child.kill()?;
    child.wait()?;
    read?;
    ensure!(line.trim() == FULL, "the filling process ended early");
    Ok(())
}

/// Loads a log in a child process; returns its memory when busy and at rest.
pub(crate) fn load_and_report(job: ChildJob<'_>) -> Result<(serde_json::Value, serde_json::Value)> {
    let lines = lines_of(ChildTask::Load, job)?;
    match &lines[..] {
        [busy, rest] => Ok((serde_json::from_str(busy)?, serde_json::from_str(rest)?)),
        _ => bail!("the loading process printed {} lines", lines.len()),
    }
}

/// Runs a child process to its end; returns the lines it printed.
pub(crate) fn lines_of(task: ChildTask, job: ChildJob<'_>) -> Result<Vec<String>> {
    let (mut child, out) = spawn(task, job)?;
    let lines: Vec<String> = out.lines().collect::<Result<_, _>>()?;
    ensure!(child.wait()?.success(), "a child process failed");
    Ok(lines)
}

fn spawn(task: ChildTask, job: ChildJob<'_>) -> Result<(Child, BufReader<ChildStdout>)> {
    let task = match task {
        ChildTask::Fill => "fill",
        ChildTask::Load => "load",
        ChildTask::Idle => "idle",
    };
    let mut child = Command::new(std::env::current_exe()?)
        .args(["bench", "child", "--task", task])
        .arg("--data")
        .arg(job.data)
        .args(["--events", &job.events.to_string()])
        .args(["--event-bytes", &job.event_bytes.to_string()])
        .args(["--keys", &job.keys.to_string()])
        .args(["--topics", &job.topics.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start a child process")?;
    let out = child.stdout.take().context("the child process has no output")?;
    Ok((child, BufReader::new(out)))
}
