//! Checks of a folder of schemas.

use std::collections::BTreeMap;
use std::path::Path;

use promethean_model::name::SystemSuffix;
use promethean_model::{Compat, SchemaRule, TopicName, TopicSettings};
use promethean_schema::compat::{self, CompatDirection, CompatReport, Verdict};
use promethean_schema::validator;
use serde_json::Value;

use super::config::Configured;
use super::finding::{LintFindings, LintRule};
use super::names;
use crate::schema_files::{LocalVersions, SchemaFiles};

/// The valid schemas of a folder, by topic and version.
pub(super) type Known = BTreeMap<TopicName, BTreeMap<u32, Value>>;

pub(super) fn check(files: &SchemaFiles, configured: &Configured, findings: &mut LintFindings) -> Known {
    for path in &files.strays {
        let what = "the name is neither that of a schema nor that of a program";
        let fix = "use a folder with the topic's name, and in it v1.json, v1-to-v2.jq, or v2-to-v1.jq";
        findings.add(LintRule::SchemaFile, path.display().to_string(), what, fix);
    }
    let mut known = Known::new();
    for (name, topic_files) in &files.topics {
        let place = topic_files.path.display().to_string();
        let Some(topic) = names::read(name, &place, findings) else { continue };
        check_name(&topic, &place, files, findings);
        let settings = configured.topics.get(&topic).cloned().unwrap_or_default();
        if settings.schema == SchemaRule::Off && !topic_files.versions.is_empty() {
            let what = format!("`{topic}` has schemas, and its setting `schema` is `off`");
            findings.add(LintRule::SchemaIgnored, &place, what, "remove the setting, or the schemas");
        }
        let usable = usable(topic_files, findings);
        compatibility(topic_files, &usable, &settings, findings);
        programs(topic_files, findings);
        unlifted(topic_files, &usable, &settings, findings);
        known.insert(topic, usable);
    }
    known
}

/// Checks the name of a topic. A topic for an old form of events, such as `orders.placed.v1`, may have
/// schemas too.
fn check_name(topic: &TopicName, place: &str, files: &SchemaFiles, findings: &mut LintFindings) {
    let (Some(SystemSuffix::Version(version)), Some(base)) = (topic.system_suffix(), topic.base()) else {
        return names::check(topic, place, findings);
    };
    let there = files.topics.get(base.as_str()).is_some_and(|files| files.versions.contains_key(&version));
    if !there {
        let what = format!(
            "`{topic}` is for events of `{base}` in the form of version {version}, which `{base}` does not have"
        );
        let fix = format!(
            "add {base}/v{version}.json, or give the topic a name that does not end in `.v{version}`"
        );
        findings.add(LintRule::TopicVersion, place, what, fix);
    }
}

fn usable(files: &LocalVersions, findings: &mut LintFindings) -> BTreeMap<u32, Value> {
    let mut usable = BTreeMap::new();
    for (version, file) in &files.versions {
        let compiled = match &file.text {
            Ok(text) => {
                validator::compile(text.value()).map(|_| text.value()).map_err(|error| error.to_string())
            }
            Err(fault) => Err(fault.clone()),
        };
        match compiled {
            Ok(schema) => _ = usable.insert(*version, schema.clone()),
            Err(what) => {
                findings.add(
                    LintRule::SchemaInvalid,
                    file.path.display().to_string(),
                    what,
                    "correct the schema",
                );
            }
        }
    }
    usable
}

/// Compares versions as the server does when they are registered one after the other.
fn compatibility(
    files: &LocalVersions,
    usable: &BTreeMap<u32, Value>,
    settings: &TopicSettings,
    findings: &mut LintFindings,
) {
    let (directions, transitive) = CompatDirection::asked_by(settings.compat);
    for (version, new) in usable {
        let place = path_of(files, *version);
        let versions = usable.range(..version).rev().take(if transitive { usize::MAX } else { 1 });
        for (before, old) in versions {
            for direction in directions {
                let report = compat::check(old, new, *direction, settings.undeclared);
                report_comparison(&report, *direction, *before, &place, settings.compat, findings);
            }
        }
    }
}

fn report_comparison(
    report: &CompatReport,
    direction: CompatDirection,
    before: u32,
    place: &str,
    compat: Compat,
    findings: &mut LintFindings,
) {
    let (rule, verdict) = match report.verdict {
        Verdict::Compatible => return,
        Verdict::Incompatible => (LintRule::SchemaIncompatible, "is not"),
        Verdict::Undecidable => (LintRule::SchemaUndecidable, "cannot be shown to be"),
    };
    let compat = serde_json::to_value(compat).ok();
    let compat = compat.as_ref().and_then(Value::as_str).unwrap_or_default();
    let mut what = format!(
        "it {verdict} {direction} compatible with version {before}, as `compat = \"{compat}\"` asks for"
    );
    let Some(finding) = report.findings.first() else { return };
    what.push_str(&format!(": {} at `{}`", finding.rule.word(), finding.path));
    findings.add(rule, place, what, finding.fix.trim_end_matches('.'));
}

/// Reports programs that do not compile, and programs between versions that do not exist.
fn programs(files: &LocalVersions, findings: &mut LintFindings) {
    let latest = files.versions.keys().next_back();
    for program in &files.programs {
        let place = program.path.display().to_string();
        if let Some(fault) = &program.fault {
            findings.add(LintRule::UpcasterInvalid, &place, fault, "correct the program");
        }
        let ends = [program.from, program.to];
        for version in ends.iter().filter(|version| !files.versions.contains_key(version)) {
            let what = format!("there is no version {version}");
            let fix = format!("add v{version}.json, or rename or remove the program");
            findings.add(LintRule::UpcasterDangling, &place, what, fix);
        }
        if program.to < program.from
            && Some(&program.from) != latest
            && files.versions.contains_key(&program.from)
        {
            let what = "it makes an old form of a version that is not the latest";
            findings.add(LintRule::UpcasterDangling, &place, what, "rename or remove the program");
        }
    }
}

/// Reports versions that refuse payloads of the version before, where the rule allows that and no program
/// lifts them.
fn unlifted(
    files: &LocalVersions,
    usable: &BTreeMap<u32, Value>,
    settings: &TopicSettings,
    findings: &mut LintFindings,
) {
    if CompatDirection::asked_by(settings.compat).0.contains(&CompatDirection::Backward) {
        // `compatibility` has reported it as an error.
        return;
    }
    for (version, new) in usable {
        let Some((before, old)) = usable.range(..version).next_back() else { continue };
        let lifted = files.programs.iter().any(|program| program.from == *before && program.to > *before);
        if lifted {
            continue;
        }
        let report = compat::check(old, new, CompatDirection::Backward, settings.undeclared);
        if report.verdict == Verdict::Incompatible {
            let what = format!("it refuses payloads of version {before}, and nothing lifts those");
            let fix =
                format!("add v{before}-to-v{version}.jq, or readers of old events get them as they were");
            findings.add(LintRule::UpcasterMissing, path_of(files, *version), what, fix);
        }
    }
}

fn path_of(files: &LocalVersions, version: u32) -> String {
    let path: &Path = files.versions.get(&version).map_or(&files.path, |file| &file.path);
    path.display().to_string()
}
