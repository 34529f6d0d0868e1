//! Checks of style that a machine can make. This file reads the sources; each rule has a file.

mod functions;
mod lexer;
mod manifests;
mod map;
mod sizes;
mod types;
mod words;

use anyhow::Result;

use crate::repo::{Repo, TextFile};
use crate::report::Report;

pub(crate) use self::lexer::{code_only, literals};

/// Files are reviewed above this many lines and refused above the next, unit tests not counted.
const FILE_LINES_REVIEW: usize = 400;
const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

pub(crate) fn check(repo: &Repo) -> Result<Report> {
    let mut report = Report::default();
    let files = repo.text_files()?;
    for file in &files {
        check_file(file, &mut report);
    }
    types::check(files.iter(), &mut report);
    sizes::check(files.iter(), &mut report);
    map::check(&repo.read(map::PATH)?, files.iter().map(|file| file.path.as_str()), &mut report);
    Ok(report)
}

fn check_file(file: &TextFile, report: &mut Report) {
    let generated = file.path == "Cargo.lock" || file.path.starts_with("fixtures/");
    if generated {
        return;
    }
    check_lines(file, report);
    if file.path.ends_with(".rs") {
        check_size(file, report);
        for function in functions::longer_than(&file.text, FUNCTION_LINES_MAX) {
            report.fail(format!(
                "{}:{}: fn {} has {} lines (cap {FUNCTION_LINES_MAX})",
                file.path, function.line, function.name, function.lines
            ));
        }
    }
    if file.path == "Cargo.toml" {
        for finding in manifests::workspace_findings(&file.text) {
            report.fail(format!("{}: {finding}", file.path));
        }
    }
    if file.path.ends_with("/Cargo.toml") {
        for finding in manifests::findings(&file.text) {
            report.fail(format!("{}: {finding}", file.path));
        }
    }
}

fn check_lines(file: &TextFile, report: &mut Report) {
    let source = file.path.ends_with(".rs");
    for (number, line) in file.text.lines().enumerate() {
        for finding in words::findings(line, source) {
            report.fail(format!("{}:{}: {finding}", file.path, number + 1));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        report.fail(format!("{}: no newline at the end", file.path));
    }
}

fn check_size(file: &TextFile, report: &mut Report) {
    let lines = lines_before_tests(&file.text);
    if lines > FILE_LINES_MAX {
        report.fail(format!("{}: {lines} lines (cap {FILE_LINES_MAX})", file.path));
    } else if lines > FILE_LINES_REVIEW {
        report.warn(format!("{}: {lines} lines (review above {FILE_LINES_REVIEW})", file.path));
    }
}

/// Lines up to the unit-test module, if there is one.
pub(crate) fn lines_before_tests(text: &str) -> usize {
    let mut after_attribute = false;
    for (number, line) in text.lines().enumerate() {
        if after_attribute && line.starts_with("mod ") {
            return number - 1;
        }
        after_attribute = line == "#[cfg(test)]";
    }
    text.lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut report = Report::default();
        check_file(&TextFile { path: path.to_owned(), text: text.to_owned() }, &mut report);
        report.failures().to_vec()
    }

    #[test]
    fn size_leaves_unit_tests_out() {
        let code = "// line\n".repeat(FILE_LINES_MAX);
        let tests = "#[cfg(test)]\nmod tests {\n}\n";
        assert!(findings("a.rs", &format!("{code}{tests}")).is_empty());
        assert_eq!(findings("a.rs", &format!("{code}// one more\n{tests}")), ["a.rs: 801 lines (cap 800)"]);
    }

    #[test]
    fn findings_name_file_and_line() {
        assert_eq!(findings("a.md", "fine\nbad \n"), ["a.md:2: trailing whitespace"]);
        assert_eq!(findings("a.md", "fine"), ["a.md: no newline at the end"]);
    }

    #[test]
    fn fixtures_are_left_alone() {
        assert!(findings("fixtures/disk/v1/names.txt", "a \t").is_empty());
    }
}
