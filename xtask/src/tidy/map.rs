//! Compares the code map in `docs/ARCHITECTURE.md` with the modules that exist.

use std::collections::BTreeSet;

use crate::report::Report;

pub(crate) const PATH: &str = "docs/ARCHITECTURE.md";

/// Entry files hold declarations only and are not on the map.
const ENTRIES: [&str; 3] = ["lib.rs", "main.rs", "mod.rs"];

/// `paths` are all files of the repository.
pub(crate) fn check<'a>(map: &str, paths: impl Iterator<Item = &'a str>, report: &mut Report) {
    let real: BTreeSet<(String, String)> = paths.filter_map(module).collect();
    let drawn = drawn(map);
    for (name, module) in real.difference(&drawn) {
        report.fail(format!("{PATH}: the map of crates/{name} does not have `{module}`"));
    }
    for (name, module) in drawn.difference(&real) {
        report.warn(format!("{PATH}: crates/{name} has no module `{module}`"));
    }
}

/// The crate and top-level module of a source file; `a.rs` and the files of `a/` are one module.
fn module(path: &str) -> Option<(String, String)> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    if ENTRIES.contains(&file) || file.starts_with("bin/") {
        return None;
    }
    let module = file.split('/').next()?;
    Some((name.to_owned(), module.trim_end_matches(".rs").to_owned()))
}

/// Modules in the first column of the tables under `### crates/NAME`.
fn drawn(map: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let mut current = None;
    for line in map.lines() {
        if line.starts_with('#') {
            current = line.strip_prefix("### crates/");
        }
        let Some(name) = current else { continue };
        let Some(cell) = line.strip_prefix('|').and_then(|row| row.split('|').next()) else { continue };
        let words = cell.split('`').skip(1).step_by(2);
        let modules = words.map(|word| word.trim_end_matches('/').trim_end_matches(".rs").to_owned());
        found.extend(modules.map(|module| (name.to_owned(), module)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(map: &str, paths: &[&str]) -> (usize, usize) {
        let mut report = Report::default();
        check(map, paths.iter().copied(), &mut report);
        (report.failures().len(), report.warnings().len())
    }

    const MAP: &str = "### crates/log\n\n| module | x |\n| --- | --- |\n| `a.rs`, `b/` | `c.rs` |\n\n### xtask\n| `d.rs` |\n";

    #[test]
    fn map_and_modules_agree() {
        assert_eq!(
            findings(MAP, &["crates/log/src/a.rs", "crates/log/src/b/x.rs", "crates/log/src/lib.rs"]),
            (0, 0)
        );
        assert_eq!(
            findings(MAP, &["crates/log/src/a.rs", "crates/log/src/a/t.rs", "crates/log/src/b/x.rs"]),
            (0, 0)
        );
    }

    #[test]
    fn missing_modules_fail_and_absent_ones_warn() {
        assert_eq!(findings(MAP, &["crates/log/src/a.rs", "crates/log/src/c.rs"]), (1, 1));
    }
}
