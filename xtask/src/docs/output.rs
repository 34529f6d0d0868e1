//! Compares documented output with real output; `...` stands for text that varies.

/// A line `...` matches any number of lines, `...` inside a line any text. Trailing whitespace does not
/// count.
pub(crate) fn matches(expected: &str, actual: &str) -> bool {
    let expected: Vec<&str> = expected.lines().map(str::trim_end).collect();
    let actual: Vec<&str> = actual.lines().map(str::trim_end).collect();
    lines_match(&expected, &actual)
}

fn lines_match(expected: &[&str], actual: &[&str]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((first, rest)) if first.trim() == "..." => {
            (0..=actual.len()).any(|skip| lines_match(rest, actual.get(skip..).unwrap_or_default()))
        }
        Some((first, rest)) => match actual.split_first() {
            Some((line, others)) => line_matches(first, line) && lines_match(rest, others),
            None => false,
        },
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let Some((head, tail)) = pattern.split_once("...") else { return pattern == line };
    let Some(mut rest) = line.strip_prefix(head) else { return false };
    let pieces: Vec<&str> = tail.split("...").collect();
    let Some((last, middle)) = pieces.split_last() else { return true };
    for piece in middle {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &str, actual: &str, same: bool) {
        assert_eq!(matches(expected, actual), same, "{expected:?} against {actual:?}");
    }

    #[test]
    fn exact_lines() {
        check("a\nb\n", "a\nb\n", true);
        check("a\n", "a\nb\n", false);
        check("a\nb\n", "a\n", false);
    }

    #[test]
    fn dots_inside_a_line() {
        check("took ... ms\n", "took 12 ms\n", true);
        check("took ... ms\n", "took 12 s\n", false);
        check("{\"a\":...,\"b\":...}\n", "{\"a\":1,\"b\":2}\n", true);
        check("a...a\n", "a\n", false);
    }

    #[test]
    fn dots_over_lines() {
        check("a\n...\nz\n", "a\nb\nc\nz\n", true);
        check("a\n...\nz\n", "a\nz\n", true);
        check("...\nz\n", "a\nb\n", false);
    }
}
