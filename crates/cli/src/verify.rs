//! `promethean verify`: reads a whole data directory and reports what is damaged.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use promethean_log::{LogDamage, LogOpenError, LogOptions, LogVerifyReport, RecoveryReport};
use promethean_model::SystemClock;
use promethean_store::embedded::{self, EmbeddedStore};
use promethean_store::port::Store;
use serde_json::{Value, json};

use crate::args::VerifyArgs;
use crate::data_dir;
use crate::output::{Line, print_line, progress};

/// Exit code when something is damaged.
const EXIT_DAMAGED: u8 = 1;

/// Everything a verification found out.
#[derive(Debug, Default)]
struct Findings {
    opened: RecoveryReport,
    read: LogVerifyReport,
    /// All damage, met at the open or after it, each once.
    damage: Vec<LogDamage>,
    /// What could not be read, or does not fit, in words.
    errors: Vec<String>,
    /// Entries of state that were read; `None` where there is no state.
    state_entries: Option<u64>,
}

impl Findings {
    fn new(opened: RecoveryReport, read: LogVerifyReport) -> Findings {
        let mut damage = read.damage.clone();
        damage.extend(opened.damage.iter().filter(|met| !read.damage.contains(met)).cloned());
        let errors = read.errors.clone();
        Findings { opened, read, damage, errors, state_entries: None }
    }

    fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.errors.is_empty() && self.opened.index_rebuilt.is_none()
    }
}

/// Exits with 0 if all is well and with 1 if something is damaged; an error means that nothing could be looked at.
pub(crate) fn run(args: &VerifyArgs) -> Result<ExitCode> {
    let findings = look(&args.data)?;
    if args.json {
        line(&findings).print()?;
    } else {
        print_line(&table(&findings))?;
    }
    Ok(if findings.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DAMAGED) })
}

fn look(dir: &Path) -> Result<Findings> {
    if !dir.join("FORMAT").exists() {
        bail!("`{}` is not a data directory: it has no FORMAT file; check the path", dir.display());
    }
    let findings = if dir.join("state").exists() { look_at_store(dir) } else { look_at_log(dir) };
    progress("");
    findings.with_context(|| format!("open `{}`", dir.display()))
}

/// Without threads nothing is written behind the reader's back.
fn options() -> LogOptions {
    LogOptions { threads: false, ..LogOptions::default() }
}

/// A directory that a log has used alone.
fn look_at_log(dir: &Path) -> Result<Findings> {
    match data_dir::open(dir, options()) {
        Ok((log, opened)) => Ok(Findings::new(opened, log.verify(&mut show_progress))),
        Err(LogOpenError::CorruptRange(damage)) => {
            Ok(Findings { damage: vec![damage], ..Findings::default() })
        }
        Err(error) => Err(error.into()),
    }
}

/// A directory with events and state.
fn look_at_store(dir: &Path) -> Result<Findings> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let options = embedded::Options { log: options(), ..embedded::Options::default() };
        let opened = EmbeddedStore::open(dir, Arc::new(SystemClock::new()), options).await;
        let (store, opened) = match opened {
            Ok(opened) => opened,
            Err(embedded::OpenError::Log(LogOpenError::CorruptRange(damage))) => {
                return Ok(Findings { damage: vec![damage], ..Findings::default() });
            }
            Err(error @ embedded::OpenError::StateCorrupt { .. }) => {
                return Ok(Findings { errors: vec![error.to_string()], ..Findings::default() });
            }
            Err(error) => return Err(error.into()),
        };
        let read = store.verify(show_progress).await;
        store.close().await;
        let read = read?;
        let mut findings = Findings::new(opened, read.log);
        findings.state_entries = Some(read.state_entries);
        let unlisted = read.state_faults.saturating_sub(read.state_details.len() as u64);
        findings.errors.extend(read.state_details.into_iter().map(|fault| format!("state: {fault}")));
        if unlisted > 0 {
            findings.errors.push(format!("state: {unlisted} more entries that do not fit"));
        }
        Ok(findings)
    })
}

fn show_progress(done: u64, total: u64) {
    progress(&format!("{} of {} MB", done / 1_000_000, total / 1_000_000));
}

fn line(findings: &Findings) -> Line {
    let (opened, read) = (&findings.opened, &findings.read);
    Line::new()
        .with("clean", findings.is_clean())
        .with("topics", read.topics)
        .with("segments", read.segments)
        .with("records", read.records)
        .with("bytes", read.bytes)
        .with("runs", read.runs)
        .with("journal_events", opened.events)
        .with("torn_bytes", opened.torn_bytes)
        .with("state_entries", findings.state_entries)
        .with("index_rebuilt", opened.index_rebuilt.clone())
        .with("damage", findings.damage.iter().map(damage_json).collect::<Vec<_>>())
        .with("errors", findings.errors.clone())
}

fn damage_json(damage: &LogDamage) -> Value {
    json!({
        "file": damage.file,
        "from_byte": damage.from_byte,
        "to_byte": damage.to_byte,
        "topic": damage.topic,
        "from_offset": damage.from_offset,
        "to_offset": damage.to_offset,
        "what": damage.what,
    })
}

fn table(findings: &Findings) -> String {
    let (opened, read) = (&findings.opened, &findings.read);
    let rows = [
        ("topics", read.topics),
        ("segments", read.segments),
        ("records in segments", read.records),
        ("bytes in segments", read.bytes),
        ("index runs", read.runs),
        ("records only in the journal", opened.events),
        ("unacknowledged journal bytes", opened.torn_bytes),
        ("entries of state", findings.state_entries.unwrap_or(0)),
        ("damaged ranges", findings.damage.len() as u64),
        ("other faults", findings.errors.len() as u64),
    ];
    let mut lines: Vec<String> = rows.iter().map(|(name, count)| format!("{name:<30}{count:>16}")).collect();
    lines.extend(findings.damage.iter().map(|damage| format!("corrupt_range: {damage}")));
    lines.extend(findings.errors.iter().map(|error| format!("error: {error}")));
    lines.extend(opened.index_rebuilt.iter().map(|why| format!("the index was built anew: {why}")));
    if findings.is_clean() {
        lines.push("everything fits".to_owned());
    } else {
        lines.push("damaged: see \"Damage\" in docs/operating.md for what to do".to_owned());
    }
    lines.join("\n")
}
