//! `promethean verify BACKUP`: reads a whole backup and reports damage.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::backup_set::BackupSet;
use crate::backup_set::check::{BackupCheck, check};
use crate::commands::exit_code;
use crate::output::{print_json, print_line, progress};

/// Exits with 0 if nothing is damaged and with 1 otherwise.
pub(super) fn run(root: &Path, json: bool) -> Result<ExitCode> {
    let checked = match BackupSet::open(root).and_then(|set| {
        let points = set.points()?;
        check(&set, &points, &mut |done| progress(&format!("{} MB", done / 1_000_000)))
    }) {
        Ok(checked) => checked,
        Err(error) => BackupCheck { errors: vec![format!("{error:#}")], ..BackupCheck::default() },
    };
    progress("");
    if json {
        print_json(&checked)?;
    } else {
        print_line(&table(&checked))?;
    }
    Ok(exit_code(checked.clean))
}

fn table(checked: &BackupCheck) -> String {
    let rows = [
        ("complete points", checked.points),
        ("pieces", checked.pieces),
        ("bytes in pieces", checked.bytes),
        ("damaged ranges", checked.damage.len() as u64),
        ("other faults", checked.errors.len() as u64),
    ];
    let mut lines: Vec<String> = rows.iter().map(|(name, count)| format!("{name:<30}{count:>16}")).collect();
    lines.extend(checked.damage.iter().map(|damage| format!("damaged: {damage}")));
    lines.extend(checked.errors.iter().map(|error| format!("error: {error}")));
    lines.push(match (checked.clean, checked.points) {
        (true, 0) => "there is no complete point; run `promethean backup` again".to_owned(),
        (true, _) => "everything fits".to_owned(),
        (false, _) => "damaged: run `promethean backup` again, which fetches damaged pieces anew".to_owned(),
    });
    lines.join("\n")
}
