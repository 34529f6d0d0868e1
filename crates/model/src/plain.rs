//! Errors of reading JSON and TOML, in plain words. serde names types of Rust (`expected usize`), which tell a
//! user nothing.

/// The reason that serde gives, as a user understands it. `object` is what the format calls a set of named
/// values: "an object" in JSON, "a table" in TOML.
pub fn reason(error: &str, object: &str) -> String {
    let (message, place) = split_place(error);
    let message = sentence(message, object).unwrap_or_else(|| message.to_owned());
    match place {
        Some((line, column)) => format!("{message} (line {line}, column {column})"),
        None => message,
    }
}

/// The reason of an error of reading JSON.
pub fn json_reason(error: &serde_json::Error) -> String {
    reason(&error.to_string(), "an object")
}

/// Cuts ` at line 1 column 2` off.
fn split_place(error: &str) -> (&str, Option<(&str, &str)>) {
    let place = error.rsplit_once(" at line ").and_then(|(message, place)| {
        let (line, column) = place.split_once(" column ")?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        (is_number(line) && is_number(column)).then_some((message, (line, column)))
    });
    place.map_or((error, None), |(message, place)| (message, Some(place)))
}

fn sentence(message: &str, object: &str) -> Option<String> {
    for prefix in ["invalid type: ", "invalid value: "] {
        if let Some(rest) = message.strip_prefix(prefix) {
            let (found, expected) = split_expected(rest)?;
            return Some(format!("{} was given; give {}", given(found, object), wanted(expected, object)));
        }
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return Some(format!("{field} is missing; add it"));
    }
    if let Some(field) = message.strip_prefix("duplicate field ") {
        return Some(format!("{field} is given twice; leave one out"));
    }
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let (field, known) = rest.split_once(", ")?;
        return Some(match known.strip_prefix("expected ") {
            Some(known) => format!("{field} is not known here; use {known}"),
            None => format!("{field} is not known here; leave it out"),
        });
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        let (word, known) = rest.split_once(", expected ")?;
        return Some(format!("{word} is not possible here; use {known}"));
    }
    if let Some(rest) = message.strip_prefix("invalid length ") {
        let (length, expected) = rest.split_once(", expected ")?;
        return Some(format!("it has {length} entries; give {}", wanted(expected, object)));
    }
    syntax(message).map(str::to_owned)
}

/// What was found and what was expected. A text that was found is quoted, so commas in it do not count.
fn split_expected(rest: &str) -> Option<(&str, &str)> {
    if rest.starts_with("string \"") {
        let at = rest.find("\", expected ")? + 1;
        return Some((rest.get(..at)?, rest.get(at..)?.strip_prefix(", expected ")?));
    }
    rest.split_once(", expected ")
}

fn given(found: &str, object: &str) -> String {
    let quoted = |prefix: &str| found.strip_prefix(prefix).map(|rest| rest.trim_matches('`'));
    if let Some(number) = quoted("integer ").or_else(|| quoted("floating point ")) {
        return format!("the number {number}");
    }
    if let Some(text) = found.strip_prefix("string ") {
        return format!("the text {text}");
    }
    if let Some(value) = quoted("boolean ") {
        return format!("`{value}`");
    }
    match found {
        "string" => "a text".to_owned(),
        "sequence" => "a list".to_owned(),
        "map" => object.to_owned(),
        "null" | "unit value" | "Option value" => "`null`".to_owned(),
        other => other.to_owned(),
    }
}

fn wanted(expected: &str, object: &str) -> String {
    let plain = match expected {
        "usize" | "u64" | "u128" => "a whole number from 0",
        "u32" => "a whole number from 0 to 4294967295",
        "u16" => "a whole number from 0 to 65535",
        "u8" => "a whole number from 0 to 255",
        "i64" | "isize" | "i128" | "i32" | "i16" | "i8" => "a whole number",
        "f64" | "f32" => "a number",
        "a string" | "string" | "str" | "a borrowed string" => "a text",
        "a boolean" | "bool" => "`true` or `false`",
        "a sequence" | "sequence" => "a list",
        "a map" | "map" => object,
        "unit" | "null" => "`null`",
        "any valid JSON value" => "a JSON value",
        "a string or table" | "variant identifier" | "field identifier" => "a word",
        other if other.starts_with("struct ") => object,
        other if other.starts_with("enum ") => "a word",
        other if other.starts_with("a nonzero ") => "a whole number from 1",
        other => other,
    };
    plain.to_owned()
}

