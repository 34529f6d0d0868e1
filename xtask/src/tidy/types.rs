//! A type's name is used once in the workspace, so that a search for it finds one thing.

use std::collections::BTreeMap;

use crate::repo::TextFile;
use crate::report::Report;

/// Reports each type name that two source files define. Tests, and types inside functions or unit-test
/// modules, are not looked at.
pub(super) fn check<'a>(files: impl Iterator<Item = &'a TextFile>, report: &mut Report) {
    let mut homes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files.filter(|file| is_source(&file.path)) {
        for name in defined(&file.text) {
            homes.entry(name).or_default().push(&file.path);
        }
    }
    for (name, paths) in homes.iter().filter(|(_, paths)| paths.len() > 1) {
        report.fail(format!("the type name `{name}` is used {} times: {}", paths.len(), paths.join(", ")));
    }
}

fn is_source(path: &str) -> bool {
    let tests = path.contains("/tests/") || path.ends_with("/tests.rs");
    path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs") && !tests
}

/// The names of the structs, enums, traits and unions that stand at the left margin.
fn defined(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let words = line.strip_prefix("pub").map_or(line, after_visibility);
        let mut words = words.split([' ', '<', '(', '{', ';', ':']);
        matches!(words.next()?, "struct" | "enum" | "trait" | "union").then(|| words.next())?
    })
}

/// The rest of a line after `pub` and its restriction, if it has one.
fn after_visibility(rest: &str) -> &str {
    let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
    rest.trim_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_name_that_two_files_define_is_reported() {
        let files = [
            file("crates/a/src/lib.rs", "pub(in crate::x) struct Page<T> {\n}\nenum Kind {}\n"),
            file("crates/b/src/lib.rs", "pub trait Page: Send {\n}\n    struct Kind;\n"),
            file("crates/b/src/tests.rs", "struct Kind;\n"),
        ];
        let mut report = Report::default();
        check(files.iter(), &mut report);
        let expected = "the type name `Page` is used 2 times: crates/a/src/lib.rs, crates/b/src/lib.rs";
        assert_eq!(report.failures(), [expected]);
    }
}
