//! The names in messages and documents: settings, error codes, flags and variables must exist, and be written as
//! a user must write them.

mod codes;
mod keys;
mod statuses;
mod text;
mod words;

use std::collections::BTreeSet;

use anyhow::Result;

use self::keys::{Keys, is_word};
use self::words::Words;
use crate::repo::{Repo, TextFile};
use crate::report::Report;
use crate::tidy::{lines_before_tests, literals};

/// The file that has every key of the configuration.
const EXAMPLE: &str = "examples/promethean.toml";
/// Crates whose texts no user of a server reads.
const NO_MESSAGES: [&str; 3] = ["crates/testkit/", "crates/bench/", "crates/allocator/"];
/// Documents for people who change the code; their names are those of the code.
const FOR_AUTHORS: [&str; 4] =
    ["CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/disk-format.md", "docs/adr/"];
/// Words in square brackets that are no section of the configuration: secrets, and the section of a file of
/// tokens.
const NO_SECTIONS: [&str; 3] = ["redacted", "hash", "tokens"];
/// The messages of this folder get their section when they are passed on.
const ADDS_SECTION: &str = "crates/cli/src/config/";

/// Reports names in messages, documents and examples that do not exist.
pub(crate) fn check(repo: &Repo) -> Result<Report> {
    let mut report = Report::default();
    let files = repo.text_files()?;
    let keys = Keys::read(&repo.read(EXAMPLE)?);
    let words = Words::read(&files);
    let (messages, documents): (Vec<_>, Vec<_>) =
        files.iter().filter(|file| has_names(&file.path)).partition(|file| file.path.ends_with(".rs"));
    let named = documents.iter().flat_map(|file| text::spans(&file.text)).filter(|span| is_word(span));
    let documented: BTreeSet<&str> = named.collect();
    for file in messages {
        check_messages(file, &keys, &words, &documented, &mut report);
    }
    for file in documents {
        check_document(file, &keys, &words, &mut report);
    }
    let sources = files.iter().filter(|file| codes::is_source(&file.path));
    let given = sources.flat_map(|file| codes::given(without_tests(&file.text))).collect();
    let listed = codes::listed(&repo.read(codes::LIST)?);
    let protocol = repo.read(codes::DOCUMENT)?;
    codes::compare(&given, &listed, &codes::documented(&protocol), &mut report);
    let sources = files.iter().filter(|file| codes::is_source(&file.path));
    let mut with_status: Vec<_> =
        sources.flat_map(|file| statuses::beside_status(without_tests(&file.text))).collect();
    with_status.extend(statuses::of_bus(
        &repo.read(statuses::CODE_SOURCE)?,
        without_tests(&repo.read(statuses::STATUS_SOURCE)?),
    ));
    let routes = repo.read(statuses::ROUTES)?;
    statuses::compare(&with_status, &statuses::of_protocol(&protocol), &routes, &mut report);
    let operating = repo.read(codes::START_DOCUMENT)?;
    for source in codes::START_SOURCES {
        codes::compare_starts(&codes::leading(without_tests(&repo.read(source)?)), &operating, &mut report);
    }
    Ok(report)
}

/// Whether the file is a source with messages, a document for users or an example.
fn has_names(path: &str) -> bool {
    let is_message = path.starts_with("crates/")
        && path.contains("/src/")
        && path.ends_with(".rs")
        && !path.ends_with("/tests.rs")
        && !NO_MESSAGES.iter().any(|folder| path.starts_with(folder));
    let is_document = (path.ends_with(".md") && path != "CHANGELOG.md" || path.starts_with("examples/"))
        && !FOR_AUTHORS.iter().any(|author| path.starts_with(author));
    is_message || is_document
}

/// Whether a word is a name and not a part of one, such as the `_` of `_name`.
fn names_something(word: &str) -> bool {
    !word.starts_with('_') && word.trim_end_matches('_').contains('_')
}

fn without_tests(source: &str) -> &str {
    let lines = lines_before_tests(source);
    let end = source.match_indices('\n').nth(lines.saturating_sub(1)).map_or(source.len(), |(at, _)| at);
    source.get(..end).unwrap_or(source)
}

fn check_messages(
    file: &TextFile,
    keys: &Keys,
    words: &Words,
    documented: &BTreeSet<&str>,
    report: &mut Report,
) {
    let source = without_tests(&file.text);
    for literal in literals(source).iter().filter(|literal| literal.text.contains(' ')) {
        let found = match file.path.starts_with(ADDS_SECTION) {
            true => faults(literal.text, keys, words),
            false => message_faults(literal.text, keys, words, documented),
        };
        for fault in found {
            report.fail(format!("{}:{}: a message names {fault}", file.path, literal.line));
        }
    }
    // Comments of the commands are their help.
    let help = file.path.starts_with("crates/cli/src/commands/");
    for (at, line) in source.lines().enumerate().filter(|_| help) {
        if let Some(text) = line.trim_start().strip_prefix("///") {
            for fault in faults(text, keys, words) {
                report.fail(format!("{}:{}: a help text names {fault}", file.path, at + 1));
            }
        }
    }
}

