//! The keys of the configuration, read from the example file. A test of the binary compares that file with the
//! keys that the binary accepts.

use std::collections::BTreeSet;

/// Sections whose second word is chosen by the user: the name of a topic or collection.
const NAMED: [&str; 2] = ["topics", "collections"];
/// Sections of one server. A message that names one of their keys must name the section too, because a key
/// of the same name may be in another section.
const NEEDS_PATH: [&str; 3] = ["limits", "auth", "tls"];

/// The keys and sections of the configuration.
pub(crate) struct Keys {
    /// Keys with their sections: `limits.events.tags_max`, `topics.*.retention.age`.
    paths: BTreeSet<String>,
    sections: BTreeSet<String>,
    /// The texts of the example, such as the names of topics; they look like paths and are none.
    values: BTreeSet<String>,
}

impl Keys {
    /// Reads the example. Keys and sections in comments count.
    pub(crate) fn read(example: &str) -> Self {
        let mut keys = Self { paths: BTreeSet::new(), sections: BTreeSet::new(), values: BTreeSet::new() };
        let mut section = String::new();
        for line in example.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)) {
            if let Some(header) = line.strip_prefix('[') {
                section = normal(header.trim_start_matches('[').split(']').next().unwrap_or_default());
                keys.sections.extend(prefixes(&section));
                continue;
            }
            if let Some((key, value)) = line.split_once(" = ").filter(|(key, _)| is_word(key)) {
                keys.add(&section, key, value);
            }
        }
        keys
    }

    fn add(&mut self, section: &str, key: &str, value: &str) {
        let path = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        let has_own_names = section == "collections.*" && key == "fields";
        if value.contains('{') {
            self.sections.insert(path.clone());
        }
        if value.contains('{') && !has_own_names {
            let words = value.split(['{', '}', ',', '#']).filter_map(|part| part.split_once(" = "));
            let inner = words.map(|(word, _)| word.trim()).filter(|word| is_word(word));
            self.paths.extend(inner.map(|word| format!("{path}.{word}")));
        }
        self.values.extend(value.split('"').skip(1).step_by(2).map(str::to_owned));
        self.paths.insert(path);
    }

    /// Whether `path` is a key or a section, written from the root.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = normal(path);
        // `topics.x` is a topic named x, which no text means.
        let is_name = path.strip_suffix(".*").is_some_and(|first| NAMED.contains(&first));
        !is_name && (self.paths.contains(&path) || self.sections.contains(&path))
    }

    /// Whether `section` is a section.
    pub(crate) fn has_section(&self, section: &str) -> bool {
        self.sections.contains(&normal(section))
    }

    /// Whether the text begins like a path of a key and is not the name of a topic.
    pub(crate) fn is_path(&self, text: &str) -> bool {
        let first = text.split_once('.').map(|(first, _)| first);
        first.is_some_and(|first| self.sections.contains(first)) && !self.values.contains(text)
    }

    /// Whether there is a key or section of this name, in any section.
    pub(crate) fn has_word(&self, word: &str) -> bool {
        let ends = |section: &String| section.rsplit('.').next() == Some(word);
        !self.paths_of(word).is_empty() || self.sections.iter().any(ends)
    }

    /// The path to write instead of the bare key, if the bare key does not say where it is.
    pub(crate) fn path_needed(&self, word: &str) -> Option<&str> {
        let needs = |path: &str| path.split_once('.').is_some_and(|(first, _)| NEEDS_PATH.contains(&first));
        let paths = self.paths_of(word);
        let first = paths.first().copied()?;
        paths.iter().all(|path| needs(path)).then_some(first)
    }

    fn paths_of(&self, word: &str) -> Vec<&str> {
        self.paths.iter().map(String::as_str).filter(|path| path.rsplit('.').next() == Some(word)).collect()
    }
}

/// The path with `*` for names that users choose.
fn normal(path: &str) -> String {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    if rest.is_empty() || !NAMED.contains(&first) {
        return path.to_owned();
    }
    let after = match rest.strip_prefix('"').and_then(|quoted| quoted.split_once('"')) {
        Some((_, after)) => after.strip_prefix('.'),
        None => rest.split_once('.').map(|(_, after)| after),
    };
    match after {
        Some(after) => format!("{first}.*.{after}"),
        None => format!("{first}.*"),
    }
}

/// `a`, `a.b` and `a.b.c` of `a.b.c`.
fn prefixes(path: &str) -> impl Iterator<Item = String> + '_ {
    let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|end| path.get(..end)).map(str::to_owned)
}

/// Whether the text is one word of lower-case letters, digits and `_`.
pub(crate) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::read(
            "data = \"d\"\n# more words\n[limits]\npings = 1 # often\nrate = { per_second = 1, burst = 2 }\n\
             [limits.events]\n# tags_max = 2\n[topics.\"a.b\"]\nretention = { age = \"1d\" }\n\
             [[auth.tokens]]\nname = \"audit.events\"\n[audit]\ntopic = \"audit.events\"\n\
             [collections.c]\nfields = { mine = \"string\" }\n",
        )
    }

    #[test]
    fn paths_are_those_of_the_example() {
        let keys = keys();
        for path in
            ["data", "limits.pings", "limits.rate.burst", "limits.events.tags_max", "auth.tokens.name"]
        {
            assert!(keys.has(path), "{path}");
        }
        assert!(keys.has("topics.x.retention.age") && keys.has("topics.\"x.y\".retention"));
        for path in ["pings", "limits.ping", "topics.auto_create", "topics.x.days", "collections.c.mine"] {
            assert!(!keys.has(path), "{path}");
        }
        assert!(keys.has_section("auth") && keys.has_section("topics.\"q.r\"") && !keys.has_section("limit"));
        assert!(keys.is_path("limits.x") && !keys.is_path("audit.events") && !keys.is_path("orders.placed"));
    }

    #[test]
    fn a_bare_key_says_where_it_is() {
        let keys = keys();
        assert_eq!(keys.path_needed("tags_max"), Some("limits.events.tags_max"));
        assert_eq!(keys.path_needed("retention"), None);
        assert_eq!(keys.path_needed("data"), None);
        assert!(keys.has_word("age") && !keys.has_word("ages"));
    }
}
