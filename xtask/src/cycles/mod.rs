//! Dependency cycles between the top modules of a crate's `src`.
//!
//! A module depends on another when its code names it: `crate::x`, or `super::x` in a file at the top. A name
//! that the crate root re-exports (`crate::BusError`) counts as the module it comes from. Tests do not count.

mod paths;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use self::paths::Names;
use crate::repo::{Repo, TextFile};
use crate::report::Report;

/// The uses of one module by another: file and line of each.
type Uses = Vec<String>;

/// The top modules of one crate and which of them names which.
#[derive(Debug, Default)]
struct ModuleGraph {
    modules: BTreeSet<String>,
    edges: BTreeMap<(String, String), Uses>,
    /// Paths that cannot be followed, such as a glob of the crate root.
    unclear: Vec<String>,
}

/// Fails for every edge of a cycle in the crate `name`.
pub(crate) fn check(repo: &Repo, name: &str, report: &mut Report) -> Result<()> {
    let graph = load(repo, name)?;
    for finding in &graph.unclear {
        report.fail(finding);
    }
    for cycle in graph.cycles() {
        let list = cycle.iter().cloned().collect::<Vec<_>>().join(", ");
        report.fail(format!("crates/{name}: these modules depend on each other: {list}"));
        for (from, to, uses) in graph.edges_within(&cycle) {
            report.fail(format!("crates/{name}: {from} -> {to} at {}", summary(uses)));
        }
    }
    Ok(())
}

/// Prints the cycles of the crate `name`; the edges with the fewest uses come first.
pub(crate) fn print(repo: &Repo, name: &str) -> Result<()> {
    let graph = load(repo, name)?;
    for finding in &graph.unclear {
        println!("cycles: {finding}");
    }
    let cycles = graph.cycles();
    for cycle in &cycles {
        let edges = graph.edges_within(cycle);
        let list = cycle.iter().cloned().collect::<Vec<_>>().join(", ");
        println!("cycles: {} modules and {} edges in one cycle: {list}", cycle.len(), edges.len());
        for (from, to, uses) in edges {
            println!("  {from} -> {to}  {}", summary(uses));
        }
    }
    println!(
        "cycles: crates/{name}: {} modules, {} edges, {} cycle(s)",
        graph.modules.len(),
        graph.edges.len(),
        cycles.len()
    );
    Ok(())
}

fn summary(uses: &Uses) -> String {
    let shown = uses.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    match uses.len() {
        ..=3 => shown,
        more => format!("{shown} and {} more", more - 3),
    }
}

fn load(repo: &Repo, name: &str) -> Result<ModuleGraph> {
    let folder = format!("crates/{name}/src/");
    let mut files = repo.text_files()?;
    files.retain(|file| file.path.starts_with(&folder) && file.path.ends_with(".rs"));
    if files.is_empty() {
        bail!("no sources in {folder}");
    }
    for file in &mut files {
        file.path = file.path.split_off(folder.len());
    }
    Ok(ModuleGraph::read(&files))
}

impl ModuleGraph {
    /// Reads the files of one `src` folder; their paths are relative to it.
    fn read(files: &[TextFile]) -> Self {
        let codes: Vec<_> = files.iter().map(|file| (file, tokens::Code::new(&file.text))).collect();
        let mut sources = Vec::new();
        let mut test_modules = BTreeSet::new();
        for (file, code) in &codes {
            let Some(module) = module_of(&file.path) else { continue };
            let (kept, tests) = tokens::without_tests(&code.tokens());
            test_modules.extend(tests.iter().map(|test| [module.as_slice(), &[*test]].concat()));
            sources.push((*file, module, kept));
        }
        sources.retain(|(_, module, _)| {
            let mut parents = (1..=module.len()).filter_map(|len| module.get(..len));
            !parents.any(|parent| test_modules.contains(parent))
        });

        let mut names = Names::default();
        for (_, module, tokens) in &sources {
            names.add_module(module, tokens);
        }
        let mut graph = Self { modules: names.modules(), unclear: names.unclear(), ..Self::default() };
        for (file, module, tokens) in &sources {
            for (from, path) in paths::from_root(module, tokens) {
                match names.home(path.text) {
                    Some(to) if to != from => {
                        let uses = graph.edges.entry((from, to)).or_default();
                        uses.push(format!("{}:{}", file.path, path.line));
                    }
                    None if path.text == "*" => {
                        graph.unclear.push(format!("{}:{}: glob of the crate root", file.path, path.line));
                    }
                    _ => {}
                }
            }
        }
        graph
    }

