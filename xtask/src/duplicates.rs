//! One version of each crate in what we build and ship; test-only dependencies do not count.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::metadata::Graph;
use crate::policy::{PATH, Policy};
use crate::repo::Repo;
use crate::report::Report;

pub(crate) fn check(repo: &Repo, graph: &Graph) -> Result<Report> {
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
}
