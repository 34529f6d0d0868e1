//! `promethean verify`: reads a whole data directory and reports what is damaged.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use promethean_log::{Damage, OpenError, Options, RecoveryReport, VerifyReport};
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
    read: VerifyReport,
    /// All damage, met at the open or after it, each once.
    damage: Vec<Damage>,
}

impl Findings {
    fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.read.errors.is_empty() && self.opened.index_rebuilt.is_none()
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
    // Without threads nothing is written behind the reader's back.
    let options = Options { threads: false, ..Options::default() };
    let (log, opened) = match data_dir::open(dir, options) {
        Ok(opened) => opened,
        Err(OpenError::CorruptRange(damage)) => {
            return Ok(Findings { damage: vec![damage], ..Findings::default() });
        }
        Err(error) => return Err(error).with_context(|| format!("open `{}`", dir.display())),
    };
    let read = log.verify(&mut |done, total| {
        progress(&format!("{} of {} MB", done / 1_000_000, total / 1_000_000));
    });
    progress("");
    let mut damage = read.damage.clone();
    for more in &opened.damage {
        if !damage.contains(more) {
            damage.push(more.clone());
        }
    }
    Ok(Findings { opened, read, damage })
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
        .with("index_rebuilt", opened.index_rebuilt.clone())
        .with("damage", findings.damage.iter().map(damage_json).collect::<Vec<_>>())
        .with("errors", read.errors.clone())
}

fn damage_json(damage: &Damage) -> Value {
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
        ("damaged ranges", findings.damage.len() as u64),
        ("unreadable files", read.errors.len() as u64),
    ];
    let mut lines: Vec<String> = rows.iter().map(|(name, count)| format!("{name:<30}{count:>16}")).collect();
    lines.extend(findings.damage.iter().map(|damage| format!("corrupt_range: {damage}")));
    lines.extend(read.errors.iter().map(|error| format!("error: {error}")));
    lines.extend(opened.index_rebuilt.iter().map(|why| format!("the index was built anew: {why}")));
    if findings.is_clean() {
        lines.push("everything fits".to_owned());
    } else {
        lines.push("damaged: see \"Damage\" in docs/operating.md for what to do".to_owned());
    }
    lines.join("\n")
}
