//! `promethean context`: names for servers.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::contexts::{Contexts, ServerContext, check_name};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{Column, OutputArgs, TextTable, Tone, print_json};
use crate::target::{TargetArgs, read_token};

/// A token has at most this many bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// The subcommands of `promethean context`.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Give a server a name, with the token to send to it
    Add(ContextAddArgs),
    /// Let all commands talk to this server
    Use(ContextNameArgs),
    /// List the contexts
    List(ContextListArgs),
    /// Forget a context and the token that was kept for it
    Remove(ContextNameArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  promethean context add local --url http://127.0.0.1:8090
  promethean context add prod --url https://bus.example --token-stdin < t.txt")]
pub(crate) struct ContextAddArgs {
    /// The name
    name: String,
    /// The address of the server
    #[arg(long, value_name = "URL")]
    url: String,
    /// Send the token in this file; the file is read at each command
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Read the token from standard input, and keep it in a file that only you can read
    #[arg(long, conflicts_with = "token_file")]
    token_stdin: bool,
    /// Trust the certificates in this file instead of the machine's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Replace a context of this name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  promethean context use prod\n  promethean context remove staging")]
pub(crate) struct ContextNameArgs {
    /// The name
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  promethean context list\n  promethean context list --json")]
pub(crate) struct ContextListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(command: &ContextCommand) -> Result<ExitCode> {
    let mut contexts = Contexts::read()?;
    match command {
        ContextCommand::Add(args) => add(args, &mut contexts),
        ContextCommand::Use(args) => {
            known(&contexts, &args.name)?;
            contexts.current = Some(args.name.clone());
            contexts.write()?;
            let url = &contexts.named(&args.name)?.url;
            args.output
                .done(&format!("commands talk to {url} now"), &json!({"current": args.name, "url": url}))
        }
        ContextCommand::List(args) => list(args, &contexts),
        ContextCommand::Remove(args) => {
            known(&contexts, &args.name)?;
            contexts.contexts.remove(&args.name);
            contexts.current = contexts.current.take().filter(|current| *current != args.name);
            contexts.forget_token(&args.name)?;
            contexts.write()?;
            args.output.done(&format!("context `{}` is removed", args.name), &json!({"removed": args.name}))
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Fails with the exit code of what does not exist.
fn known(contexts: &Contexts, name: &str) -> Result<()> {
    let found = contexts.named(name).map(|_| ());
    found.map_err(|error| CommandFailure::new(FailureKind::NotFound, error.to_string()).into())
}

fn add(args: &ContextAddArgs, contexts: &mut Contexts) -> Result<()> {
    check_name(&args.name)?;
    if contexts.contexts.contains_key(&args.name) && !args.replace {
        bail!("there is a context `{}` already; add --replace to change it", args.name);
    }
    let absolute =
        |path: &PathBuf| std::path::absolute(path).with_context(|| format!("the path `{}`", path.display()));
    let token_file = match (&args.token_file, args.token_stdin) {
        (Some(path), _) => {
            let path = absolute(path)?;
            read_token(&path)?;
            warn_if_readable(&path, args.output);
            Some(path)
        }
        (None, true) => Some(contexts.keep_token(&args.name, &token_from_stdin()?)?),
        (None, false) => None,
    };
    let ca_file = args.ca_file.as_ref().map(absolute).transpose()?;
    // Mistakes show now and not at the next command.
    let token = token_file.as_deref().map(read_token).transpose()?;
    TargetArgs::of(args.url.clone(), token, None).resolve()?;
    let context = ServerContext { url: args.url.clone(), token_file, ca_file };
    contexts.contexts.insert(args.name.clone(), context);
    let is_used = contexts.contexts.len() == 1 || contexts.current.as_ref() == Some(&args.name);
    if is_used {
        contexts.current = Some(args.name.clone());
    }
    contexts.write()?;
    let next = match is_used {
        true => "commands talk to it now".to_owned(),
        false => format!("`promethean context use {}` lets commands talk to it", args.name),
    };
    let answer = json!({"name": args.name, "url": args.url, "current": is_used});
    args.output.done(&format!("context `{}` is {}; {next}", args.name, args.url), &answer)
}

fn warn_if_readable(path: &Path, output: OutputArgs) {
    if std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o044 != 0) {
        output.note(&format!(
            "other users can read `{0}`; remove that right with `chmod 600 {0}`",
            path.display()
        ));
    }
}

fn token_from_stdin() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut text).context("cannot read the token")?;
    let token = text.trim();
    ensure!(
        !token.is_empty() && !token.contains(char::is_whitespace),
        "standard input has no token; write it on one line"
    );
    Ok(token.to_owned())
}

fn list(args: &ContextListArgs, contexts: &Contexts) -> Result<()> {
    if contexts.contexts.is_empty() && !args.output.json {
        args.output.note("there are no contexts; add one with `promethean context add NAME --url URL`");
        return Ok(());
    }
    let mut table =
        TextTable::new(&[Column::Text("NAME"), Column::Text("URL"), Column::Text("TOKEN"), Column::Text("")]);
    for (name, context) in &contexts.contexts {
        let is_current = contexts.current.as_ref() == Some(name);
        if args.output.json {
            print_json(
                &json!({"name": name, "url": context.url, "token_file": context.token_file, "current": is_current}),
            )?;
            continue;
        }
        let token = context.token_file.as_ref().map_or("none".to_owned(), |path| path.display().to_string());
        let current = if is_current { "in use" } else { "" };
        table.toned([name.clone(), context.url.clone(), token, current.to_owned()], Tone::Good);
    }
    if !args.output.json {
        table.print()?;
    }
    Ok(())
}
