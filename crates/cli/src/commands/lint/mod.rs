//! `promethean lint`: what is wrong or unwise in a configuration, a folder of schemas and a server, for a user's CI.

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
use self::finding::{Finding, Findings, Severity};
use self::folder::Known;
use crate::output::print_line;
use crate::remote::{ServerArgs, block_on};
use crate::schema_files::SchemaFiles;

/// Exit code of what must be changed.
const EXIT_FOUND: u8 = 1;

#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    /// Look at this configuration, and at the schemas it names
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Look at this folder of schemas, instead of the one that the configuration names
    #[arg(long, value_name = "DIR")]
    schemas: Option<PathBuf>,
    /// Ask this server for its topics, schemas and a sample of events; without it none is asked
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// What the server is to know us by
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
        bail!("there is nothing to look at; give --config FILE, --schemas DIR or --server URL");
    }
    let found = block_on(look(args))?;
    print(&found, args.json)?;
    let grave = |finding: &Finding| args.strict || finding.severity == Severity::Error;
    Ok(if found.iter().any(grave) { ExitCode::from(EXIT_FOUND) } else { ExitCode::SUCCESS })
}

async fn look(args: &LintArgs) -> Result<Vec<Finding>> {
    let mut findings = Findings::default();
    let configured = match &args.config {
        Some(path) => config::check(path, &mut findings)?,
        None => Configured::default(),
    };
    let root = args.schemas.clone().or_else(|| configured.schemas.clone());
    let mut known = Known::new();
    if let Some(root) = &root {
        let files = SchemaFiles::read(root)?;
        known = folder::check(&files, &configured, &mut findings);
        // What is wrong already would be told twice.
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
    // Without either, schemas may be anywhere.
    if let (Some(path), true) = (&args.config, root.is_some() || args.server.is_some()) {
        for (topic, settings) in &configured.topics {
            let place = config::section(path, topic.as_str());
            coverage::check(topic, settings.schema, &covered, &place, &mut findings);
        }
    }
    Ok(findings.sorted())
}

fn print(found: &[Finding], as_json: bool) -> Result<()> {
    let errors = found.iter().filter(|finding| finding.severity == Severity::Error).count();
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
