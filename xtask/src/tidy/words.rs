//! Rules about one line: leftovers, whitespace, characters, paths of one machine.

/// Written in halves, so that this file passes its own check.
const LEFTOVER_WORDS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const LEFTOVER_CODE: [&str; 3] =
    [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("#[ig", "nore")];
const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk"), concat!("/tm", "p/w"), concat!("/ro", "ot")];

pub(crate) fn findings(line: &str, source: bool) -> Vec<String> {
    let mut found = Vec::new();
    if line.contains('\t') {
        found.push("tab".to_owned());
    }
    if line.ends_with([' ', '\r']) {
        found.push("trailing whitespace".to_owned());
    }
    for word in LEFTOVER_WORDS.iter().filter(|word| has_word(line, word)) {
        found.push(format!("leftover {word}"));
    }
    for path in MACHINE_PATHS.iter().filter(|path| has_word(line, path)) {
        found.push(format!("path of one machine: {path}"));
    }
    if source {
        if let Some(c) = line.chars().find(|c| !c.is_ascii()) {
            found.push(format!("{c:?} is not ASCII; write it as \\u{{{:x}}}", u32::from(c)));
        }
        for code in LEFTOVER_CODE.iter().filter(|code| line.contains(**code)) {
            found.push(format!("leftover {code}"));
        }
    }
    found
}

/// Whether `word` occurs as a word of its own, and not as the tail of a relative path.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(|c| c == '.' || part_of_word(c)) && !after.is_some_and(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: usize) {
        let found = findings(line, true);
        assert_eq!(found.len(), expected, "{line:?}: {found:?}");
    }

    #[test]
    fn whitespace_and_characters() {
        check("let x = 1;", 0);
        check("\tlet x = 1;", 1);
        check("let x = 1; ", 1);
        check("// caf\u{e9}", 1);
    }

    #[test]
    fn leftovers() {
        check(concat!("// TO", "DO: later"), 1);
        check(concat!("// TO", "DOS are fine"), 0);
        check(concat!("mktemp -d name.XX", "XXXX"), 0);
        check(concat!("    to", "do!()"), 1);
        check(concat!("#[ig", "nore = \"slow\"]"), 1);
    }

    #[test]
    fn machine_paths() {
        check(concat!("cd /wo", "rk/project"), 1);
        check(concat!("cd /wo", "rkspace"), 0);
        check(concat!("the home/wo", "rk balance"), 0);
        check(concat!("ls /ro", "ot"), 1);
        check(concat!("ls /tm", "p/well"), 0);
        check(concat!("ls /tm", "p/w/x"), 1);
    }
}
