//! Which crate may use which. The table is the architecture; changing it needs a decision record in
//! `docs/adr`.

use anyhow::Result;

use crate::cycles;
use crate::metadata::{Graph, Kind, Package};
use crate::repo::{Repo, TextFile};
use crate::report::Report;

/// A workspace crate and the workspace crates it may name. Crates that do not exist yet may have a row
/// already.
const ALLOWED: &[(&str, &[&str])] = &[
    ("allocator", &[]),
    ("model", &[]),
    ("schema", &["model"]),
    ("jq", &["model"]),
    ("delivery", &["model"]),
    ("log", &["model"]),
    ("store", &["model", "log"]),
    ("store-mongo", &["model", "store"]),
    ("bus", &["model", "schema", "jq", "delivery", "log", "store"]),
    ("relay", &["model", "store", "bus"]),
    ("projections", &["model", "schema", "jq", "delivery", "log", "store", "bus"]),
    ("auth", &["model", "delivery"]),
    ("gateway", &["model", "schema", "jq", "delivery", "bus", "projections", "auth"]),
    ("client", &["model"]),
    (
        "bench",
        &[
            "allocator",
            "model",
            "schema",
            "jq",
            "delivery",
            "log",
            "store",
            "store-mongo",
            "bus",
            "relay",
            "projections",
            "auth",
            "gateway",
            "client",
        ],
    ),
    (
        "cli",
        &[
            "allocator",
            "model",
            "schema",
            "jq",
            "delivery",
            "log",
            "store",
            "store-mongo",
            "bus",
            "relay",
            "projections",
            "auth",
            "gateway",
            "client",
            "bench",
        ],
    ),
    (
        "testkit",
        &[
            "model",
            "schema",
            "jq",
            "delivery",
            "log",
            "store",
            "store-mongo",
            "bus",
            "relay",
            "projections",
            "auth",
            "gateway",
            "client",
        ],
    ),
    ("xtask", &[]),
];

/// Libraries that only some crates may link outside their tests.
const HOMES: &[(&str, &[&str])] = &[
    ("axum", &["gateway"]),
    ("fjall", &["store"]),
    ("mongodb", &["store-mongo"]),
    ("anyhow", &["cli", "bench", "xtask"]),
];

/// Crates that stay synchronous: they must not link tokio.
const SYNCHRONOUS: &[&str] = &["model", "schema", "jq", "delivery", "log"];

/// Crates whose top modules must not depend on each other in a cycle; `cargo xtask cycles CRATE` shows them.
const ACYCLIC: &[&str] = &["auth", "bus", "cli", "jq", "model", "schema", "store"];

pub(crate) fn check(repo: &Repo, graph: &Graph) -> Result<Report> {
    let mut report = Report::default();
    for finding in graph.workspace().flat_map(findings) {
        report.fail(finding);
    }
    for file in repo.text_files()? {
        if names_testkit_in_sources(&file) {
            report.fail(format!("{}: the testkit is for tests/ folders only", file.path));
        }
    }
    for name in ACYCLIC {
        cycles::check(repo, name, &mut report)?;
    }
    Ok(report)
}

fn findings(package: &Package) -> Vec<String> {
    let Some(own) = role(&package.name) else {
        return vec![format!("{}: workspace crates are named promethean-ROLE", package.name)];
    };
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == own) else {
        return vec![format!("{own}: not in the table of crates in xtask/src/edges.rs")];
    };
    let mut found = Vec::new();
    for dep in &package.declared {
        let Some(target) = role(&dep.name) else {
            found.extend(library_finding(own, &dep.name, dep.kind));
            continue;
        };
        let testing = target == "testkit" && dep.kind == Kind::Dev;
        if !testing && !allowed.contains(&target) {
            found.push(format!("{own} must not depend on {target} ({:?})", dep.kind));
        }
    }
    found
}

