//! Compares three lists of error codes: the code's, that of `/openapi.json`, and that of the protocol's document.

use std::collections::BTreeSet;

use super::keys::is_word;
use crate::report::Report;
use crate::tidy::{code_only, literals};

/// The list that `/openapi.json` has.
pub(crate) const LIST: &str = "crates/gateway/src/codes.rs";
/// The document with the table of codes.
pub(crate) const DOCUMENT: &str = "docs/protocol.md";
/// The errors that stop a server at its start, and the document that says what to do about them.
pub(crate) const START_SOURCES: [&str; 2] = ["crates/store/src/embedded/error.rs", "crates/log/src/error.rs"];
pub(crate) const START_DOCUMENT: &str = "docs/operating.md";
/// The folders whose errors reach clients.
const SOURCES: [&str; 7] = [
    "crates/model/src/",
    "crates/delivery/src/",
    "crates/bus/src/",
    "crates/projections/src/",
    "crates/auth/src/",
    "crates/gateway/src/",
    "crates/store/src/port/",
];

/// Whether the errors of a file reach clients.
pub(crate) fn is_source(path: &str) -> bool {
    path != LIST && path.ends_with(".rs") && SOURCES.iter().any(|folder| path.starts_with(folder))
}

/// The codes that a source gives: words in functions named `code` or `..._code`, and words after a status.
pub(crate) fn given(source: &str) -> BTreeSet<String> {
    let code = code_only(source);
    let bodies: Vec<(usize, usize)> =
        code.match_indices("code(").filter_map(|(at, _)| body(&code, at)).collect();
    let in_body = |line: &usize| bodies.iter().any(|(first, last)| (*first..=*last).contains(line));
    let words =
        literals(source).into_iter().filter(|literal| in_body(&literal.line)).map(|literal| literal.text);
    words.chain(after_status(source)).filter(|word| is_word(word)).map(str::to_owned).collect()
}

/// The first and the last line of the function whose name ends at `at`, if a function is declared there.
fn body(code: &str, at: usize) -> Option<(usize, usize)> {
    let (before, after) = (code.get(..at)?, code.get(at..)?);
    let name_start = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
    let is_name = name_start == at || before.ends_with('_');
    if !is_name || !before.get(..name_start)?.ends_with("fn ") {
        return None;
    }
    let first = before.matches('\n').count() + 1;
    let (mut depth, mut line) = (0_usize, first);
    for c in after.chars() {
        match c {
            '\n' => line += 1,
            '{' => depth += 1,
            '}' if depth <= 1 => return Some((first, line)),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The literals after `StatusCode::NAME,`.
fn after_status(source: &str) -> impl Iterator<Item = &str> {
    source.split("StatusCode::").skip(1).filter_map(|after| {
        let (name, rest) = after.split_once(',')?;
        let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        is_name.then_some(rest.trim_start().strip_prefix('"')?.split('"').next()?)
    })
}

/// The codes of a list in the code.
pub(crate) fn listed(source: &str) -> BTreeSet<String> {
    let words = literals(source).into_iter().map(|literal| literal.text).filter(|text| is_word(text));
    words.map(str::to_owned).collect()
}

/// The codes of the document's table.
pub(crate) fn documented(document: &str) -> BTreeSet<String> {
    let table = document.split_once("## Error codes").map_or("", |(_, table)| table);
    let cells = table.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Reports codes that one of the three does not have.
pub(crate) fn compare(
    given: &BTreeSet<String>,
    listed: &BTreeSet<String>,
    documented: &BTreeSet<String>,
    report: &mut Report,
) {
    for code in given.difference(documented) {
        report.fail(format!("{DOCUMENT}: the table of error codes does not have `{code}`"));
    }
    for code in given.difference(listed) {
        report.fail(format!("{LIST}: the list of error codes does not have `{code}`"));
    }
    for code in documented.difference(given) {
        report.fail(format!("{DOCUMENT}: no error has the code `{code}`"));
    }
    for code in listed.difference(given) {
        report.fail(format!("{LIST}: no error has the code `{code}`"));
    }
}

/// The words with which messages of a source begin: `state_corrupt` of `"state_corrupt: the folder ..."`.
pub(crate) fn leading(source: &str) -> BTreeSet<String> {
    let firsts = literals(source).into_iter().filter_map(|literal| Some(literal.text.split_once(": ")?.0));
    firsts.filter(|word| is_word(word) && word.contains('_')).map(str::to_owned).collect()
}

/// Reports codes of a start that the document for operators does not have.
pub(crate) fn compare_starts(given: &BTreeSet<String>, document: &str, report: &mut Report) {
    for code in given.iter().filter(|code| !document.contains(&format!("`{code}`"))) {
        report.fail(format!("{START_DOCUMENT}: it does not say what to do about `{code}`"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn codes_are_found_in_functions_and_after_a_status() {
        let source = "
            fn code(&self) -> &'static str {
                match self { A => \"bad_a\", B => limit_code(b) }
            }
            fn limit_code(b: B) -> &'static str { \"too_b\" }
            fn decode(x: &str) { f(\"not_a_code\") }
            fn g() { Refusal::new(StatusCode::NOT_FOUND, \"not_c\", \"a message\") }
            fn h() { (StatusCode::CONFLICT,
                \"in_d\", other(\"no code\")) }
            fn i() { StatusCode::OK; let x = \"plain\"; }
            fn j() { Refusal::new(StatusCode::GONE, code, x).header(\n\"no_code\") }";
        assert_eq!(given(source), set(&["bad_a", "too_b", "not_c", "in_d"]));
    }

    #[test]
    fn every_difference_is_reported() {
        let mut report = Report::default();
        let table =
            documented("# x\n| `no` |\n## Error codes\n| `a`, `b` | 400 | `c` |\n| `gone` | 404 | d |\n");
        assert_eq!(table, set(&["a", "b", "gone"]));
        compare(&set(&["a", "b", "new"]), &listed("[\"a\", \"b\", \"old\"]"), &table, &mut report);
        assert_eq!(
            report.failures(),
            [
                "docs/protocol.md: the table of error codes does not have `new`",
                "crates/gateway/src/codes.rs: the list of error codes does not have `new`",
                "docs/protocol.md: no error has the code `gone`",
                "crates/gateway/src/codes.rs: no error has the code `old`",
            ]
        );
        let mut report = Report::default();
        let starts = leading("a(\"is_told: x\"); b(\"not_told: y\"); c(\"plain: z\"); d(\"no_code\")");
        compare_starts(&starts, "say `is_told`", &mut report);
        assert_eq!(report.failures(), ["docs/operating.md: it does not say what to do about `not_told`"]);
        let mut report = Report::default();
        compare(&table, &table, &table, &mut report);
        assert!(report.failures().is_empty());
    }
}
