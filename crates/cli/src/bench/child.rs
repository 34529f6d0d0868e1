//! Work that needs a process of its own: to be killed, or to have its memory looked at.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use promethean_log::{Log, LogOptions, Topic};
use promethean_model::Durability;

use super::load::{self, Load};
use super::publish::publish;
use crate::args::{ChildArgs, ChildTask};
use crate::data_dir;
use crate::output::{Line, print_line};

const PUBLISHERS: usize = 8;
const OUTSTANDING: usize = 16;
const BATCH_EVENTS: usize = 16;
/// Said when all events are there.
const FULL: &str = "full";
/// Events after which more of them are well under way.
const UNDER_WAY: u64 = 1_000;

/// What a child is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) data: &'a Path,
    pub(crate) events: u64,
    pub(crate) event_bytes: usize,
    pub(crate) keys: u64,
    pub(crate) topics: usize,
}

/// Runs in the child.
pub(crate) fn run(args: &ChildArgs) -> Result<()> {
    match args.task {
        ChildTask::Idle => super::bus::idle_child(&args.data, args.topics as usize, args.events),
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

/// Says that the directory is full when publishing more is well under way.
fn go_on_until_killed(log: &Arc<Log>, topics: &Arc<[Topic]>, load: Load) -> Result<()> {
    let published = || topics.iter().map(Topic::end).sum::<u64>();
    let under_way = published() + UNDER_WAY;
    // An end, if the kill never comes.
    let more = Load { events: load.events.max(1_000_000), ..load };
    thread::scope(|scope| {
        let publishing = scope.spawn(|| publish(log, topics, more));
        while published() < under_way && !publishing.is_finished() {
            thread::yield_now();
        }
        print_line(FULL)
    })?;
    bail!("nobody killed this process")
}

/// A figure that the operating system has of this process, in KiB.
pub(crate) fn status_kib(name: &str) -> Result<u64> {
    status_kib_of("self", name)
}

/// The same of another process, by its id.
pub(crate) fn status_kib_of(process: &str, name: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).context("read a process's status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = line.and_then(|line| line.split_whitespace().next()).with_context(|| name.to_owned())?;
    Ok(value.parse()?)
}

/// Memory and open files of this process.
fn memory_line() -> Result<Line> {
    Ok(Line::new()
        .figure("rss_mb", status_kib("VmRSS")? as f64 * 1.024e-3)
        .figure("anon_mb", status_kib("RssAnon")? as f64 * 1.024e-3)
        .figure("peak_mb", status_kib("VmHWM")? as f64 * 1.024e-3)
        .with("open_files", fs::read_dir("/proc/self/fd")?.count()))
}

/// Fills a directory and kills the process that does it while it goes on publishing.
pub(crate) fn fill_and_kill(job: Job<'_>) -> Result<()> {
    let (mut child, mut out) = spawn(ChildTask::Fill, job)?;
    let mut line = String::new();
    let read = out.read_line(&mut line);
    child.kill()?;
    child.wait()?;
    read?;
    ensure!(line.trim() == FULL, "the filling process ended early");
    Ok(())
}

/// The lines that a loading process printed: its memory when busy and at rest.
pub(crate) fn load_and_report(job: Job<'_>) -> Result<(serde_json::Value, serde_json::Value)> {
    let lines = lines_of(ChildTask::Load, job)?;
    match &lines[..] {
        [busy, rest] => Ok((serde_json::from_str(busy)?, serde_json::from_str(rest)?)),
        _ => bail!("the loading process said {} lines", lines.len()),
    }
}

/// What a process that ends by itself printed.
pub(crate) fn lines_of(task: ChildTask, job: Job<'_>) -> Result<Vec<String>> {
    let (mut child, out) = spawn(task, job)?;
    let lines: Vec<String> = out.lines().collect::<Result<_, _>>()?;
    ensure!(child.wait()?.success(), "a process of its own failed");
    Ok(lines)
}

fn spawn(task: ChildTask, job: Job<'_>) -> Result<(Child, BufReader<ChildStdout>)> {
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
        .context("start a process of its own")?;
    let out = child.stdout.take().context("the process has no output")?;
    Ok((child, BufReader::new(out)))
}