    /// Groups of modules that reach each other, the strongly connected components of more than one module.
    fn cycles(&self) -> Vec<BTreeSet<String>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.modules.iter().map(|module| (module.as_str(), self.reachable(module))).collect();
        let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|found| found.contains(to));
        let mut cycles = BTreeSet::new();
        for module in self.modules.iter().filter(|module| reaches(module, module)) {
            let partners =
                self.modules.iter().filter(|other| reaches(module, other) && reaches(other, module));
            cycles.insert(partners.cloned().collect::<BTreeSet<_>>());
        }
        cycles.into_iter().collect()
    }

    fn reachable(&self, module: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut queue = vec![module];
        while let Some(next) = queue.pop() {
            for (_, to) in self.edges.keys().filter(|(from, _)| from == next) {
                if found.insert(to.as_str()) {
                    queue.push(to);
                }
            }
        }
        found
    }

    /// The edges between modules of `cycle`, those with the fewest uses first.
    fn edges_within(&self, cycle: &BTreeSet<String>) -> Vec<(&str, &str, &Uses)> {
        let inside = self.edges.iter().filter(|((from, to), _)| cycle.contains(from) && cycle.contains(to));
        let mut edges: Vec<_> = inside.map(|((from, to), uses)| (from.as_str(), to.as_str(), uses)).collect();
        edges.sort_by_key(|(_, _, uses)| uses.len());
        edges
    }
}