fn library_finding(own: &str, library: &str, kind: Kind) -> Option<String> {
    if kind == Kind::Dev {
        return None;
    }
    if library == "tokio" && SYNCHRONOUS.contains(&own) {
        return Some(format!("{own} is synchronous and must not link tokio"));
    }
    let (_, homes) = HOMES.iter().find(|(name, _)| *name == library)?;
    if homes.contains(&own) {
        return None;
    }
    Some(format!("{own} must not link {library}; its home is {}", homes.join(", ")))
}

/// The testkit depends on the crates it tests, so a unit test in `src/` would see two copies of its own
/// types.
fn names_testkit_in_sources(file: &TextFile) -> bool {
    file.path.starts_with("crates/")
        && file.path.contains("/src/")
        && !file.path.starts_with("crates/testkit/")
        && file.text.contains("promethean_testkit")
}

fn role(package: &str) -> Option<&str> {
    if package == "xtask" { Some(package) } else { package.strip_prefix("promethean-") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Declared;

    fn package(name: &str, deps: &[(&str, Kind)]) -> Package {
        let declared = deps.iter().map(|(name, kind)| Declared { name: (*name).to_owned(), kind: *kind });
        Package {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            licence: None,
            declared: declared.collect(),
        }
    }

    fn check_edge(name: &str, dep: &str, kind: Kind, allowed: bool) {
        let found = findings(&package(name, &[(dep, kind)]));
        assert_eq!(found.is_empty(), allowed, "{name} -> {dep} {kind:?}: {found:?}");
    }

    #[test]
    fn edges_follow_the_table() {
        check_edge("promethean-log", "promethean-model", Kind::Normal, true);
        check_edge("promethean-model", "promethean-log", Kind::Normal, false);
        check_edge("promethean-gateway", "promethean-store", Kind::Normal, false);
        check_edge("promethean-gateway", "promethean-store", Kind::Dev, false);
        check_edge("promethean-gateway", "promethean-log", Kind::Build, false);
        check_edge("promethean-bus", "promethean-projections", Kind::Normal, false);
        check_edge("promethean-client", "promethean-bus", Kind::Normal, false);
        check_edge("promethean-cli", "promethean-gateway", Kind::Normal, true);
        check_edge("promethean-log", "promethean-testkit", Kind::Dev, true);
        check_edge("promethean-cli", "promethean-testkit", Kind::Normal, false);
        check_edge("promethean-bus", "promethean-delivery", Kind::Normal, true);
        check_edge("promethean-delivery", "promethean-bus", Kind::Normal, false);
        check_edge("promethean-cli", "promethean-bench", Kind::Normal, true);
        check_edge("promethean-bench", "promethean-cli", Kind::Normal, false);
        check_edge("promethean-surprise", "serde", Kind::Normal, false);
    }

    #[test]
    fn libraries_stay_at_home() {
        check_edge("promethean-store", "fjall", Kind::Normal, true);
        check_edge("promethean-log", "fjall", Kind::Normal, false);
        check_edge("promethean-log", "tokio", Kind::Normal, false);
        check_edge("promethean-log", "tokio", Kind::Dev, true);
        check_edge("promethean-jq", "tokio", Kind::Normal, false);
        check_edge("promethean-store", "anyhow", Kind::Normal, false);
    }

    #[test]
    fn testkit_stays_out_of_sources() {
        let file =
            |path: &str| TextFile { path: path.to_owned(), text: "use promethean_testkit::X;".to_owned() };
        assert!(names_testkit_in_sources(&file("crates/log/src/writer.rs")));
        assert!(!names_testkit_in_sources(&file("crates/log/tests/crash.rs")));
        assert!(!names_testkit_in_sources(&file("crates/testkit/src/lib.rs")));
    }

    #[test]
    fn table_has_no_cycle() {
        for (own, allowed) in ALLOWED {
            for target in *allowed {
                let back = ALLOWED.iter().any(|(name, uses)| name == target && uses.contains(own));
                assert!(!back, "{own} and {target} may use each other");
            }
        }
    }
}
