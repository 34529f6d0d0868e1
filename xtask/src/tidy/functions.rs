//! The length of functions, from `fn` to the closing brace.

use super::lexer::code_only;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

/// Functions with more lines than `max`, in source order.
pub(crate) fn longer_than(source: &str, max: usize) -> Vec<Function> {
    let code = code_only(source);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let before = code.get(..at).unwrap_or_default();
        let after = code.get(at + 3..).unwrap_or_default();
        if before.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let lines = body_lines(after);
        if !name.is_empty() && lines > max {
            found.push(Function { name, line: before.matches('\n').count() + 1, lines });
        }
    }
    found
}

/// Lines from here to the end of the next braced block; 0 for a declaration without a body.
fn body_lines(text: &str) -> usize {
    let mut lines = 1;
    let mut nested = 0_usize;
    let mut braces = 0_usize;
    for c in text.chars() {
        match c {
            '\n' => lines += 1,
            '(' | '[' => nested += 1,
            ')' | ']' => nested = nested.saturating_sub(1),
            ';' if braces == 0 && nested == 0 => return 0,
            '{' => braces += 1,
            '}' if braces <= 1 => return lines,
            '}' => braces -= 1,
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[(&str, usize, usize)]) {
        let found = longer_than(source, 2);
        let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn counts_from_fn_to_brace() {
        check("fn a() {\n}\n\nfn b(x: [u8; 4]) {\n  if x {\n  }\n}\n", &[("b", 4, 4)]);
        check("fn a(\n  x: u8,\n) {}\n", &[("a", 1, 3)]);
    }

    #[test]
    fn declarations_and_pointers_have_no_body() {
        check("trait T {\n  fn a(\n    x: u8,\n  );\n}\ntype F = fn (u8);\n", &[]);
    }

    #[test]
    fn braces_in_text_do_not_count() {
        check("fn a() {\n  let x = \"}\"; // }\n  y();\n}\n", &[("a", 1, 4)]);
    }

    #[test]
    fn nested_functions_are_seen() {
        check("fn a() {\n  fn b() {\n    c\n  }\n}\n", &[("a", 1, 5), ("b", 2, 3)]);
    }
}
