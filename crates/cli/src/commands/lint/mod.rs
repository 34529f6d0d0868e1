//! `promethean lint`: finds mistakes in a configuration, a folder of schemas and a server, for a user's CI.

mod config;
mod coverage;
mod finding;
mod folder;
mod names;
mod server;
mod trial;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use promethean_model::TopicName;
use serde_json::json;

use self::config::Configured;
use self::finding::{LintFinding, LintFindings, LintSeverity};
use self::folder::Known;
use super::exit_code;
use crate::output::print_line;
use crate::remote::block_on;
use crate::schema_files::SchemaFiles;
use crate::target::TargetArgs;

/// The flags of `promethean lint`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean lint --config promethean.toml --strict\n  promethean lint --schemas schemas --url http://127.0.0.1:8090"
)]
pub(crate) struct LintArgs {
    /// Check this configuration and the schemas it names
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check this folder of schemas instead of the one that the configuration names
    #[arg(long, value_name = "DIR")]
    schemas: Option<PathBuf>,
    /// Exit with 1 for warnings too
    #[arg(long)]
    strict: bool,
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
    /// The server whose topics, schemas and a sample of events are checked; none is asked without --url or --context
    #[command(flatten)]
    server: TargetArgs,
}

pub(crate) fn run(args: &LintArgs) -> Result<ExitCode> {
    if args.config.is_none() && args.schemas.is_none() && !args.server.is_named() {
        bail!("there is nothing to check; give --config FILE, --schemas DIR, --url URL or --context NAME");
    }
    let found = block_on(check(args))?;
    print(&found, args.json)?;
    let fails = |finding: &LintFinding| args.strict || finding.severity == LintSeverity::Error;
    Ok(exit_code(!found.iter().any(fails)))
}

async fn check(args: &LintArgs) -> Result<Vec<LintFinding>> {
    let mut findings = LintFindings::default();
    let configured = match &args.config {
        Some(path) => config::check(path, &mut findings)?,
        None => Configured::default(),
    };
    let root = args.schemas.clone().or_else(|| configured.schemas.clone());
    let mut known = Known::new();
    if let Some(root) = &root {
        let files = SchemaFiles::read(root)?;
        known = folder::check(&files, &configured, &mut findings);
        // The trial would report the errors that are known already once more.
        if !findings.has_errors() {
            trial::run(root, &configured, &mut findings).await?;
        }
    }
    let mut covered: BTreeSet<TopicName> = known.keys().cloned().collect();
    if args.server.is_named() {
        let declared = configured.topics.keys().chain(known.keys()).cloned().collect();
        covered.extend(server::check(&args.server, &known, &declared, &mut findings).await?);
    }
    // Without a folder and a server, it is not known where the schemas are.
    if let (Some(path), true) = (&args.config, root.is_some() || args.server.is_named()) {
        for (topic, settings) in &configured.topics {
            let place = config::section(path, topic.as_str());
            coverage::check(topic, settings.schema, &covered, &place, &mut findings);
        }
    }
    if let Some(path) = &args.config {
        config::locate(path, &mut findings);
    }
    Ok(findings.sorted())
}

fn print(found: &[LintFinding], as_json: bool) -> Result<()> {
    let errors = found.iter().filter(|finding| finding.severity == LintSeverity::Error).count();
    let warnings = found.len() - errors;
    if as_json {
        let report = json!({"errors": errors, "warnings": warnings, "findings": found});
        return Ok(print_line(&report.to_string())?);
    }
    for finding in found {
        print_line(&finding.to_string())?;
    }
    Ok(print_line(&format!("{errors} error(s), {warnings} warning(s)"))?)
}
