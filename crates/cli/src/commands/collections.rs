//! `promethean collections`: the documents that projectors keep on a server.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use hyper::Method;
use promethean_model::{CollectionName, GroupName};
use serde_json::Value;

use super::exit_code;
use crate::output::{print_line, print_table};
use crate::remote::{Remote, ServerArgs, block_on, escape};

/// The subcommands of `promethean collections`.
#[derive(Debug, Subcommand)]
pub(crate) enum CollectionsCommand {
    /// List collections with their fields and indexes
    List(ListArgs),
    /// Print a document; exits with 1 if it does not exist
    Get(GetArgs),
    /// Print the documents whose declared fields have the given values, newest first
    Query(QueryArgs),
    /// Remove a collection that no projector writes
    Drop(DropArgs),
    /// Build new copies of a projector's collections, then serve them instead of the old ones
    Rebuild(RebuildArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print the answer of the server as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    collection: CollectionName,
    key: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
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
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DropArgs {
    collection: CollectionName,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RebuildArgs {
    projector: GroupName,
    /// Rebuild even if the first events of its topic were removed
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    server: ServerArgs,
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

async fn list(args: &ListArgs) -> Result<ExitCode> {
    let body = Remote::new(&args.server)?.get("/collections").await?;
    if args.json {
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
    let answer = Remote::new(&args.server)?.ask(Method::GET, &path, "").await?;
    let Some(body) = answer.found()? else { return Ok(exit_code(false)) };
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
    let body = Remote::new(&args.server)?.get(&path).await?;
    for item in body.get("items").and_then(Value::as_array).into_iter().flatten() {
        print_line(&item.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn drop_one(args: &DropArgs) -> Result<ExitCode> {
    let path = format!("/collections/{}", args.collection);
    Remote::new(&args.server)?.ask(Method::DELETE, &path, "").await?.ok()?;
    print_line(&format!("`{}` is dropped", args.collection))?;
    Ok(ExitCode::SUCCESS)
}

async fn rebuild(args: &RebuildArgs) -> Result<ExitCode> {
    let remote = Remote::new(&args.server)?;
    let path = format!("/projectors/{}/rebuild?accept_loss={}", args.projector, u8::from(args.accept_loss));
    remote.ask(Method::POST, &path, "").await?.ok()?;
    print_line(&format!("`{}` is being rebuilt; `GET /projectors` shows its progress", args.projector))?;
    Ok(ExitCode::SUCCESS)
}
