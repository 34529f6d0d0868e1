//! The project's own checks, run as `cargo xtask COMMAND`. They need only cargo, and bash for the documents.

#![expect(clippy::print_stdout, reason = "a command-line tool reports on stdout")]

mod cycles;
mod dependencies;
mod docs;
mod edges;
mod fuzz;
mod metadata;
mod names;
mod planted;
mod repo;
mod report;
mod spdx;
mod tidy;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::metadata::{Graph, Scope};
use crate::repo::Repo;
use crate::report::Report;

/// A check that `cargo xtask check` runs: its name, its help, and its work.
type Check = (&'static str, &'static str, fn(&Repo) -> Result<Report>);

const CHECKS: &[Check] = &[
    ("edges", "which workspace crate may depend on which, and where a library may be linked", |repo| {
        edges::check(repo, &Graph::load(repo, Scope::Linux)?)
    }),
    ("licences", "every package of the lock file is under an allowed licence", |repo| {
        dependencies::check_licences(repo, &Graph::load(repo, Scope::AllPlatforms)?)
    }),
    ("duplicates", "no crate is linked in two versions, unless xtask/policy.json says why", |repo| {
        dependencies::check_duplicates(repo, &Graph::load(repo, Scope::Linux)?)
    }),
    ("tidy", "sizes, leftovers, whitespace, manifests, the code map", tidy::check),
    ("names", "settings, error codes and flags in messages and documents exist", names::check),
    ("docs-tags", "every command in the documents is run by a test or by CI", docs::check_tags),
];

/// Any other command: its name, its help, and its work.
type Command = (&'static str, &'static str, fn(&Repo) -> Result<()>);

const COMMANDS: &[Command] = &[
    ("docs-commands", "build the binary and run the commands of the documents", docs::run_commands),
    (
        "fuzz",
        "give random input to all that reads what clients send, for 60 s; `fuzz SECONDS` for another time",
        |repo| fuzz::run(repo, None),
    ),
    ("planted", "show that the suite catches each planted bug", planted::run),
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
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            print!("{}", usage());
            Ok(())
        }
        ["check"] => run_checks(&repo, |_| true),
        ["cycles", name] => cycles::print(&repo, name),
        ["fuzz", seconds] => {
            fuzz::run(&repo, Some(seconds.parse().context("`fuzz SECONDS` takes a number")?))
        }
        [command] if CHECKS.iter().any(|(name, ..)| name == command) => {
            run_checks(&repo, |name| name == *command)
        }
        [command] => match COMMANDS.iter().find(|(name, ..)| name == command) {
            Some((.., work)) => work(&repo),
            None => bail!("unknown command: {command}\n\n{}", usage()),
        },
        _ => bail!("unknown arguments: {}\n\n{}", args.join(" "), usage()),
    }
}

fn usage() -> String {
    let mut text = "usage: cargo xtask COMMAND\n\n".to_owned();
    let mut row = |name: &str, help: &str| text.push_str(&format!("  {name:<14} {help}\n"));
    row("check", "all of the following, up to docs-tags");
    CHECKS.iter().for_each(|(name, help, _)| row(name, help));
    COMMANDS.iter().for_each(|(name, help, _)| row(name, help));
    row("cycles CRATE", "print the dependency cycles between the top modules of a crate");
    text
}

fn run_checks(repo: &Repo, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let mut failures = 0;
    for (name, _, check) in CHECKS.iter().filter(|(name, ..)| wanted(name)) {
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
        assert_clean(dependencies::check_licences(&repo, &graph).unwrap());
    }

    #[test]
    fn repository_links_each_crate_once() {
        let (repo, graph) = linux();
        assert_clean(dependencies::check_duplicates(&repo, &graph).unwrap());
    }

    #[test]
    fn repository_is_tidy() {
        assert_clean(tidy::check(&Repo::find().unwrap()).unwrap());
    }

    #[test]
    fn repository_names_what_exists() {
        assert_clean(names::check(&Repo::find().unwrap()).unwrap());
    }

    #[test]
    fn repository_documents_are_run() {
        assert_clean(docs::check_tags(&Repo::find().unwrap()).unwrap());
    }
}
