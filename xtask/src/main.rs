//! The project's own checks, run as `cargo xtask COMMAND`. They need nothing but cargo, and bash for the documents.

#![expect(clippy::print_stdout, reason = "a command-line tool reports on stdout")]

mod cycles;
mod docs;
mod duplicates;
mod edges;
mod licences;
mod metadata;
mod planted;
mod policy;
mod repo;
mod report;
mod spdx;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::metadata::{Graph, Scope};
use crate::repo::Repo;
use crate::report::Report;

const USAGE: &str = "usage: cargo xtask COMMAND

  check          all of the following up to docs-tags
  edges          which workspace crate may depend on which, and where a library may be linked
  licences       every package of the lock file is under an allowed licence
  duplicates     no crate is linked in two versions, unless xtask/policy.json says why
  tidy           sizes, leftovers, whitespace, manifests, the code map
  docs-tags      every command in the documents is run by something
  docs-commands  build the binary and run the commands of the documents
  cycles CRATE   print the dependency cycles between the top modules of a crate
  planted        show that the suite catches each planted bug
";

type Check = fn(&Repo) -> Result<Report>;

const CHECKS: [(&str, Check); 5] = [
    ("edges", |repo| edges::check(repo, &Graph::load(repo, Scope::Linux)?)),
    ("licences", |repo| licences::check(repo, &Graph::load(repo, Scope::AllPlatforms)?)),
    ("duplicates", |repo| duplicates::check(repo, &Graph::load(repo, Scope::Linux)?)),
    ("tidy", tidy::check),
    ("docs-tags", docs::check_tags),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("xtask: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let repo = Repo::find()?;
    match args {
        [command] if command == "check" => run_checks(&repo, |_| true),
        [command] if command == "docs-commands" => docs::run_commands(&repo),
        [command, name] if command == "cycles" => cycles::print(&repo, name),
        [command] if command == "planted" => planted::run(&repo),
        [command] if CHECKS.iter().any(|(name, _)| name == command) => {
            run_checks(&repo, |name| name == command)
        }
        [] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => bail!("unknown arguments: {}\n\n{USAGE}", args.join(" ")),
    }
}

fn run_checks(repo: &Repo, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let mut failures = 0;
    for (name, check) in CHECKS.iter().filter(|(name, _)| wanted(name)) {
        let report = check(repo)?;
        for warning in report.warnings() {
            println!("{name}: warning: {warning}");
        }
        for failure in report.failures() {
            println!("{name}: {failure}");
        }
        println!("{name}: {}", if report.failures().is_empty() { "ok" } else { "FAILED" });
        failures += report.failures().len();
    }
    if failures > 0 {
        bail!("{failures} finding(s)");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_clean(report: Report) {
        assert!(report.failures().is_empty(), "\n{}", report.failures().join("\n"));
    }

    fn linux() -> (Repo, Graph) {
        let repo = Repo::find().unwrap();
        let graph = Graph::load(&repo, Scope::Linux).unwrap();
        (repo, graph)
    }

    #[test]
    fn repository_keeps_its_edges() {
        let (repo, graph) = linux();
        assert_clean(edges::check(&repo, &graph).unwrap());
    }

    #[test]
    fn repository_links_allowed_licences_only() {
        let (repo, graph) = linux();
        assert_clean(licences::check(&repo, &graph).unwrap());
    }

    #[test]
    fn repository_links_each_crate_once() {
        let (repo, graph) = linux();
        assert_clean(duplicates::check(&repo, &graph).unwrap());
    }

    #[test]
    fn repository_is_tidy() {
        assert_clean(tidy::check(&Repo::find().unwrap()).unwrap());
    }

    #[test]
    fn repository_documents_are_run() {
        assert_clean(docs::check_tags(&Repo::find().unwrap()).unwrap());
    }
}
