//! The subcommands that talk to a server.

use std::path::Path;

use anyhow::{Context, Result, bail};
use promethean_model::TopicName;
use serde_json::Value;

use super::table::{self, at, text};
use super::{
    AddArgs, DeleteArgs, DiffArgs, MigrateArgs, SchemaCheckArgs, SchemaCommand, SchemaCommonArgs,
    SchemaListArgs, ShowArgs, ValidateArgs, compare, read, read_schema,
};
use crate::output::print_line;
use crate::remote::{Remote, RemoteAnswer};

/// Runs a subcommand; returns whether the answer is a good one.
pub(super) async fn run(command: &SchemaCommand) -> Result<bool> {
    match command {
        SchemaCommand::Add(args) => add(args).await,
        SchemaCommand::List(args) => list(args).await,
        SchemaCommand::Show(args) => show(args).await,
        SchemaCommand::Check(args) => check(args).await,
        SchemaCommand::Diff(args) => diff(args).await,
        SchemaCommand::Validate(args) => validate(args).await,
        SchemaCommand::Migrate(args) => migrate(args).await,
        SchemaCommand::Delete(args) => delete(args).await,
    }
}

async fn add(args: &AddArgs) -> Result<bool> {
    let AddArgs { topic, number, force, dry_run, common, .. } = args;
    let schema = read_schema(&args.file)?;
    let mut path = format!("/schemas/{topic}?force={}&dry_run={}", u8::from(*force), u8::from(*dry_run));
    if let Some(number) = number {
        path.push_str(&format!("&version={number}"));
    }
    let said = ask(common, "POST", &path, schema.text().to_owned()).await?;
    if said.code() == Some("schema_incompatible") {
        return incompatible(common, &said);
    }
    let body = said.ok()?;
    let (version, is) = (at(&body, "version"), |field: &str| *at(&body, field) == true);
    let sentence = match () {
        () if is("unchanged") => format!("`{topic}` has this schema already, as version {version}"),
        () if is("dry_run") => format!("`{topic}` would get version {version}"),
        () if is("forced") => format!("`{topic}` has version {version}, which was forced"),
        () => format!("`{topic}` has version {version}"),
    };
    common.output.done(&sentence, &body)?;
    Ok(true)
}

fn incompatible(common: &SchemaCommonArgs, said: &RemoteAnswer) -> Result<bool> {
    if common.output.json {
        print(&said.body)?;
        return Ok(false);
    }
    print_line(text(at(&said.body, "message")))?;
    for line in table::comparisons(at(&said.body, "compared")) {
        print_line(&line)?;
    }
    Ok(false)
}

async fn list(args: &SchemaListArgs) -> Result<bool> {
    let remote = Remote::new(&args.common.server)?;
    if let Some(topic) = &args.topic {
        let body: Value = remote.get(&format!("/schemas/{topic}")).await?;
        return rows(&args.common, &body, "versions", |version| {
            let forced = if *at(version, "forced") == true { "  forced" } else { "" };
            format!(
                "v{}  {}  {}{forced}",
                at(version, "version"),
                text(at(version, "fingerprint")),
                text(at(version, "compat"))
            )
        });
    }
    let mut after = String::new();
    loop {
        let body: Value = remote.get(&format!("/schemas{after}")).await?;
        rows(&args.common, &body, "topics", |topic| {
            format!(
                "{}  v{}  {} version(s)",
                text(at(topic, "topic")),
                at(topic, "latest"),
                at(topic, "versions")
            )
        })?;
        match body.get("next").and_then(Value::as_str) {
            Some(next) => after = format!("?after={next}"),
            None => return Ok(true),
        }
    }
}

/// Prints the entries of a list, one per line.
fn rows(
    common: &SchemaCommonArgs,
    body: &Value,
    field: &str,
    row: impl Fn(&Value) -> String,
) -> Result<bool> {
    if common.output.json {
        return print(body);
    }
    for entry in at(body, field).as_array().into_iter().flatten() {
        print_line(&row(entry))?;
    }
    Ok(true)
}

async fn show(args: &ShowArgs) -> Result<bool> {
    let version = args.number.map_or_else(|| "latest".to_owned(), |version| version.to_string());
    let body = fetch(&args.common, args.topic.as_str(), &version).await?;
    match args.common.output.json {
        true => print(&body),
        false => {
            print_line(&serde_json::to_string_pretty(at(&body, "schema"))?)?;
            Ok(true)
        }
    }
}