/// The module path of a file: `a/b.rs` and `a/b/mod.rs` are `a::b`, the crate root is empty; `None` for other
/// targets.
fn module_of(path: &str) -> Option<Vec<&str>> {
    if path.starts_with("bin/") {
        return None;
    }
    let mut parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let entry = match parts.as_slice() {
        ["lib" | "main"] => true,
        parts => parts.last() == Some(&"mod"),
    };
    if entry {
        parts.pop();
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `PATH: code` lines into files and compares the edges, `a -> b`.
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let graph = graph(files);
        let edges: Vec<String> = graph.edges.keys().map(|(from, to)| format!("{from} -> {to}")).collect();
        assert_eq!(edges, expected, "{files:?}");
    }

    fn graph(files: &[(&str, &str)]) -> ModuleGraph {
        let file =
            |(path, text): &(&str, &str)| TextFile { path: (*path).to_owned(), text: (*text).to_owned() };
        ModuleGraph::read(&files.iter().map(file).collect::<Vec<_>>())
    }

    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let cycles = graph(files).cycles();
        cycles.into_iter().map(|cycle| cycle.into_iter().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn paths_from_the_root_are_edges() {
        check(&[("a.rs", "use crate::b::X;"), ("b.rs", "")], &["a -> b"]);
        check(&[("a.rs", "fn f() { crate::b::c(); }"), ("b/mod.rs", "")], &["a -> b"]);
        check(&[("a.rs", "use crate::{b::{X, Y}, c};"), ("b.rs", ""), ("c.rs", "")], &["a -> b", "a -> c"]);
        check(&[("a/x/y.rs", "use crate::a::z; use crate::b;"), ("b.rs", "")], &["a -> b"]);
        check(&[("a.rs", "macro_rules! m { () => { $crate::b::f() } }"), ("b.rs", "")], &["a -> b"]);
    }

    #[test]
    fn super_reaches_the_root_from_the_right_depth() {
        check(&[("a.rs", "use super::b::X;"), ("b.rs", "")], &["a -> b"]);
        check(&[("a/mod.rs", "use super::{b, c::X};"), ("b.rs", ""), ("c.rs", "")], &["a -> b", "a -> c"]);
        check(&[("a/x.rs", "use super::b::X;"), ("a/b.rs", ""), ("b.rs", "")], &[]);
        check(&[("a/x.rs", "use super::super::b::X;"), ("b.rs", "")], &["a -> b"]);
        check(&[("a.rs", "mod x { use super::b; } use super::c;"), ("b.rs", ""), ("c.rs", "")], &["a -> c"]);
        check(&[("a.rs", "mod x { fn f() { super::super::b::g() } }"), ("b.rs", "")], &["a -> b"]);
    }

    #[test]
    fn reexports_count_as_the_module_they_come_from() {
        let root =
            "mod a; mod b; pub use b::{Bus, c::Deep as Other}; pub use self::b::Last; pub use std::x::Far;";
        for name in ["Bus", "Other", "Last"] {
            check(&[("lib.rs", root), ("a.rs", &format!("use crate::{name};")), ("b.rs", "")], &["a -> b"]);
        }
        check(&[("lib.rs", root), ("a.rs", "use crate::{Far, Deep};"), ("b.rs", "")], &[]);
        check(
            &[("lib.rs", "pub use b::{self as c};"), ("a.rs", "use crate::c::X;"), ("b.rs", "")],
            &["a -> b"],
        );
    }

    #[test]
    fn comments_text_and_tests_do_not_count() {
        check(&[("a.rs", "// crate::b\n/// [`crate::b`]\nconst X: &str = \"crate::b\";"), ("b.rs", "")], &[]);
        check(&[("a.rs", "#[cfg(test)]\nmod tests { use crate::b; }"), ("b.rs", "")], &[]);
        check(
            &[("a/mod.rs", "#[cfg(test)]\nmod tests;"), ("a/tests.rs", "use crate::b;"), ("b.rs", "")],
            &[],
        );
        check(&[("a.rs", "pub(crate) struct X; pub(in crate::a) fn f() {}"), ("b.rs", "")], &[]);
    }

    #[test]
    fn globs_of_the_root_are_unclear() {
        assert_eq!(graph(&[("a.rs", "use crate::*;")]).unclear, ["a.rs:1: glob of the crate root"]);
        assert_eq!(graph(&[("lib.rs", "pub use a::*;"), ("a.rs", "")]).unclear.len(), 1);
        assert!(
            graph(&[("lib.rs", "pub use std::io::*;"), ("a.rs", "use crate::b::*;"), ("b.rs", "")])
                .unclear
                .is_empty()
        );
    }

    #[test]
    fn a_planted_cycle_is_found() {
        let two = [("a.rs", "use crate::b;"), ("b.rs", "use crate::a;"), ("c.rs", "use crate::a;")];
        assert_eq!(cycles(&two), ["a b"]);
        let ring = [("a.rs", "use crate::b;"), ("b.rs", "use crate::c;"), ("c.rs", "use crate::a;")];
        assert_eq!(cycles(&ring), ["a b c"]);
        let through_root =
            [("lib.rs", "pub use a::X;"), ("a.rs", "use crate::b;"), ("b.rs", "use crate::X;")];
        assert_eq!(cycles(&through_root), ["a b"]);
        let none = [("a.rs", "use crate::b; use crate::c;"), ("b.rs", "use crate::c;"), ("c.rs", "")];
        assert!(cycles(&none).is_empty());
    }

    #[test]
    fn edges_with_the_fewest_uses_come_first() {
        let graph = graph(&[("a.rs", "use crate::b::X;\nuse crate::b::Y;"), ("b.rs", "\nuse crate::a;")]);
        let cycle = graph.cycles().remove(0);
        let edges: Vec<_> = graph.edges_within(&cycle).iter().map(|(_, _, uses)| summary(uses)).collect();
        assert_eq!(edges, ["b.rs:2", "a.rs:1, a.rs:2"]);
    }
}
