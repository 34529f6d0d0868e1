//! The size of a crate: lines of code without blank lines, comments and tests.

use std::collections::BTreeMap;

use super::lines_before_tests;
use crate::repo::TextFile;
use crate::report::Report;

/// A crate above the first size is to be split, so that a newcomer can hold it in the head; above the second it is refused.
const CRATE_LINES_REVIEW: usize = 11_000;
const CRATE_LINES_MAX: usize = 12_000;

pub(super) fn check<'a>(files: impl Iterator<Item = &'a TextFile>, report: &mut Report) {
    let mut crates: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files {
        if let Some(name) = crate_of(&file.path) {
            *crates.entry(name).or_default() += code_lines(&file.text);
        }
    }
    for (name, lines) in crates {
        if lines > CRATE_LINES_MAX {
            report.fail(format!("crates/{name}: {lines} lines of code (cap {CRATE_LINES_MAX})"));
        } else if lines > CRATE_LINES_REVIEW {
            report.warn(format!("crates/{name}: {lines} lines of code (split above {CRATE_LINES_REVIEW})"));
        }
    }
}

/// The crate that a source file belongs to; `None` for files of tests.
fn crate_of(path: &str) -> Option<&str> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    (file.ends_with(".rs") && !file.ends_with("tests.rs")).then_some(name)
}

fn code_lines(text: &str) -> usize {
    let lines = text.lines().take(lines_before_tests(text)).map(str::trim_start);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_above_the_cap_are_named() {
        let file = |path: &str, text: String| TextFile { path: path.to_owned(), text };
        let code = "let a = 1;\n\n// why\n".repeat(CRATE_LINES_MAX);
        let tests = "#[cfg(test)]\nmod tests {\n    fn one() {}\n}\n";
        let mut files = vec![file("crates/a/src/lib.rs", format!("{code}{tests}"))];
        files.push(file("crates/a/src/x/tests.rs", "let b = 1;\n".to_owned()));
        let found = |files: &[TextFile]| {
            let mut report = Report::default();
            check(files.iter(), &mut report);
            report.failures().to_vec()
        };
        assert!(found(&files).is_empty());
        files.push(file("crates/a/src/one_more.rs", "let b = 1;\n".to_owned()));
        assert_eq!(found(&files), ["crates/a: 12001 lines of code (cap 12000)"]);
    }
}
