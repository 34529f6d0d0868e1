//! `promethean verify --repair`: sets damage aside and keeps the rest.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use promethean_bench::data_dir;
use promethean_log::{LogRepair, LostEvents, RealDisk, RepairSettings};
use promethean_model::{Clock, SystemClock};
use promethean_store::embedded::{EmbeddedOptions, EmbeddedStore, StoreRepairReport};
use serde_json::{Value, json};

use super::options;

/// Repairs a directory. With `dry_run` it only says what it would do.
pub(super) fn repair(dir: &Path, dry_run: bool) -> Result<StoreRepairReport> {
    let report = if has_state(dir)? { repair_store(dir, dry_run) } else { repair_log(dir, dry_run) };
    report.with_context(|| format!("repair `{}`", dir.display()))
}

/// Whether the directory has state, or had some.
fn has_state(dir: &Path) -> Result<bool> {
    if ["state", "state.repaired"].iter().any(|folder| dir.join(folder).exists()) {
        return Ok(true);
    }
    Ok(LogRepair::begin(Arc::new(RealDisk::new(dir)?))?.state_lsn()? > 0)
}

fn repair_store(dir: &Path, dry_run: bool) -> Result<StoreRepairReport> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let options = EmbeddedOptions { log: options(), ..EmbeddedOptions::default() };
    let clock = Arc::new(SystemClock::new());
    Ok(runtime.block_on(EmbeddedStore::repair(dir, clock, options, dry_run))?)
}

/// Repairs a directory that holds a log only.
fn repair_log(dir: &Path, dry_run: bool) -> Result<StoreRepairReport> {
    let repair = LogRepair::begin(Arc::new(RealDisk::new(dir)?))?;
    let now_ms = SystemClock::new().wall_ms();
    let log = repair.run(RepairSettings { applied_lsn: 0, dry_run, now_ms })?;
    drop(repair);
    if !dry_run {
        // The first open repeats the journal and rebuilds the index.
        data_dir::open(dir, options())?.0.close()?;
    }
    Ok(StoreRepairReport { log, ..StoreRepairReport::default() })
}

/// The report as lines for people.
pub(super) fn lines(report: &StoreRepairReport, dry_run: bool) -> Vec<String> {
    let (log, state) = (&report.log, &report.state);
    let (does, is) = if dry_run { ("would", "would be ") } else { ("repair:", "") };
    let mut lines: Vec<String> = Vec::new();
    lines.extend(log.faults.iter().chain(&state.faults).map(|fault| format!("found: {fault}")));
    lines.extend(log.steps.iter().chain(&state.steps).map(|step| format!("{does} {step}")));
    lines.extend(log.set_aside.iter().map(|(from, to)| format!("{is}set aside: {from} as {to}")));
    lines.extend(state.set_aside.iter().map(|to| format!("{is}set aside: state as {to}")));
    lines.extend(log.lost.iter().map(|lost| format!("{is}lost: {lost}")));
    lines.extend(state.lost.iter().map(|lost| format!("{is}lost: {lost}")));
    lines.extend(log.notes.iter().map(|note| format!("note: {note}")));
    lines
}

/// The report as JSON.
pub(super) fn to_json(report: &StoreRepairReport, dry_run: bool) -> Value {
    let (log, state) = (&report.log, &report.state);
    json!({
        "dry_run": dry_run,
        "faults": log.faults.iter().chain(&state.faults).collect::<Vec<_>>(),
        "steps": log.steps.iter().chain(&state.steps).collect::<Vec<_>>(),
        "set_aside": set_aside_json(report),
        "lost_events": log.lost.iter().map(lost_json).collect::<Vec<_>>(),
        "lost_state": state.lost,
        "notes": log.notes,
    })
}

fn set_aside_json(report: &StoreRepairReport) -> Vec<Value> {
    let pair = |from: &str, to: &str| json!({"from": from, "to": to});
    let files = report.log.set_aside.iter().map(|(from, to)| pair(from, to));
    files.chain(report.state.set_aside.iter().map(|to| pair("state", to))).collect()
}

fn lost_json(lost: &LostEvents) -> Value {
    json!({
        "topic": lost.topic,
        "from_offset": lost.from_offset,
        "to_offset": lost.to_offset,
        "certain": lost.is_certain,
        "ids": lost.ids.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
