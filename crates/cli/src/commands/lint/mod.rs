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
use promethean_gateway::auth::Secret;
use promethean_model::TopicName;
use serde_json::json;

use self::config::Configured;
use self::finding::{LintFinding, LintFindings, LintSeverity};
use self::folder::Known;
use super::exit_code;
use crate::output::print_line;
use crate::remote::{ServerArgs, block_on};
use crate::schema_files::SchemaFiles;

/// The flags of `promethean lint`.
#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    /// Check this configuration and the schemas it names
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check this folder of schemas instead of the one that the configuration names
    #[arg(long, value_name = "DIR")]
    schemas: Option<PathBuf>,
    /// Check the topics, schemas and a sample of events of this server; without it no server is asked
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The token to send to the server
    #[arg(long, value_name = "TOKEN", env = "PROMETHEAN_TOKEN", hide_env_values = true)]
    token: Option<Secret>,
    /// Trust the certificate authorities in this file instead of the machine's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Exit with 1 for warnings too
    #[arg(long)]
    strict: bool,
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &LintArgs) -> Result<ExitCode> {
    if args.config.is_none() && args.schemas.is_none() && args.server.is_none() {
        bail!("there is nothing to check; give --config FILE, --schemas DIR or --server URL");
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
    if let Some(server) = &args.server {
        let declared = configured.topics.keys().chain(known.keys()).cloned().collect();
        let (token, ca_file) = (args.token.clone(), args.ca_file.clone());
        let server = ServerArgs { server: server.clone(), token, ca_file };
        covered.extend(server::check(&server, &known, &declared, &mut findings).await?);
    }
    // Without a folder and a server, it is not known where the schemas are.
    if let (Some(path), true) = (&args.config, root.is_some() || args.server.is_some()) {
        for (topic, settings) in &configured.topics {
            let place = config::section(path, topic.as_str());
            coverage::check(topic, settings.schema, &covered, &place, &mut findings);
        }
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
