//! Checks of a running server: its topics, their schemas, and a sample of their events.

use std::collections::BTreeSet;

use anyhow::Result;
use promethean_model::name::SystemSuffix;
use promethean_model::{SchemaRule, TopicName};
use promethean_schema::SchemaText;
use serde::Deserialize;
use serde_json::Value;

use super::coverage;
use super::finding::{LintFindings, LintRule};
use super::folder::Known;
use crate::remote::Remote;
use crate::target::TargetArgs;

/// Topics whose events are checked.
const TOPICS_MAX: usize = 100;
/// Latest events of a topic that are checked.
const EVENTS_MAX: u64 = 100;
/// Headers with a standard meaning.
const STANDARD: [&str; 7] =
    ["baggage", "content-encoding", "content-type", "correlationId", "t0", "traceparent", "tracestate"];

/// The fields of a topic that the checks need.
#[derive(Debug, Deserialize)]
struct ListedTopic {
    topic: TopicName,
    earliest: u64,
    end: u64,
    settings: ListedSettings,
}

#[derive(Debug, Deserialize)]
struct ListedSettings {
    #[serde(default)]
    schema: SchemaRule,
}

/// Checks a server; returns the topics that have a schema.
pub(super) async fn check(
    target: &TargetArgs,
    folder: &Known,
    declared: &BTreeSet<TopicName>,
    findings: &mut LintFindings,
) -> Result<BTreeSet<TopicName>> {
    let remote = Remote::new(target)?;
    let url = remote.url();
    let topics: Vec<ListedTopic> = remote.pages("/topics", "topics").await?;
    let schemas: Vec<Value> = remote.pages("/schemas", "topics").await?;
    let names = schemas.iter().filter_map(|entry| entry.get("topic")?.as_str()?.parse().ok());
    let mut covered: BTreeSet<TopicName> = names.collect();
    differences(&remote, folder, findings).await?;
    let registered = covered.clone();
    covered.extend(folder.keys().cloned());
    let users: Vec<&ListedTopic> = topics.iter().filter(|topic| !topic.topic.is_system()).collect();
    for topic in &users {
        let place = place(url, &topic.topic);
        coverage::check(&topic.topic, topic.settings.schema, &covered, &place, findings);
    }
    for topic in topics.iter().filter(|topic| topic.topic.is_system()) {
        version(&remote, url, &topic.topic, findings).await?;
    }
    for topic in users.iter().take(TOPICS_MAX) {
        let place = place(url, &topic.topic);
        headers(&remote, topic, &place, findings).await?;
        if !declared.contains(&topic.topic) && !registered.contains(&topic.topic) {
            unused(&remote, topic, &place, findings).await?;
        }
    }
    if users.len() > TOPICS_MAX {
        let what =
            format!("of {} topics, only the events of the first {TOPICS_MAX} were checked", users.len());
        findings.add(LintRule::NotAllSeen, url, what, "no change is needed");
    }
    Ok(covered)
}

fn place(server: &str, topic: &TopicName) -> String {
    format!("{server} {topic}")
}

/// The versions that the server has of a topic; none if it does not have the topic.
async fn versions_of(remote: &Remote, topic: &TopicName) -> Result<Vec<Value>> {
    let said = remote.ask("GET", &format!("/schemas/{topic}"), "").await?;
    if said.code() == Some("unknown_topic") {
        return Ok(Vec::new());
    }
    Ok(said.ok()?.get("versions").and_then(Value::as_array).cloned().unwrap_or_default())
}

/// Reports schemas of the folder that the server does not have, or has in another form.
async fn differences(remote: &Remote, folder: &Known, findings: &mut LintFindings) -> Result<()> {
    for (topic, versions) in folder {
        let registered = versions_of(remote, topic).await?;
        for (version, schema) in versions {
            let place = format!("{topic}/v{version}.json");
            let known = registered.iter().find(|known| known.get("version") == Some(&Value::from(*version)));
            let Some(known) = known else {
                let what = format!("the server does not have version {version} of `{topic}`");
                findings.add(
                    LintRule::SchemaUnregistered,
                    place,
                    what,
                    "start it with this folder, or register the file",
                );
                continue;
            };
            let print = SchemaText::parse(schema.to_string())?.fingerprint();
            if known.get("fingerprint").and_then(Value::as_str) != Some(&print) {
                let what = format!("the server has another schema as version {version} of `{topic}`");
                findings.add(
                    LintRule::SchemaDiffers,
                    place,
                    what,
                    "a version never changes; give the file a new number",
                );
            }
        }
    }
    Ok(())
}

/// Reports a topic for an old form of events whose base topic has no such version.
async fn version(
    remote: &Remote,
    server: &str,
    topic: &TopicName,
    findings: &mut LintFindings,
) -> Result<()> {
    let (Some(SystemSuffix::Version(version)), Some(base)) = (topic.system_suffix(), topic.base()) else {
        return Ok(());
    };
    let versions = versions_of(remote, &base).await?;
    if !versions.iter().any(|known| known.get("version") == Some(&Value::from(version))) {
        let what = format!(
            "it is for events of `{base}` in the form of version {version}, which `{base}` does not have"
        );
        findings.add(
            LintRule::TopicVersion,
            place(server, topic),
            what,
            "delete the topic when it has no readers any more",
        );
    }
    Ok(())
}

/// Reports headers of the latest events that are not standard and do not begin with `x-`.
async fn headers(
    remote: &Remote,
    topic: &ListedTopic,
    place: &str,
    findings: &mut LintFindings,
) -> Result<()> {
    if topic.end <= topic.earliest {
        return Ok(());
    }
    let from = topic.end.saturating_sub(EVENTS_MAX).max(topic.earliest);
    let name = &topic.topic;
    let path = format!("/replay?topic={name}&from=offset&offset={from}&limit={EVENTS_MAX}");
    let page: Value = remote.get(&path).await?;
    let mut odd = BTreeSet::new();
    for event in page.get("events").and_then(Value::as_array).into_iter().flatten() {
        let headers = event.get("headers").and_then(Value::as_object).into_iter().flatten();
        odd.extend(headers.map(|(name, _)| name.clone()));
    }
    odd.retain(|name| !name.starts_with("x-") && !STANDARD.contains(&name.as_str()));
    for name in odd {
        let what = format!("events have the header `{}`, which is not a standard one", name.escape_debug());
        let fix = format!("publish it as `x-{}`", name.to_lowercase().escape_debug());
        findings.add(LintRule::HeaderName, place, what, fix);
    }
    Ok(())
}

/// Reports a topic that never had an event and has no groups; the caller knows that it is not declared
/// either.
async fn unused(
    remote: &Remote,
    topic: &ListedTopic,
    place: &str,
    findings: &mut LintFindings,
) -> Result<()> {
    if topic.end > 0 {
        return Ok(());
    }
    let body: Value = remote.get(&format!("/groups?topic={}", topic.topic)).await?;
    if body.get("groups").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let what = "it never had an event and has no groups";
        findings.add(LintRule::TopicUnused, place, what, "delete it, or publish to it");
    }
    Ok(())
}
