//! `promethean schema`: registers, compares and tests schemas, on a server or in files.

mod compare;
mod remote;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use promethean_model::TopicName;
use promethean_schema::{SCHEMA_BYTES_MAX, SchemaText};

use super::exit_code;
use crate::output::OutputArgs;
use crate::remote::block_on;
use crate::target::TargetArgs;

/// The subcommands of `promethean schema`.
#[derive(Debug, Subcommand)]
pub(crate) enum SchemaCommand {
    /// Register a schema as the next version of a topic
    Add(AddArgs),
    /// List topics with schemas, or the versions of one
    List(SchemaListArgs),
    /// Print a version of a schema
    Show(ShowArgs),
    /// Check whether a schema is compatible with the versions of a topic, or with another file; exits with 1
    /// if it is not
    Check(SchemaCheckArgs),
    /// Print what one of two versions, or of two files, accepts and the other does not
    Diff(DiffArgs),
    /// Check a payload against the schema of a topic; exits with 1 if it does not fit
    Validate(ValidateArgs),
    /// Test the upcasters on all stored events of a topic; exits with 1 if any fails
    Migrate(MigrateArgs),
    /// Delete a version that no event was published with
    Delete(DeleteArgs),
}

/// The flags that all subcommands share.
#[derive(Debug, Args)]
pub(crate) struct SchemaCommonArgs {
    #[command(flatten)]
    server: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean schema add orders.placed order-v2.json\n  promethean schema add orders.placed - --dry-run < order-v2.json"
)]
pub(crate) struct AddArgs {
    topic: TopicName,
    /// The schema; `-` reads standard input
    file: PathBuf,
    /// The number of the version; it must be above that of the latest version
    #[arg(long = "as-version", value_name = "N")]
    number: Option<u32>,
    /// Register it even if the comparison cannot decide
    #[arg(long)]
    force: bool,
    /// Only print what would happen
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: SchemaCommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  promethean schema list\n  promethean schema list orders.placed")]
pub(crate) struct SchemaListArgs {
    topic: Option<TopicName>,
    #[command(flatten)]
    common: SchemaCommonArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean schema show orders.placed\n  promethean schema show orders.placed 1"
)]
pub(crate) struct ShowArgs {
    topic: TopicName,
    /// The version; without it, the latest
    #[arg(value_name = "VERSION")]
    number: Option<u32>,
    #[command(flatten)]
    common: SchemaCommonArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean schema check orders.placed order-v2.json\n  promethean schema check order-v2.json --against order-v1.json"
)]
pub(crate) struct SchemaCheckArgs {
    /// The new schema, after the topic on the server to compare it with unless --against names a file
    #[arg(num_args = 1..=2, required = true, value_name = "TOPIC NEW.json | NEW.json --against OLD.json")]
    what: Vec<String>,
    /// Compare with this file; no server is asked
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// With --against: the new schema accepts what the old one does (backward), the reverse (forward), or both (full)
    #[arg(long, value_enum, default_value_t = CompatArg::Backward, requires = "against")]
    compat: CompatArg,
    /// With --against: which undeclared properties open objects are assumed to have
    #[arg(long, value_enum, default_value_t = UndeclaredArg::Any, requires = "against")]
    undeclared: UndeclaredArg,
    #[command(flatten)]
    common: SchemaCommonArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompatArg {
    Backward,
    Forward,
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UndeclaredArg {
    Any,
    Absent,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean schema diff orders.placed 1 2\n  promethean schema diff order-v1.json order-v2.json"
)]
pub(crate) struct DiffArgs {
    /// A topic and two of its versions, or two files
    #[arg(num_args = 2..=3, required = true, value_name = "TOPIC FROM TO | OLD.json NEW.json")]
    what: Vec<String>,
    /// Which undeclared properties open objects are assumed to have
    #[arg(long, value_enum, default_value_t = UndeclaredArg::Any)]
    undeclared: UndeclaredArg,
    #[command(flatten)]
    common: SchemaCommonArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean schema validate orders.placed order.json\n  promethean schema validate orders.placed - < order.json"
)]
pub(crate) struct ValidateArgs {
    topic: TopicName,
    /// The payload; `-` reads standard input
    file: PathBuf,
    /// Check against this version; without it, the latest
    #[arg(long = "against-version", value_name = "N")]
    number: Option<u32>,
    #[command(flatten)]
    common: SchemaCommonArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean schema migrate orders.placed --dry-run\n  promethean schema migrate orders.placed --dry-run --json"
)]
pub(crate) struct MigrateArgs {
    topic: TopicName,
    /// Write nothing; required, because nothing else is supported yet
    #[arg(long, required = true)]
    dry_run: bool,
    #[command(flatten)]
    common: SchemaCommonArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean schema delete orders.placed 3\n  promethean schema delete orders.placed 3 --json"
)]
pub(crate) struct DeleteArgs {
    topic: TopicName,
    #[arg(value_name = "VERSION")]
    number: u32,
    #[command(flatten)]
    common: SchemaCommonArgs,
}

pub(crate) fn run(command: &SchemaCommand) -> Result<ExitCode> {
    let good = match command {
        SchemaCommand::Check(args) if args.against.is_some() => compare::check(args)?,
        SchemaCommand::Diff(args) if args.what.len() == 2 => compare::diff_files(args)?,
        command => block_on(remote::run(command))?,
    };
    Ok(exit_code(good))
}

/// Reads a file; `-` reads standard input.
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
