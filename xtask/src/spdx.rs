//! A small evaluator of SPDX licence expressions: OR, AND, WITH, parentheses, and the old slash for OR.
//!
//! ```text
//! expression = term (("OR" | "/") term)*        AND binds tighter than OR
//! term       = factor ("AND" factor)*
//! factor     = "(" expression ")" | licence ["WITH" exception]
//! ```

/// Whether the expression can be met using only licences for which `allowed` holds.
pub(crate) fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let tokens = tokenize(expression)?;
    let mut parser = Parser { tokens: &tokens, allowed };
    let met = parser.expression()?;
    match parser.tokens.first() {
        None => Ok(met),
        Some(token) => Err(format!("unexpected `{token}` in `{expression}`")),
    }
}

fn tokenize(expression: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut word = String::new();
    for c in expression.chars().chain([' ']) {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '+' | ':') {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        match c {
            '(' | ')' | '/' => tokens.push(c.to_string()),
            c if c.is_whitespace() => {}
            c => return Err(format!("unexpected character {c:?} in `{expression}`")),
        }
    }
    Ok(tokens)
}

struct Parser<'a> {
    tokens: &'a [String],
    allowed: &'a dyn Fn(&str) -> bool,
}

impl Parser<'_> {
    fn expression(&mut self) -> Result<bool, String> {
        let mut met = self.term()?;
        while self.take("OR") || self.take("/") {
            met |= self.term()?;
        }
        Ok(met)
    }

    fn term(&mut self) -> Result<bool, String> {
        let mut met = self.factor()?;
        while self.take("AND") {
            met &= self.factor()?;
        }
        Ok(met)
    }

    fn factor(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let met = self.expression()?;
            return if self.take(")") { Ok(met) } else { Err("missing `)`".to_owned()) };
        }
        let licence = self.name()?;
        if self.take("WITH") {
            let exception = self.name()?;
            return Ok((self.allowed)(&format!("{licence} WITH {exception}")));
        }
        Ok((self.allowed)(&licence))
    }

    fn name(&mut self) -> Result<String, String> {
        let Some((first, rest)) = self.tokens.split_first() else {
            return Err("the expression ends where a licence should be".to_owned());
        };
        if matches!(first.as_str(), "OR" | "AND" | "WITH" | "/" | "(" | ")") {
            return Err(format!("`{first}` where a licence should be"));
        }
        self.tokens = rest;
        Ok(first.clone())
    }

    fn take(&mut self, wanted: &str) -> bool {
        match self.tokens.split_first() {
            Some((first, rest)) if first == wanted => {
                self.tokens = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, expected: Option<bool>) {
        let allow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
        let met = satisfied(expression, &|licence| allow.contains(&licence));
        assert_eq!(met.as_ref().ok().copied(), expected, "{expression}: {met:?}");
    }

    #[test]
    fn single_licences() {
        check("MIT", Some(true));
        check("GPL-3.0-only", Some(false));
        check("mit", Some(false));
    }

    #[test]
    fn choices_need_one_side() {
        check("GPL-2.0-only OR MIT", Some(true));
        check("MIT/Apache-2.0", Some(true));
        check("GPL-2.0-only/LGPL-2.1", Some(false));
    }

    #[test]
    fn conjunctions_need_both_sides() {
        check("(MIT OR Apache-2.0) AND Unicode-3.0", Some(true));
        check("MIT AND GPL-3.0-or-later", Some(false));
    }

    #[test]
    fn and_binds_tighter_than_or() {
        check("MIT OR Apache-2.0 AND GPL-3.0-only", Some(true));
        check("(MIT OR Apache-2.0) AND GPL-3.0-only", Some(false));
        check("GPL-3.0-only AND MIT OR Apache-2.0", Some(true));
    }

    #[test]
    fn exceptions_belong_to_their_licence() {
        check("Apache-2.0 WITH LLVM-exception", Some(true));
        check("MIT WITH LLVM-exception", Some(false));
        check("Apache-2.0 WITH LLVM-exception OR GPL-3.0-only", Some(true));
    }

    #[test]
    fn nonsense_is_an_error() {
        for expression in ["", "MIT OR", "AND MIT", "(MIT", "MIT)", "MIT Apache-2.0", "MIT & BSD", "WITH"] {
            check(expression, None);
        }
    }
}