/// What is wrong with a text that is not JSON.
fn syntax(message: &str) -> Option<&'static str> {
    Some(match message {
        _ if message.starts_with("EOF while parsing") => "the text ends before the JSON is complete",
        _ if message.starts_with("data did not match any variant") => "it is not understood",
        _ if message.starts_with("control character") => {
            "a text has a control character; write it as an escape, such as `\\n`"
        }
        "expected value" => "a JSON value is missing here",
        "expected ident" => "one of `true`, `false` and `null` is misspelt",
        "trailing characters" => "there is more text after the JSON",
        "trailing comma" => "nothing follows a comma",
        "key must be a string" => "a name in quotes is missing here",
        "recursion limit exceeded" => "it is nested too deep",
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
            "a text has one half of a character that is written as two escapes"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only errors are looked at")]
    struct Fields {
        count: usize,
        #[serde(default)]
        few: Option<std::num::NonZeroU32>,
        #[serde(default)]
        port: u16,
        #[serde(default)]
        text: String,
        #[serde(default)]
        list: Vec<u8>,
        #[serde(default)]
        flag: bool,
        #[serde(default)]
        word: Option<Word>,
        #[serde(default)]
        inner: Option<Box<Fields>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Yes,
        No,
    }

    #[track_caller]
    fn said(json: &str, expected: &str) {
        let reason = json_reason(&serde_json::from_str::<Fields>(json).unwrap_err());
        assert_eq!(reason.split_once(" (line").unwrap().0, expected);
    }

    #[test]
    fn reasons_name_no_types_of_rust() {
        said("{\"count\": \"5\"}", "the text \"5\" was given; give a whole number from 0");
        said(
            "{\"count\": \"a, expected b\"}",
            "the text \"a, expected b\" was given; give a whole number from 0",
        );
        said("{\"count\": 1.5}", "the number 1.5 was given; give a whole number from 0");
        said("{\"count\": -1}", "the number -1 was given; give a whole number from 0");
        said("{\"count\": [1]}", "a list was given; give a whole number from 0");
        said("{\"count\": null}", "`null` was given; give a whole number from 0");
        said("{\"few\": 0}", "the number 0 was given; give a whole number from 1");
        said("{\"port\": 70000}", "the number 70000 was given; give a whole number from 0 to 65535");
        said("{\"text\": true}", "`true` was given; give a text");
        said("{\"list\": {}}", "an object was given; give a list");
        said("{\"flag\": 1}", "the number 1 was given; give `true` or `false`");
        said("{\"inner\": 1}", "the number 1 was given; give an object");
        said("{\"word\": \"maybe\"}", "`maybe` is not possible here; use `yes` or `no`");
        said("{}", "`count` is missing; add it");
        said("{\"count\": 1, \"count\": 2}", "`count` is given twice; leave one out");
        let known = "one of `count`, `few`, `port`, `text`, `list`, `flag`, `word`, `inner`";
        said("{\"c\": 1}", &format!("`c` is not known here; use {known}"));
        said("{\"count\": 1", "the text ends before the JSON is complete");
        said("{\"count\": }", "a JSON value is missing here");
        said("{\"count\": 1} 2", "there is more text after the JSON");
        said("{count: 1}", "a name in quotes is missing here");
    }

    #[test]
    fn the_place_is_kept() {
        assert_eq!(
            reason("missing field `a` at line 2 column 7", ""),
            "`a` is missing; add it (line 2, column 7)"
        );
        assert_eq!(
            reason("invalid type: map, expected a string", "a table"),
            "a table was given; give a text"
        );
        assert_eq!(reason("something at line of sight", ""), "something at line of sight");
    }
}
