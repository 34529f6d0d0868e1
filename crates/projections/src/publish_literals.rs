//! The topics that a jq program names as the targets of its publishes.
//!
//! Only names that are written out are found: the value of `topic`, if it is plain text, in an object that
//! follows `publish:`. A name that the program computes is checked when the program publishes.

/// A token of a program, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// A text without interpolation.
    Text(String),
    Other(char),
}

/// The topics that a program publishes to, as far as they are written out.
pub(crate) fn publish_literals(program: &str) -> Vec<String> {
    let tokens = tokens(program);
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let rest = tokens.get(at..).unwrap_or_default();
        if let [key, Token::Other(':'), Token::Other('{'), object @ ..] = rest
            && is_key(key, "publish")
        {
            found.extend(topics(object));
        }
    }
    found
}

/// The values of `topic` in an object, without those of objects inside it.
fn topics(object: &[Token]) -> Vec<String> {
    let (mut depth, mut found) = (0_usize, Vec::new());
    for at in 0..object.len() {
        match object.get(at..).unwrap_or_default() {
            [Token::Other('{' | '(' | '['), ..] => depth += 1,
            [Token::Other('}' | ')' | ']'), ..] => match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => break,
            },
            [key, Token::Other(':'), Token::Text(topic), Token::Other(',' | '}'), ..]
                if depth == 0 && is_key(key, "topic") =>
            {
                found.push(topic.clone());
            }
            _ => {}
        }
    }
    found
}

fn is_key(token: &Token, name: &str) -> bool {
    matches!(token, Token::Word(word) | Token::Text(word) if word == name)
}

fn tokens(program: &str) -> Vec<Token> {
    let mut chars = program.chars().peekable();
    let mut found = Vec::new();
    while let Some(char) = chars.next() {
        match char {
            '#' => while chars.next_if(|char| *char != '\n').is_some() {},
            '"' => found.push(text(&mut chars)),
            char if is_word(char) => {
                let mut word = char.to_string();
                while let Some(next) = chars.next_if(|next| is_word(*next)) {
                    word.push(next);
                }
                found.push(Token::Word(word));
            }
            char if char.is_whitespace() => {}
            char => found.push(Token::Other(char)),
        }
    }
    found
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Reads a text after its first quote. A text with an escape is of no use: names of topics have none.
fn text(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Token {
    let (mut text, mut is_plain) = (String::new(), true);
    while let Some(char) = chars.next() {
        match char {
            '"' => break,
            '\\' => {
                is_plain = false;
                if chars.next() == Some('(') {
                    interpolation(chars);
                }
            }
            char => text.push(char),
        }
    }
    if is_plain { Token::Text(text) } else { Token::Other('"') }
}

/// Passes over a program inside a text, after its first parenthesis.
fn interpolation(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let mut open = 1_usize;
    while open > 0 {
        match chars.next() {
            Some('(') => open += 1,
            Some(')') => open -= 1,
            // Texts may have parentheses too. They nest as deep as the program that was compiled before.
            Some('"') => _ = text(chars),
            Some(_) => {}
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::publish_literals;

    #[test]
    fn names_that_are_written_out_are_found() {
        for (program, found) in [
            (r#"{publish: {topic: "a.dlq", payload: 1}}"#, vec!["a.dlq"]),
            (r#"{"publish": {key: .key, "topic": "_sys"}}"#, vec!["_sys"]),
            (
                r#"{publish: {payload: {topic: "in.dlq"}, topic: "out"}}, {publish: {topic: "b"}}"#,
                vec!["out", "b"],
            ),
            (r#"{publish: {payload: (.a | {topic: "x.dlq"}), topic: .payload.to}}"#, vec![]),
            (r#"{upsert: {collection: "c", key: .key, set: {topic: "a.dlq"}}}"#, vec![]),
            (r#"# {publish: {topic: "a.dlq"}}"#, vec![]),
            (r#"{publish: {topic: ("a" + ".dlq"), payload: 1}}"#, vec![]),
            (r#"{publish: {topic: "a\("}")", payload: "topic"}}"#, vec![]),
            (r#"{publish: {topic: "a" + "b", payload: 1}}"#, vec![]),
            (r#"{publish: {topic: "a"#, vec![]),
            (r#""\("\("#, vec![]),
        ] {
            assert_eq!(publish_literals(program), found, "{program}");
        }
    }
}
