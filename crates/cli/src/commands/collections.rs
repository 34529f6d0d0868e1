//! `promethean collections`: the documents that projectors keep on a server.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use promethean_model::{CollectionName, GroupName};
use serde_json::Value;

use crate::output::{OutputArgs, print_line, print_table};
use crate::remote::{Remote, block_on, escape};
use crate::target::TargetArgs;

/// The subcommands of `promethean collections`.
#[derive(Debug, Subcommand)]
pub(crate) enum CollectionsCommand {
    /// List collections with their fields and indexes
    List(CollectionListArgs),
    /// Print a document as JSON; exits with 5 if it does not exist
    Get(GetArgs),
    /// Print the documents whose declared fields have the given values as JSON lines, newest first
    Query(QueryArgs),
    /// Remove a collection that no projector writes
    Drop(DropArgs),
    /// Build new copies of a projector's collections, then serve them instead of the old ones
    Rebuild(RebuildArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  promethean collections list\n  promethean collections list --json")]
pub(crate) struct CollectionListArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    server: TargetArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean collections get processes local:stt:1234\n  promethean collections get host_stats local | jq .seen"
)]
pub(crate) struct GetArgs {
    /// The collection
    collection: CollectionName,
    /// The key of the document
    key: String,
    #[command(flatten)]
    server: TargetArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean collections query processes status=alive\n  promethean collections query processes host=local --limit 10"
)]
pub(crate) struct QueryArgs {
    /// The collection
    collection: CollectionName,
    /// A declared field and the value it must have, as in `status=alive`
    #[arg(value_name = "FIELD=VALUE")]
    equals: Vec<String>,
    /// Skip this many documents
    #[arg(long, default_value_t = 0)]
    offset: usize,
    /// Print at most this many documents, up to 1000
    #[arg(long, default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    server: TargetArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean collections drop old_processes\n  promethean collections drop old_processes --json"
)]
pub(crate) struct DropArgs {
    /// The collection
    collection: CollectionName,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    server: TargetArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean collections rebuild processes.txn\n  promethean collections rebuild processes.txn --accept-loss"
)]
pub(crate) struct RebuildArgs {
    /// The projector, by the name of its group
    projector: GroupName,
    /// Rebuild even if the first events of its topic were removed
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    server: TargetArgs,
}

pub(crate) fn run(command: &CollectionsCommand) -> Result<ExitCode> {
    block_on(async {
        match command {
            CollectionsCommand::List(args) => list(args).await,
            CollectionsCommand::Get(args) => get(args).await,
            CollectionsCommand::Query(args) => query(args).await,
            CollectionsCommand::Drop(args) => drop_one(args).await,
            CollectionsCommand::Rebuild(args) => rebuild(args).await,
        }
    })
}

async fn list(args: &CollectionListArgs) -> Result<ExitCode> {
    let body: Value = Remote::new(&args.server)?.get("/collections").await?;
    if args.output.json {
        print_line(&body.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |value: &Value, name: &str| match value.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let mut rows = vec![["NAME", "DOCUMENTS", "PROJECTOR", "FIELDS", "INDEXES"].map(str::to_owned).to_vec()];
    for one in body.get("collections").and_then(Value::as_array).into_iter().flatten() {
        let fields = one.get("fields").and_then(Value::as_object);
        let fields: Vec<String> = fields.into_iter().flatten().map(|(name, _)| name.clone()).collect();
        let indexes = one.get("indexes").and_then(Value::as_array).into_iter().flatten();
        let indexes: Vec<String> = indexes.map(|index| format!("({})", text(index, "fields"))).collect();
        let is_default = one.get("default") == Some(&Value::Bool(true));
        let name = format!("{}{}", text(one, "name"), if is_default { " (default)" } else { "" });
        rows.push(vec![
            name,
            text(one, "documents"),
            text(one, "projector"),
            fields.join(" "),
            indexes.join(" "),
        ]);
    }
    print_table(&rows)?;
    Ok(ExitCode::SUCCESS)
}

async fn get(args: &GetArgs) -> Result<ExitCode> {
    let path = format!("/collections/{}/snap/{}", args.collection, escape(&args.key));
    let body: Value = Remote::new(&args.server)?.get(&path).await?;
    print_line(&body.to_string())?;
    Ok(ExitCode::SUCCESS)
}

async fn query(args: &QueryArgs) -> Result<ExitCode> {
    let mut path =
        format!("/collections/{}/list?offset={}&limit={}", args.collection, args.offset, args.limit);
    for equal in &args.equals {
        let Some((field, value)) = equal.split_once('=') else {
            bail!("`{equal}` is not a condition; write FIELD=VALUE");
        };
        path.push_str(&format!("&{}={}", escape(field), escape(value)));
    }
    let body: Value = Remote::new(&args.server)?.get(&path).await?;
    for item in body.get("items").and_then(Value::as_array).into_iter().flatten() {
        print_line(&item.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn drop_one(args: &DropArgs) -> Result<ExitCode> {
    let path = format!("/collections/{}", args.collection);
    let answer = Remote::new(&args.server)?.ask("DELETE", &path, "").await?.ok()?;
    args.output.done(&format!("`{}` is dropped", args.collection), &answer)?;
    Ok(ExitCode::SUCCESS)
}

async fn rebuild(args: &RebuildArgs) -> Result<ExitCode> {
    let remote = Remote::new(&args.server)?;
    let path = format!("/projectors/{}/rebuild?accept_loss={}", args.projector, u8::from(args.accept_loss));
    let answer = remote.ask("POST", &path, "").await?.ok()?;
    let sentence = format!("`{}` is being rebuilt; `promethean ops` shows its progress", args.projector);
    args.output.done(&sentence, &answer)?;
    Ok(ExitCode::SUCCESS)
}
