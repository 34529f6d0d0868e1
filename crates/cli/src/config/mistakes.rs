//! All mistakes of a configuration file, with their lines, for `promethean lint`.

use std::path::Path;

use super::file::File;
use super::{explain, parse};

/// Mistakes that are looked for, at most.
const MISTAKES_MAX: usize = 50;

/// One mistake of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigMistake {
    /// The line, from 1, if it is known.
    pub(crate) line: Option<usize>,
    /// What is wrong.
    pub(crate) what: String,
    /// What to write instead.
    pub(crate) fix: String,
}

/// All mistakes of a text, and the text without them. After each mistake its lines are left out, and the rest is read
/// again.
pub(crate) fn mistakes(text: &str, dir: &Path) -> (Vec<ConfigMistake>, String) {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut found = Vec::new();
    while found.len() < MISTAKES_MAX {
        let rest = lines.join("\n");
        let (line, message, last) = match toml::from_str::<File>(&rest) {
            Err(error) => {
                let place = error
                    .span()
                    .and_then(|span| Some((line_at(&rest, span.start)?, line_at(&rest, span.end)?)));
                let message = explain(&rest, &error).to_string();
                let message = message
                    .split_once(": ")
                    .filter(|_| place.is_some())
                    .map_or(message.as_str(), |(_, text)| text);
                (place.map(|(line, _)| line), message.to_owned(), place.map(|(_, last)| last))
            }
            Ok(_) => match parse(&rest, dir) {
                Ok(_) => break,
                Err(error) => {
                    let message = format!("{error:#}");
                    (find_line(&rest, &message), message, None)
                }
            },
        };
        let (what, fix) =
            message.split_once("; ").unwrap_or((&message, "correct it; the server would not start"));
        found.push(ConfigMistake {
            line,
            what: what.to_owned(),
            fix: nearest(what, fix).unwrap_or_else(|| fix.to_owned()),
        });
        // Without a readable file, or without a place, nothing can be left out.
        let is_readable = toml::from_str::<toml::Table>(&rest).is_ok();
        let Some(line) = line.filter(|_| is_readable) else { break };
        if !leave_out(&mut lines, line, last.unwrap_or(line)) {
            break;
        }
    }
    (found, lines.join("\n"))
}

/// The line of what a message names: a section in brackets, a key in backticks, or its first word.
pub(crate) fn find_line(text: &str, message: &str) -> Option<usize> {
    let section = message.find('[').and_then(|start| {
        let rest = message.get(start..)?;
        Some(rest.get(..=rest.find(']')?)?.to_owned())
    });
    let keys = message.split('`').skip(1).step_by(2).map(str::to_owned);
    let first = message.split_whitespace().next().map(str::to_owned).filter(|word| word.contains(':'));
    let is_there = |line: &str, wanted: &str| {
        let line = line.trim_start();
        let is_key = line.strip_prefix(wanted).is_some_and(|rest| rest.trim_start().starts_with('='));
        // `[topics."a"]` may be written without quotes.
        let is_head = wanted.starts_with('[') && line.replace('"', "").starts_with(&wanted.replace('"', ""));
        is_key || is_head || (wanted.contains(':') && line.contains(wanted))
    };
    section
        .into_iter()
        .chain(keys)
        .chain(first)
        .find_map(|wanted| text.lines().position(|line| is_there(line, &wanted)).map(|at| at + 1))
}

/// The line of a byte, from 1.
fn line_at(text: &str, byte: usize) -> Option<usize> {
    Some(text.get(..byte)?.matches('\n').count() + 1)
}

/// Empties the lines of a mistake; with the head of a section, the whole section. Returns whether anything changed.
fn leave_out(lines: &mut [String], first: usize, last: usize) -> bool {
    let is_head = |line: &String| line.trim_start().starts_with('[');
    let whole = lines.get(first - 1).is_some_and(is_head);
    let mut changed = false;
    for (at, line) in lines.iter_mut().enumerate().skip(first - 1) {
        let is_over = if whole { at >= first && is_head(line) } else { at >= last };
        if is_over {
            break;
        }
        changed |= !line.is_empty();
        line.clear();
    }
    changed
}

/// The word that was meant, if an unknown one is close to a known one.
fn nearest(what: &str, fix: &str) -> Option<String> {
    let unknown =
        what.strip_suffix(" is not known here").or_else(|| what.strip_suffix(" is not possible here"))?;
    let unknown = unknown.trim_matches('`');
    let known = fix.split('`').skip(1).step_by(2);
    let near = known.map(|word| (distance(unknown, word), word)).min()?;
    (near.0 <= 1 + unknown.len() / 4).then(|| format!("write `{}`", near.1))
}

/// How many letters differ, after Levenshtein.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut next = vec![at + 1];
        for ((known, above), diagonal) in other.iter().zip(row.iter().skip(1)).zip(&row) {
            let left = next.last().copied().unwrap_or(0);
            next.push((diagonal + usize::from(*known != letter)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_has_its_line_and_what_to_write() {
        let text = "lisen = \"127.0.0.1:1\"\ndata = 5\n\n[limits]\nconections = 5\npublish_rate = \"fast\"\n\n[nonsense]\na = 1\n\
                    [topics.\"a.b\"]\nmax_attempts = 0\n[topics.\"a.c\"]\ncompat = \"backwards\"\n[topics.\"a.d\"]\nmax_attempts = 7\n";
        let (found, rest) = mistakes(text, Path::new(""));
        assert!(parse(&rest, Path::new("")).is_ok_and(|config| config.file.topics.len() == 2), "{rest}");
        let lines: Vec<usize> = found.iter().filter_map(|one| one.line).collect();
        let mut sorted = lines.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 2, 5, 6, 8, 10, 13], "{found:#?}");
        let fix = |line: usize| {
            found.iter().find(|one| one.line == Some(line)).map(|one| one.fix.as_str()).unwrap()
        };
        assert_eq!((fix(1), fix(5), fix(13)), ("write `listen`", "write `connections`", "write `backward`"));
    }

    #[test]
    fn a_file_that_is_no_toml_has_one_mistake() {
        let found = mistakes("listen = \ndata = \"d\"\n", Path::new("")).0;
        assert_eq!((found.len(), found[0].line), (1, Some(1)), "{found:?}");
        assert_eq!(mistakes("", Path::new("")).0, []);
    }

    #[test]
    fn words_are_near_if_few_letters_differ() {
        assert_eq!((distance("listen", "lisen"), distance("", "abc"), distance("abc", "abd")), (1, 3, 1));
        assert_eq!(nearest("`zzz` is not known here", "use `listen` or `data`"), None);
    }
}
