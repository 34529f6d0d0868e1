//! Every package in the lock graph must be usable under a licence that `policy.json` allows.

use anyhow::Result;

use crate::metadata::Graph;
use crate::policy::{PATH, Policy};
use crate::repo::Repo;
use crate::report::Report;
use crate::spdx;

pub(crate) fn check(repo: &Repo, graph: &Graph) -> Result<Report> {
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
