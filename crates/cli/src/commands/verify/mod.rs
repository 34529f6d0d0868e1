//! `promethean verify`: reads a whole data directory or backup, reports damage, and repairs it if told to.

mod backup;
mod repair;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use promethean_bench::data_dir;
use promethean_log::{LogDamage, LogOpenError, LogOptions, LogVerifyReport, RecoveryReport};
use promethean_model::SystemClock;
use promethean_store::embedded::{self, EmbeddedStore};
use promethean_store::port::Store;
use serde_json::{Value, json};

use super::exit_code;
use crate::backup_set::BackupSet;
use crate::output::{JsonLine, print_line, progress};

/// The flags of `promethean verify`.
#[derive(Debug, Args)]
#[command(after_help = "Stop the server of a data directory first; a backup can be read at any time.

Examples:
  promethean verify promethean-data --repair
  promethean verify /backups/orders --json")]
pub(crate) struct VerifyArgs {
    /// The data directory, or the directory of a backup
    #[arg(value_name = "DIR", required_unless_present = "data")]
    dir: Option<PathBuf>,
    /// The data directory
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    data: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Set damage aside in `quarantine/`, keep all that verifies, and say what is lost. Without this flag the
    /// command says what a repair would do
    #[arg(long)]
    repair: bool,
}

/// The result of a verification.
#[derive(Debug, Default)]
struct Verification {
    opened: RecoveryReport,
    read: LogVerifyReport,
    /// All damage, found when opening or when reading, without repetitions.
    damage: Vec<LogDamage>,
    /// Other faults, in words.
    errors: Vec<String>,
    /// Entries of state that were read; `None` if the directory has no state.
    state_entries: Option<u64>,
}

impl Verification {
    fn new(opened: RecoveryReport, read: LogVerifyReport) -> Verification {
        let mut damage = read.damage.clone();
        damage.extend(opened.damage.iter().filter(|met| !read.damage.contains(met)).cloned());
        let errors = read.errors.clone();
        Verification { opened, read, damage, errors, state_entries: None }
    }

    fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.errors.is_empty() && self.opened.index_rebuilt.is_none()
    }
}

/// Exits with 0 if nothing is damaged and with 1 otherwise; an error means that the directory could not be
/// read.
pub(crate) fn run(args: &VerifyArgs) -> Result<ExitCode> {
    let Some(data) = args.dir.as_ref().or(args.data.as_ref()) else { bail!("name a directory") };
    if BackupSet::is_at(data) {
        ensure!(
            !args.repair,
            "a backup cannot be repaired; run `promethean backup` again, which mends its pieces"
        );
        return backup::run(data, args.json);
    }
    if !data.join("FORMAT").exists() {
        bail!("`{}` is not a data directory: it has no FORMAT file; check the path", data.display());
    }
    let repaired = if args.repair { Some(repair::repair(data, false)?) } else { None };
    let findings = verify(data)?;
    let dry_run = !args.repair;
    let report = match repaired {
        None if !findings.is_clean() => Some(repair::repair(data, true)?),
        repaired => repaired,
    };
    if args.json {
        let report = report.as_ref().map(|report| repair::to_json(report, dry_run));
        line(&findings).with("repair", report).print()?;
    } else {
        for text in report.iter().flat_map(|report| repair::lines(report, dry_run)) {
            print_line(&text)?;
        }
        print_line(&table(&findings))?;
    }
    Ok(exit_code(findings.is_clean()))
}

fn verify(dir: &Path) -> Result<Verification> {
    let findings = if dir.join("state").exists() { verify_store(dir) } else { verify_log(dir) };
    progress("");
    findings.with_context(|| format!("open `{}`", dir.display()))
}

/// Without threads, so that nothing is written while the directory is read.
fn options() -> LogOptions {
    LogOptions { threads: false, ..LogOptions::default() }
}

/// Verifies a directory that holds a log only.
fn verify_log(dir: &Path) -> Result<Verification> {
    match data_dir::open(dir, options()) {
        Ok((log, opened)) => Ok(Verification::new(opened, log.verify(&mut show_progress))),
        Err(LogOpenError::CorruptRange(damage)) => {
            Ok(Verification { damage: vec![damage], ..Verification::default() })
        }
        Err(error) => Err(error.into()),
    }
}

/// Verifies a directory with events and state.
fn verify_store(dir: &Path) -> Result<Verification> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let options = embedded::EmbeddedOptions { log: options(), ..embedded::EmbeddedOptions::default() };
        let opened = EmbeddedStore::open(dir, Arc::new(SystemClock::new()), options).await;
        let (store, opened) = match opened {
            Ok(opened) => opened,
            Err(embedded::OpenError::Log(LogOpenError::CorruptRange(damage))) => {
                return Ok(Verification { damage: vec![damage], ..Verification::default() });
            }
            Err(error) if ["state_corrupt", "state_ahead", "state_behind"].contains(&error.code()) => {
                return Ok(Verification { errors: vec![error.to_string()], ..Verification::default() });
            }
            Err(error) => return Err(error.into()),
        };
        let read = store.verify(show_progress).await;
        store.close().await;
        let read = read?;
        let mut findings = Verification::new(opened, read.log);
        findings.state_entries = Some(read.state_entries);
        let unlisted = read.state_faults.saturating_sub(read.state_details.len() as u64);
        findings.errors.extend(read.state_details.into_iter().map(|fault| format!("state: {fault}")));
        if unlisted > 0 {
            findings.errors.push(format!("state: {unlisted} more entries with faults"));
        }
        Ok(findings)
    })
}

fn show_progress(done: u64, total: u64) {
    progress(&format!("{} of {} MB", done / 1_000_000, total / 1_000_000));
}

fn line(findings: &Verification) -> JsonLine {
    let (opened, read) = (&findings.opened, &findings.read);
    JsonLine::new()
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

fn table(findings: &Verification) -> String {
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
    lines.extend(opened.index_rebuilt.iter().map(|why| format!("the index was rebuilt: {why}")));
    if findings.is_clean() {
        lines.push("everything fits".to_owned());
    } else {
        lines.push("damaged: restore a backup, or run this command again with `--repair`".to_owned());
    }
    lines.join("\n")
}
