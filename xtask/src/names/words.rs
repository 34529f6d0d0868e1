//! The words of the code that documents and messages may name.

use std::collections::BTreeSet;

use super::keys::is_word;
use crate::repo::TextFile;
use crate::tidy::{code_only, literals};

/// Flags of other programs that the texts mention.
const FOREIGN_FLAGS: [&str; 9] =
    ["release", "bin", "workspace", "locked", "retry", "help", "version", "no-deps", "test"];

/// Words, flags and variables of the code.
#[derive(Default)]
pub(crate) struct Words {
    words: BTreeSet<String>,
    flags: BTreeSet<String>,
    variables: BTreeSet<String>,
}

impl Words {
    /// Collects the words of all code, data and scripts, without comments of Rust code.
    pub(crate) fn read(files: &[TextFile]) -> Self {
        let mut words = Self::default();
        for file in files.iter().filter(|file| !file.path.ends_with(".md")) {
            let is_rust = file.path.ends_with(".rs");
            if is_rust {
                words.add_words(&code_only(&file.text));
                literals(&file.text).iter().for_each(|literal| words.add_words(literal.text));
            } else {
                words.add_words(&file.text);
            }
            if is_rust && file.path.contains("/src/") {
                words.add_arguments(&file.text);
            }
        }
        words
    }

    fn add_words(&mut self, text: &str) {
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            if word.contains('_') && is_word(word) {
                self.words.insert(word.to_owned());
            } else if word.starts_with("PROMETHEAN_") {
                self.variables.insert(word.to_owned());
            } else if word.starts_with(|c: char| c.is_ascii_uppercase()) {
                self.words.insert(snake(word));
            }
        }
    }

    /// Adds the flags of a struct of arguments: fields below an attribute with `long`.
    fn add_arguments(&mut self, source: &str) {
        let mut is_flag = false;
        for line in source.lines().map(str::trim_start) {
            if line.starts_with("#[arg(") {
                is_flag = line.contains("long");
                let named = line.split_once("long = \"").and_then(|(_, rest)| rest.split('"').next());
                self.flags.extend(named.map(str::to_owned));
            } else if is_flag && line.contains("long") && !line.contains(':') {
                continue;
            } else if let (true, Some((field, _))) = (is_flag, line.split_once(':')) {
                let name = field.rsplit(' ').next().unwrap_or_default().trim_start_matches("r#");
                self.flags.insert(name.replace('_', "-"));
                is_flag = false;
            }
        }
    }

    /// Whether the code has the word.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.contains(word)
    }

    /// Whether a command has the flag, or another program that the texts mention.
    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        self.flags.contains(flag) || FOREIGN_FLAGS.contains(&flag)
    }

    /// Whether the code reads the variable.
    pub(crate) fn has_variable(&self, variable: &str) -> bool {
        self.variables.contains(variable)
    }
}

/// The name of a variant as users see it: `bad_name` of `BadName`.
fn snake(camel: &str) -> String {
    let mut name = String::new();
    for c in camel.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}
