//! Checks of third-party packages: their licences, and one version of each. `xtask/policy.json` lists the
//! allowed licences and the accepted exceptions.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::metadata::Graph;
use crate::repo::Repo;
use crate::report::Report;
use crate::spdx;

const PATH: &str = "xtask/policy.json";

/// Checks that every package of the lock file can be used under an allowed licence.
pub(crate) fn check_licences(repo: &Repo, graph: &Graph) -> Result<Report> {
    let policy = Policy::load(repo)?;
    let allowed = |licence: &str| policy.licences.iter().any(|known| known == licence);
    let mut report = Report::default();
    for package in graph.packages.values() {
        let label = format!("{} {}", package.name, package.version);
        let Some(licence) = &package.licence else {
            report.fail(format!("{label}: names no licence"));
            continue;
        };
        match spdx::satisfied(licence, &allowed) {
            Ok(true) => {}
            Ok(false) => report.fail(format!("{label}: `{licence}` is not met by the licences in {PATH}")),
            Err(err) => report.fail(format!("{label}: cannot read `{licence}`: {err}")),
        }
    }
    Ok(report)
}

/// Checks that every crate is linked in one version; dependencies of tests do not count.
pub(crate) fn check_duplicates(repo: &Repo, graph: &Graph) -> Result<Report> {
    Ok(compare(&versions(graph), &Policy::load(repo)?.duplicates))
}

/// Versions of every crate reachable from the workspace without a dev-dependency.
fn versions(graph: &Graph) -> BTreeMap<String, BTreeSet<String>> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut queue: Vec<&str> = graph.members.iter().map(String::as_str).collect();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while let Some(id) = queue.pop() {
        if !seen.insert(id) {
            continue;
        }
        if let Some(package) = graph.packages.get(id) {
            versions.entry(package.name.clone()).or_default().insert(package.version.clone());
        }
        queue.extend(graph.links.get(id).into_iter().flatten().map(String::as_str));
    }
    versions
}

fn compare(versions: &BTreeMap<String, BTreeSet<String>>, accepted: &BTreeMap<String, String>) -> Report {
    let mut report = Report::default();
    let twice: BTreeMap<_, _> = versions.iter().filter(|(_, versions)| versions.len() > 1).collect();
    for (name, versions) in &twice {
        let list = versions.iter().cloned().collect::<Vec<_>>().join(", ");
        if !accepted.contains_key(*name) {
            report.fail(format!("{name} is linked as {list}; agree on one or give a reason in {PATH}"));
        }
    }
    for name in accepted.keys().filter(|name| !twice.contains_key(name)) {
        report.fail(format!("{name} is no longer linked twice; remove it from {PATH}"));
    }
    report
}

/// The content of `xtask/policy.json`.
struct Policy {
    /// SPDX identifiers, `X WITH Y` spelled whole.
    licences: Vec<String>,
    /// Crate name -> why two versions of it are accepted.
    duplicates: BTreeMap<String, String>,
}

impl Policy {
    fn load(repo: &Repo) -> Result<Self> {
        Self::parse(&repo.read(PATH)?).with_context(|| format!("parse {PATH}"))
    }

    fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let fields = value.as_object().context("expected an object")?;
        if let Some(unknown) = fields.keys().find(|key| !matches!(key.as_str(), "licences" | "duplicates")) {
            bail!("unknown key `{unknown}`");
        }
        let mut licences = Vec::new();
        for licence in
            value.get("licences").and_then(Value::as_array).context("expected a list `licences`")?
        {
            licences.push(licence.as_str().context("a licence is a string")?.to_owned());
        }
        let mut duplicates = BTreeMap::new();
        for (name, reason) in
            value.get("duplicates").and_then(Value::as_object).context("expected an object `duplicates`")?
        {
            let reason = reason.as_str().filter(|reason| !reason.trim().is_empty());
            let reason = reason.with_context(|| format!("the exception for `{name}` needs a reason"))?;
            duplicates.insert(name.clone(), reason.to_owned());
        }
        Ok(Self { licences, duplicates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(versions: &[(&str, &[&str])], accepted: &[&str]) -> usize {
        let versions = versions
            .iter()
            .map(|(name, list)| ((*name).to_owned(), list.iter().map(|v| (*v).to_owned()).collect()));
        let accepted = accepted.iter().map(|name| ((*name).to_owned(), "why".to_owned()));
        compare(&versions.collect(), &accepted.collect()).failures().len()
    }

    #[test]
    fn two_versions_need_a_reason() {
        assert_eq!(failures(&[("a", &["1.0.0"]), ("b", &["1.0.0", "2.0.0"])], &[]), 1);
        assert_eq!(failures(&[("a", &["1.0.0"]), ("b", &["1.0.0", "2.0.0"])], &["b"]), 0);
    }

    #[test]
    fn stale_exceptions_are_refused() {
        assert_eq!(failures(&[("a", &["1.0.0"])], &["a", "gone"]), 2);
    }

    #[test]
    fn exceptions_need_a_reason() {
        assert!(Policy::parse(r#"{"licences": ["MIT"], "duplicates": {"syn": "two majors"}}"#).is_ok());
        assert!(Policy::parse(r#"{"licences": ["MIT"], "duplicates": {"syn": " "}}"#).is_err());
        assert!(Policy::parse(r#"{"licences": ["MIT"], "duplicates": {}, "extra": 1}"#).is_err());
    }
}