async fn fetch(common: &SchemaCommonArgs, topic: &str, version: &str) -> Result<Value> {
    Remote::new(&common.server)?.get(&format!("/schemas/{topic}/{version}")).await
}

async fn check(args: &SchemaCheckArgs) -> Result<bool> {
    let [topic, file] = args.what.as_slice() else {
        bail!("give a topic and a file, or a file and --against another");
    };
    let topic: TopicName = topic.parse().context("the topic")?;
    let schema = read_schema(Path::new(file))?;
    let said =
        ask(&args.common, "POST", &format!("/schemas/{topic}/check"), schema.text().to_owned()).await?;
    let body = said.ok()?;
    if args.common.output.json {
        print(&body)?;
    } else {
        for line in table::comparisons(at(&body, "compared")) {
            print_line(&line)?;
        }
        print_line(&format!("compared with the versions of `{topic}`: {}", text(at(&body, "verdict"))))?;
    }
    Ok(*at(&body, "verdict") == "compatible")
}

async fn diff(args: &DiffArgs) -> Result<bool> {
    let [topic, from, to] = args.what.as_slice() else {
        bail!("give a topic and two versions, or two files")
    };
    let topic: TopicName = topic.parse().context("the topic")?;
    let number = |text: &str| -> Result<String> {
        let number: u32 = text
            .trim_start_matches('v')
            .parse()
            .with_context(|| format!("`{text}` is not a version; give a number"))?;
        Ok(number.to_string())
    };
    let old = fetch(&args.common, topic.as_str(), &number(from)?).await?;
    let new = fetch(&args.common, topic.as_str(), &number(to)?).await?;
    compare::diff(at(&old, "schema"), at(&new, "schema"), args)
}

async fn validate(args: &ValidateArgs) -> Result<bool> {
    let ValidateArgs { topic, number, common, .. } = args;
    let version = number.map_or_else(String::new, |version| format!("?version={version}"));
    let said = ask(common, "POST", &format!("/schemas/{topic}/validate{version}"), read(&args.file)?).await?;
    if said.code() == Some("schema_rejected") {
        if common.output.json {
            print(&said.body)?;
        } else {
            print_line(&format!("does not fit version {} of `{topic}`:", at(&said.body, "version")))?;
            for line in table::violations(&said.body) {
                print_line(&line)?;
            }
        }
        return Ok(false);
    }
    let body = said.ok()?;
    if common.output.json {
        return print(&body);
    }
    print_line(&match at(&body, "version").as_u64() {
        Some(version) => format!("fits version {version} of `{topic}`"),
        None => format!("`{topic}` has no schema, so everything fits"),
    })?;
    Ok(true)
}

async fn migrate(args: &MigrateArgs) -> Result<bool> {
    let path = format!("/schemas/{}/migrate", args.topic);
    let body = ask(&args.common, "POST", &path, String::new()).await?.ok()?;
    let good = *at(&body, "failed") == 0;
    if args.common.output.json {
        print(&body)?;
        return Ok(good);
    }
    print_line(&format!(
        "{} events: {} would be lifted, {} stay as they are, {} fail",
        at(&body, "events"),
        at(&body, "lifted"),
        at(&body, "same"),
        at(&body, "failed")
    ))?;
    for (version, count) in at(&body, "versions").as_object().into_iter().flatten() {
        print_line(&format!("  version {version}: {count}"))?;
    }
    for failure in at(&body, "failures").as_array().into_iter().flatten() {
        let (offset, version) = (at(failure, "offset"), at(failure, "version"));
        print_line(&format!("  offset {offset}, version {version}: {}", text(at(failure, "reason"))))?;
    }
    Ok(good)
}

async fn delete(args: &DeleteArgs) -> Result<bool> {
    let path = format!("/schemas/{}/{}", args.topic, args.number);
    let body = ask(&args.common, "DELETE", &path, String::new()).await?.ok()?;
    let sentence = format!("version {} of `{}` is gone", args.number, args.topic);
    args.common.output.done(&sentence, &body)?;
    Ok(true)
}

async fn ask(common: &SchemaCommonArgs, method: &str, path: &str, body: String) -> Result<RemoteAnswer> {
    Remote::new(&common.server)?.ask(method, path, body).await
}

fn print(body: &Value) -> Result<bool> {
    print_line(&body.to_string())?;
    Ok(true)
}
