//! Tells Rust code from comments and literals.

/// A string literal of Rust code.
pub(crate) struct Literal<'a> {
    /// The line it begins on, from 1.
    pub(crate) line: usize,
    /// Its text without the quotes, escapes as they are written.
    pub(crate) text: &'a str,
}

/// The string literals of the source, in order.
pub(crate) fn literals(source: &str) -> Vec<Literal<'_>> {
    let mut rest = source;
    let (mut found, mut line, mut previous) = (Vec::new(), 1, ' ');
    while let Some(c) = rest.chars().next() {
        let len = skip_len(rest, previous).max(c.len_utf8());
        let part = rest.get(..len).unwrap_or(rest);
        if len > 1 && part.ends_with(['"', '#']) && !part.starts_with('/') {
            let text = part.trim_start_matches(['b', 'c', 'r', '#']).trim_end_matches('#');
            found.push(Literal { line, text: text.trim_matches('"') });
        }
        line += part.matches('\n').count();
        previous = c;
        rest = rest.get(len..).unwrap_or_default();
    }
    found
}

/// The source with comments, strings and character literals replaced by blanks; line numbers do not change.
pub(crate) fn code_only(source: &str) -> String {
    let mut rest = source;
    let mut out = String::with_capacity(source.len());
    let mut previous = ' ';
    while let Some(c) = rest.chars().next() {
        let len = match skip_len(rest, previous) {
            0 => {
                out.push(c);
                c.len_utf8()
            }
            skip => {
                let skipped = rest.get(..skip).unwrap_or(rest);
                out.extend(skipped.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
                skip
            }
        };
        previous = c;
        rest = rest.get(len..).unwrap_or_default();
    }
    out
}

/// Length of the comment or literal at the start of `text`, 0 if there is none.
fn skip_len(text: &str, previous: char) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment_len(text);
    }
    if text.starts_with('"') {
        return quoted_len(text, '"');
    }
    if text.starts_with('\'') {
        return char_len(text);
    }
    let in_word = previous.is_alphanumeric() || previous == '_';
    if in_word { 0 } else { raw_string_len(text) }
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Length of a literal with escapes, both quotes included.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A lifetime is not a literal: `'a` has no closing quote after one character.
fn char_len(text: &str) -> usize {
    let mut chars = text.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => quoted_len(text, '\''),
        (Some(c), Some('\'')) => c.len_utf8() + 2,
        _ => 0,
    }
}

/// Length of `r"..."`, `r#"..."#` and their `b` and `c` forms.
fn raw_string_len(text: &str) -> usize {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix));
    let Some(after) = prefix.and_then(|prefix| text.strip_prefix(prefix)) else { return 0 };
    let hashes = after.chars().take_while(|c| *c == '#').count();
    let Some(body) = after.get(hashes..).and_then(|rest| rest.strip_prefix('"')) else { return 0 };
    let close = format!("\"{}", "#".repeat(hashes));
    let opened = text.len() - body.len();
    body.find(&close).map_or(text.len(), |at| opened + at + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        let squeezed = code_only(source).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed, expected, "{source}");
        assert_eq!(code_only(source).lines().count(), source.lines().count());
    }

    #[test]
    fn comments_vanish() {
        check("a // { fn\nb", "a b");
        check("a /* { /* } */ { */ b", "a b");
        check("/// docs {\nfn x() {}", "fn x() {}");
    }

    #[test]
    fn literals_vanish() {
        check(r#"f("{ \" {", x)"#, "f( , x)");
        check("f('{', '\\'', b'}')", "f( , , b )");
        check("let s = r#\"{ \" \"#;", "let s = ;");
        check("let s = br\"\\\";", "let s = ;");
    }

    #[test]
    fn literals_are_found_with_their_line() {
        let source = "// \"no\"\nlet a = \"x \\\" y\";\n/* \"no\" */ f('\"', r#\"z\"#, \"\")\n";
        let found: Vec<_> = literals(source).iter().map(|literal| (literal.line, literal.text)).collect();
        assert_eq!(found, [(2, "x \\\" y"), (3, "z"), (3, "")]);
    }

    #[test]
    fn lifetimes_and_raw_names_stay() {
        check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
        check("let r#type = var\"\"", "let r#type = var");
    }
}
