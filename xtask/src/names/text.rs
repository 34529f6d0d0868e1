//! The names in a text for people: code spans, sections of the configuration, flags and variables.

/// The texts between single backticks.
pub(crate) fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|span| !span.is_empty() && !span.contains('\n'))
}

/// The words in square brackets that look like a section: `limits.events` of `[limits.events]` and of
/// `[[auth.tokens]]`. A link is none.
pub(crate) fn sections(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('[') {
        let before = text.get(..at).unwrap_or_default();
        let Some((inner, after)) = text.get(at + 1..).and_then(|rest| rest.split_once(']')) else { continue };
        let is_link = after.starts_with(['(', '[']) || before.ends_with([']', '#']);
        let first = inner.split(['.', '"']).next().unwrap_or_default();
        let is_name = |c: char| c.is_ascii_lowercase() || matches!(c, '_' | '.' | '"' | '*' | '-');
        let bare = inner.split('"').step_by(2).all(|part| part.chars().all(is_name));
        if !is_link && bare && first.len() > 1 && first.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            found.push(inner);
        }
    }
    found
}

/// The flags: `--ca-file` of `give --ca-file FILE`.
pub(crate) fn flags(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("--").filter_map(|(at, _)| {
        let before = text.get(..at)?.chars().next_back();
        let rest = text.get(at + 2..)?;
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(rest.len());
        let name = rest.get(..end)?.trim_end_matches('-');
        let begins = before.is_none_or(|c| !(c.is_alphanumeric() || c == '-'));
        (begins && name.starts_with(|c: char| c.is_ascii_lowercase())).then_some(name)
    })
}

/// The environment variables of the server: `PROMETHEAN_DATA`.
pub(crate) fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.strip_prefix("PROMETHEAN_").is_some_and(|rest| !rest.is_empty()))
}

/// The lines of a document outside its fenced blocks, with their numbers from 1.
pub(crate) fn prose(document: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    document.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((at + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        assert_eq!(spans("a `b` c `d.e` f").collect::<Vec<_>>(), ["b", "d.e"]);
        assert_eq!(sections("in [limits.events] or [[auth.tokens]]"), ["limits.events", "auth.tokens"]);
        assert_eq!(
            sections("[topics.\"A.b\"] [...] [link](to.md) [a] #[expect] [4 KiB]"),
            ["topics.\"A.b\""]
        );
        assert_eq!(flags("give --ca-file FILE, or --x. a--b, ---").collect::<Vec<_>>(), ["ca-file", "x"]);
        assert_eq!(variables("$PROMETHEAN_DATA, PROMETHEAN_").collect::<Vec<_>>(), ["PROMETHEAN_DATA"]);
        assert_eq!(prose("a\n```sh\nb\n```\nc\n").collect::<Vec<_>>(), [(1, "a"), (5, "c")]);
    }
}
