//! Compares schemas of files, without a server.

use std::path::Path;

use anyhow::{Context, Result, bail};
use promethean_model::Compat;
use promethean_schema::compat::{self, CompatDirection, CompatReport, Undeclared, Verdict};
use promethean_schema::validator;
use serde_json::{Value, json};

use super::{CompatArg, DiffArgs, SchemaCheckArgs, UndeclaredArg, read_schema, table};
use crate::output::print_line;

impl UndeclaredArg {
    fn undeclared(self) -> Undeclared {
        match self {
            Self::Any => Undeclared::Any,
            Self::Absent => Undeclared::Absent,
        }
    }
}

/// Checks whether one file is compatible with another.
pub(super) fn check(args: &SchemaCheckArgs) -> Result<bool> {
    let ([file], Some(against)) = (args.what.as_slice(), &args.against) else {
        bail!("with --against give one file, the new schema");
    };
    let (old, new) = (usable(against)?, usable(Path::new(file))?);
    let compat = match args.compat {
        CompatArg::Backward => Compat::Backward,
        CompatArg::Forward => Compat::Forward,
        CompatArg::Full => Compat::Full,
    };
    let (directions, _) = CompatDirection::asked_by(compat);
    let reports = compared(&old, &new, directions, args.undeclared);
    show(&reports, args.common.output.json)?;
    Ok(reports.iter().all(|(_, report)| report.verdict == Verdict::Compatible))
}

/// Prints what one of two files accepts and the other does not.
pub(super) fn diff_files(args: &DiffArgs) -> Result<bool> {
    let path = |at: usize| args.what.get(at).map(Path::new).context("two files are needed");
    diff(&usable(path(0)?)?, &usable(path(1)?)?, args)
}

pub(super) fn diff(old: &Value, new: &Value, args: &DiffArgs) -> Result<bool> {
    let reports = compared(old, new, &[CompatDirection::Backward, CompatDirection::Forward], args.undeclared);
    show(&reports, args.common.output.json)?;
    Ok(true)
}

fn compared(
    old: &Value,
    new: &Value,
    directions: &[CompatDirection],
    undeclared: UndeclaredArg,
) -> Vec<(CompatDirection, CompatReport)> {
    let check = |direction: &CompatDirection| {
        (*direction, compat::check(old, new, *direction, undeclared.undeclared()))
    };
    directions.iter().map(check).collect()
}

fn usable(path: &Path) -> Result<Value> {
    let text = read_schema(path)?;
    validator::compile(text.value()).with_context(|| format!("`{}`", path.display()))?;
    Ok(text.value().clone())
}

fn show(reports: &[(CompatDirection, CompatReport)], json: bool) -> Result<()> {
    for (direction, report) in reports {
        if json {
            print_line(
                &json!({"direction": direction, "verdict": report.verdict, "findings": report.findings})
                    .to_string(),
            )?;
        } else {
            print_line(&table::heading(*direction, report.verdict))?;
            for finding in &report.findings {
                print_line(&format!("  {}", finding.to_string().replace('\n', "\n  ")))?;
            }
        }
    }
    Ok(())
}
