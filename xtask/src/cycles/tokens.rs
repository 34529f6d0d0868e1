//! Rust sources as words and signs, without comments, literals and items of `#[cfg(test)]`.

use crate::tidy::code_only;

/// One word or sign of a source, with its line from 1. `::` is one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
}

/// The code of one file, and the modules it declares for its tests.
pub(super) struct Code {
    text: String,
}

impl Code {
    pub(super) fn new(source: &str) -> Self {
        Self { text: code_only(source) }
    }

    pub(super) fn tokens(&self) -> Vec<Token<'_>> {
        tokens(&self.text)
    }
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (code, 1);
    while let Some(c) = rest.chars().next() {
        let word = rest.chars().take_while(|c| is_word(*c)).map(char::len_utf8).sum::<usize>();
        let len = if word > 0 {
            word
        } else if rest.starts_with("::") {
            2
        } else {
            c.len_utf8()
        };
        let (text, after) = rest.split_at(len);
        if !c.is_whitespace() {
            found.push(Token { text, line });
        }
        line += usize::from(c == '\n');
        rest = after;
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The tokens outside of `#[cfg(test)]`, and the names of modules that `#[cfg(test)] mod NAME;` declares.
pub(super) fn without_tests<'a>(tokens: &[Token<'a>]) -> (Vec<Token<'a>>, Vec<&'a str>) {
    let (mut kept, mut test_modules) = (Vec::new(), Vec::new());
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        let Some(item) = strip(rest, &["#", "[", "cfg", "(", "test", ")", "]"]) else {
            kept.push(*first);
            rest = after;
            continue;
        };
        let item = after_attributes(item);
        if let [word, name, end, ..] = item
            && (word.text, end.text) == ("mod", ";")
        {
            test_modules.push(name.text);
        }
        rest = after_item(item);
    }
    (kept, test_modules)
}

/// What follows `expected` at the start of `tokens`, if they start with it.
pub(super) fn strip<'t, 'a>(tokens: &'t [Token<'a>], expected: &[&str]) -> Option<&'t [Token<'a>]> {
    let starts =
        expected.iter().enumerate().all(|(at, text)| tokens.get(at).is_some_and(|t| t.text == *text));
    if starts { tokens.get(expected.len()..) } else { None }
}

fn after_attributes<'t, 'a>(mut tokens: &'t [Token<'a>]) -> &'t [Token<'a>] {
    while let Some(attribute) = strip(tokens, &["#", "["]) {
        let mut depth = 1_usize;
        let end = attribute.iter().position(|token| {
            depth = match token.text {
                "[" => depth + 1,
                "]" => depth - 1,
                _ => depth,
            };
            depth == 0
        });
        tokens = end.and_then(|end| attribute.get(end + 1..)).unwrap_or_default();
    }
    tokens
}

/// Words that begin an item or a statement; anything else is a field, a variant or an arm and ends at a
/// comma.
const ITEM_WORDS: [&str; 14] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "let",
    "macro_rules",
    "mod",
    "static",
    "struct",
    "trait",
    "type",
    "use",
];

fn after_item<'t, 'a>(tokens: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let item =
        tokens.iter().find(|token| !matches!(token.text, "pub" | "(" | "crate" | "super" | ")" | "unsafe"));
    let ends_at_comma = !item.is_some_and(|token| ITEM_WORDS.contains(&token.text));
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "}" if depth == 0 => return tokens.get(at..).unwrap_or_default(),
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        let ends = match token.text {
            ";" | "}" => true,
            "," => ends_at_comma,
            _ => false,
        };
        if ends && depth == 0 {
            return tokens.get(at + 1..).unwrap_or_default();
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str, test_modules: &[&str]) {
        let code = Code::new(source);
        let all = code.tokens();
        let (kept, found) = without_tests(&all);
        let kept: Vec<&str> = kept.iter().map(|token| token.text).collect();
        assert_eq!((kept.join(" ").as_str(), found.as_slice()), (expected, test_modules), "{source}");
    }

    #[test]
    fn tokens_leave_out_comments_and_text() {
        check("use crate::a; // crate::b\nlet x = \"crate::c\";", "use crate :: a ; let x = ;", &[]);
    }

    #[test]
    fn test_items_vanish() {
        check("a();\n#[cfg(test)]\nmod tests { fn x() { } }\nfn b() {}", "a ( ) ; fn b ( ) { }", &[]);
        check("#[cfg(test)]\n#[allow(x)]\npub(crate) fn f<A, B>(x: [u8; 2]) { y; }\nz", "z", &[]);
        check("struct S { #[cfg(test)] a: u8, b: u8 }", "struct S { b : u8 }", &[]);
        check("struct S { b: u8, #[cfg(test)] pub a: u8 }", "struct S { b : u8 , }", &[]);
    }

    #[test]
    fn test_modules_of_their_own_file_are_named() {
        check("#[cfg(test)]\nmod tests;\nmod a;", "mod a ;", &["tests"]);
    }

    #[test]
    fn lines_count_from_one() {
        let code = Code::new("a\n\n  b::c");
        let lines: Vec<_> = code.tokens().iter().map(|token| (token.text, token.line)).collect();
        assert_eq!(lines, [("a", 1), ("b", 3), ("::", 3), ("c", 3)]);
    }
}
