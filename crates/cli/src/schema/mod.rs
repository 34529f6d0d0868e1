//! `promethean schema`: schemas of topics, on a server or in files.

mod compare;
mod remote;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use promethean_model::TopicName;
use promethean_schema::{SCHEMA_BYTES_MAX, SchemaText};

use crate::remote::{ServerArgs, block_on};

/// Exit code of a schema that does not fit, a payload that is refused, or events that cannot be lifted.
const EXIT_REFUSED: u8 = 1;

#[derive(Debug, Subcommand)]
pub(crate) enum SchemaCommand {
    /// Register a schema as a topic's next version
    Add(AddArgs),
    /// List topics with schemas, or the versions of one
    List(ListArgs),
    /// Print a version
    Show(ShowArgs),
    /// Say whether a schema fits a topic's versions, or another file; exits with 1 if it does not
    Check(CheckArgs),
    /// Say what two versions, or two files, accept that the other does not
    Diff(DiffArgs),
    /// Hold a payload against a topic's schema; exits with 1 if it does not fit
    Validate(ValidateArgs),
    /// Try the upcasters on all stored events of a topic; exits with 1 if any fails
    Migrate(MigrateArgs),
    /// Delete a version that no event was published with
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    server: ServerArgs,
    /// Print what the server says as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    topic: TopicName,
    /// The schema; `-` reads standard input
    file: PathBuf,
    /// Its number, above that of the latest version
    #[arg(long = "as-version", value_name = "N")]
    number: Option<u32>,
    /// Register it also if the comparison cannot decide
    #[arg(long)]
    force: bool,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    topic: Option<TopicName>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    topic: TopicName,
    /// The latest if left out
    #[arg(value_name = "VERSION")]
    number: Option<u32>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The topic on the server to compare with, if no file is, and the new schema
    #[arg(num_args = 1..=2, required = true, value_name = "TOPIC NEW.json | NEW.json --against OLD.json")]
    what: Vec<String>,
    /// Compare with this file; no server is asked
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// With --against: what the new schema may change
    #[arg(long, value_enum, default_value_t = Rule::Backward, requires = "against")]
    compat: Rule,
    /// With --against: what open objects are taken to hold beside their declared properties
    #[arg(long, value_enum, default_value_t = Beside::Any, requires = "against")]
    undeclared: Beside,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rule {
    /// The new schema accepts what the old one accepted
    Backward,
    /// The old schema accepts what the new one accepts
    Forward,
    /// Both
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Beside {
    /// Anything
    Any,
    /// Nothing
    Absent,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A topic and two of its versions, or two files
    #[arg(num_args = 2..=3, required = true, value_name = "TOPIC FROM TO | OLD.json NEW.json")]
    what: Vec<String>,
    /// What open objects are taken to hold beside their declared properties
    #[arg(long, value_enum, default_value_t = Beside::Any)]
    undeclared: Beside,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    topic: TopicName,
    /// The payload; `-` reads standard input
    file: PathBuf,
    /// The latest if left out
    #[arg(long = "against-version", value_name = "N")]
    number: Option<u32>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    topic: TopicName,
    /// Write nothing: so far the only way
    #[arg(long, required = true)]
    dry_run: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    topic: TopicName,
    #[arg(value_name = "VERSION")]
    number: u32,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(command: &SchemaCommand) -> Result<ExitCode> {
    let good = match command {
        SchemaCommand::Check(args) if args.against.is_some() => compare::check(args)?,
        SchemaCommand::Diff(args) if args.what.len() == 2 => compare::diff_files(args)?,
        command => block_on(remote::run(command))?,
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(EXIT_REFUSED) })
}

/// A file, or standard input.
fn read(path: &Path) -> Result<String> {
    use std::io::Read;
    let limit = SCHEMA_BYTES_MAX as u64 * 8;
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().take(limit + 1).read_to_string(&mut text),
        _ => std::fs::File::open(path).and_then(|file| file.take(limit + 1).read_to_string(&mut text)),
    };
    read.with_context(|| format!("cannot read `{}`", path.display()))?;
    if text.len() as u64 > limit {
        bail!("`{}` has more than {limit} bytes; check the path", path.display());
    }
    Ok(text)
}

fn read_schema(path: &Path) -> Result<SchemaText> {
    SchemaText::parse(read(path)?).with_context(|| format!("`{}`", path.display()))
}
