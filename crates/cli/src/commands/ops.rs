//! `promethean ops` and `promethean health`: how the server is, and what needs a person.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use promethean_client::{Client, GroupDescription};
use serde_json::Value;

use super::{exit_code, groups};
use crate::output::{Column, OutputArgs, Paint, TextTable, Tone, print_json, print_line};
use crate::session::with_client;
use crate::target::TargetArgs;

/// The flags of `promethean ops`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean ops\n  promethean ops --json | jq '.projectors[] | select(.activity != \"running\")'"
)]
pub(crate) struct OpsArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

/// The flags of `promethean health`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean health\n  promethean health --quiet || echo 'look at the server'"
)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

pub(crate) fn run(args: &OpsArgs) -> Result<ExitCode> {
    with_client(&args.target, async |client| ops(args, client).await)
}

async fn ops(args: &OpsArgs, client: &Client) -> Result<ExitCode> {
    let mut after: Option<String> = None;
    let mut groups = Vec::new();
    let mut first = None;
    loop {
        let page = client.admin().ops(after.as_deref()).await?;
        if args.output.json {
            print_json(&page)?;
        }
        let listed = page.get("groups").cloned().unwrap_or_default();
        groups.extend(serde_json::from_value::<Vec<GroupDescription>>(listed)?);
        after = page.get("next").and_then(Value::as_str).map(str::to_owned);
        first.get_or_insert(page);
        if after.is_none() {
            break;
        }
    }
    if args.output.json {
        return Ok(ExitCode::SUCCESS);
    }
    let page = first.unwrap_or_default();
    print_faults(&page)?;
    match groups.is_empty() {
        true => print_line("no groups")?,
        false => groups::table(&groups).print()?,
    }
    print_projectors(&page)?;
    print_compactors(&page)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what is wrong with the store. Only an admin sees it.
fn print_faults(page: &Value) -> Result<()> {
    let paint = Paint::stdout();
    let Some(store) = page.get("store") else { return Ok(()) };
    let mut faults = Vec::new();
    for name in ["refusing", "degraded"] {
        if let Some(why) = store.get(name).filter(|why| !why.is_null()) {
            faults.push(format!("{name}: {}", text_of(why)));
        }
    }
    for damage in store.get("damage").and_then(Value::as_array).into_iter().flatten() {
        faults.push(format!("damaged: {}", text_of(damage)));
    }
    for one in page.get("unfinished_deletions").and_then(Value::as_array).into_iter().flatten() {
        faults.push(format!("a group is not deleted yet: {one}"));
    }
    match faults.is_empty() {
        true => print_line(&format!("{}\n", paint.paint(Tone::Good, "the store is well")))?,
        false => faults.iter().try_for_each(|fault| print_line(&paint.paint(Tone::Bad, fault)))?,
    }
    Ok(())
}

fn print_projectors(page: &Value) -> Result<()> {
    let mut table = TextTable::new(&[
        Column::Text("PROJECTOR"),
        Column::Text("TOPIC"),
        Column::Number("LAG"),
        Column::Text("STATE"),
    ]);
    for worker in entries(page, "projectors") {
        let [name, topic, lag, mut state] =
            ["name", "topic", "lag", "activity"].map(|name| field(worker, name));
        let error = field(worker, "last_error");
        if !error.is_empty() {
            state.push_str(&format!(": {error}"));
        }
        table.toned([name, topic, lag, state], tone_of_error(&error));
    }
    print_below(&table)
}

fn print_compactors(page: &Value) -> Result<()> {
    let mut table = TextTable::new(&[
        Column::Text("SNAPSHOTS"),
        Column::Text("OF TOPIC"),
        Column::Number("UP TO"),
        Column::Number("ROUNDS"),
        Column::Text("STATE"),
    ]);
    for worker in entries(page, "compactors") {
        let [name, topic, upto, rounds] =
            ["snapshots", "topic", "position", "rounds"].map(|name| field(worker, name));
        let error = field(worker, "last_error");
        let state = if error.is_empty() { "ok".to_owned() } else { error.clone() };
        table.toned([name, topic, upto, rounds, state], tone_of_error(&error));
    }
    print_below(&table)
}

/// Prints a table below another one, unless it has no rows.
fn print_below(table: &TextTable) -> Result<()> {
    if table.is_empty() {
        return Ok(());
    }
    print_line("")?;
    Ok(table.print()?)
}

fn entries<'a>(page: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    page.get(list).and_then(Value::as_array).into_iter().flatten()
}

/// A field as text; empty if it is not there.
fn field(entry: &Value, name: &str) -> String {
    entry.get(name).filter(|value| !value.is_null()).map(text_of).unwrap_or_default()
}

fn tone_of_error(error: &str) -> Tone {
    if error.is_empty() { Tone::Good } else { Tone::Bad }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn health(args: &HealthArgs) -> Result<ExitCode> {
    with_client(&args.target, async |client| {
        let health = client.admin().health().await?;
        let is_ready = client.admin().is_ready().await?;
        let status = health.get("status").map(text_of).unwrap_or_default();
        let is_well = status == "ok" && is_ready;
        let mut answer = health.clone();
        if let Some(fields) = answer.as_object_mut() {
            fields.insert("ready".to_owned(), is_ready.into());
        }
        if args.output.json {
            print_json(&answer)?;
        } else if !args.output.quiet {
            let paint = Paint::stdout();
            let tone = if is_well { Tone::Good } else { Tone::Bad };
            print_line(&format!("{} {}", client.address(), paint.paint(tone, &status)))?;
            for (name, value) in
                answer.as_object().into_iter().flatten().filter(|(name, _)| *name != "status")
            {
                print_line(&format!("  {:<22}{}", name.replace('_', " "), text_of(value)))?;
            }
        }
        Ok(exit_code(is_well))
    })
}