fn check_document(file: &TextFile, keys: &Keys, words: &Words, report: &mut Report) {
    for (number, line) in text::prose(&file.text) {
        let unknown =
            text::spans(line).filter(|span| is_word(span) && names_something(span) && !words.has(span));
        let unknown = unknown.map(|word| format!("`{word}`, which is nowhere in the code"));
        for fault in faults(line, keys, words).into_iter().chain(unknown) {
            report.fail(format!("{}:{number}: names {fault}", file.path));
        }
    }
}

/// What is wrong with the names in a message.
fn message_faults(message: &str, keys: &Keys, words: &Words, documented: &BTreeSet<&str>) -> Vec<String> {
    let mut found = faults(message, keys, words);
    for word in text::spans(message).filter(|span| is_word(span) && names_something(span)) {
        if let Some(path) = keys.path_needed(word) {
            let section = path.strip_suffix(word).unwrap_or(path).trim_end_matches('.');
            if !message.contains(&format!("[{section}]")) {
                found.push(format!("the setting `{word}` without its section; write `{path}`"));
            }
        } else if !keys.has_word(word) && !documented.contains(word) {
            found.push(format!("`{word}`, which is no setting and is in no document"));
        }
    }
    found
}

/// What is wrong with the names in any text for users.
fn faults(line: &str, keys: &Keys, words: &Words) -> Vec<String> {
    let mut found = Vec::new();
    for span in text::spans(line) {
        let path = span.split_once(" = ").map_or(span, |(key, _)| key);
        // A path whose end is filled in when the message is made.
        let (begin, is_whole) = path.split_once(".{").map_or((path, true), |(begin, _)| (begin, false));
        let is_path = begin.split('.').all(|part| is_word(part.trim_matches('"')));
        let is_file = begin.ends_with(".rs") || begin.ends_with(".toml");
        if !is_path || is_file {
            continue;
        }
        let exists = match (is_whole, begin.contains('.')) {
            (true, true) => !keys.is_path(begin) || keys.has(begin),
            (true, false) => span == path || keys.has_word(begin),
            (false, true) => keys.has_section(begin),
            (false, false) => keys.has_word(begin),
        };
        if !exists {
            found.push(format!("the setting `{path}`, which does not exist"));
        }
    }
    let sections = text::sections(line).into_iter();
    for section in sections.filter(|section| !keys.has_section(section) && !NO_SECTIONS.contains(section)) {
        found.push(format!("the section [{section}], which does not exist"));
    }
    for flag in text::flags(line).filter(|flag| !words.has_flag(flag)) {
        found.push(format!("the flag `--{flag}`, which no command has"));
    }
    for variable in text::variables(line).filter(|variable| !words.has_variable(variable)) {
        found.push(format!("the variable `{variable}`, which nothing reads"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn known() -> (Keys, Words) {
        let source =
            "struct Args {\n    #[arg(long, env = \"PROMETHEAN_DATA\")]\n    data_dir: u8,\n}\n// not_code\n";
        let keys = Keys::read(
            "auto_create_topics = true\n[limits]\nping_every = 1\n[limits.events]\ntags_max = 1\n",
        );
        (keys, Words::read(&[file("crates/cli/src/a.rs", source)]))
    }

    #[track_caller]
    fn refused(text: &str, fault: &str) {
        let (keys, words) = known();
        let found = message_faults(text, &keys, &words, &BTreeSet::from(["a_field"]));
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, if fault.is_empty() { vec![] } else { vec![fault] }, "{text}");
    }

    #[test]
    fn settings_in_messages_exist_and_say_where_they_are() {
        refused("have `limits.tags_max` raised", "the setting `limits.tags_max`, which does not exist");
        refused(
            "raise `tags_max`",
            "the setting `tags_max` without its section; write `limits.events.tags_max`",
        );
        refused("raise `limits.{}`, {x}", "");
        refused("raise `limit.{}`, {x}", "the setting `limit.{}`, which does not exist");
        refused("`auto_create` is off", "`auto_create`, which is no setting and is in no document");
        refused("in [limit.events]", "the section [limit.events], which does not exist");
        refused("give `tags = 1` here", "the setting `tags`, which does not exist");
        refused("give --data", "the flag `--data`, which no command has");
        refused("set PROMETHEAN_DATE", "the variable `PROMETHEAN_DATE`, which nothing reads");
        for good in [
            "raise `limits.events.tags_max`",
            "raise `tags_max` of [limits.events]",
            "`auto_create_topics = false` and `a_field`, --data-dir or PROMETHEAN_DATA",
        ] {
            refused(good, "");
        }
    }

    #[test]
    fn words_in_documents_are_in_the_code() {
        let (keys, words) = known();
        let mut report = Report::default();
        let text = "`data_dir` is read\n`not_code` is not\n```\n`other_code`\n```\n`limits.pings_every`\n";
        check_document(&file("docs/a.md", text), &keys, &words, &mut report);
        assert_eq!(
            report.failures(),
            [
                "docs/a.md:2: names `not_code`, which is nowhere in the code",
                "docs/a.md:6: names the setting `limits.pings_every`, which does not exist",
            ]
        );
    }
}
