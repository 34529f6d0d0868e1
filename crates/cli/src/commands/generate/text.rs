//! Text for comments and literals of source code.

/// Whether a character is invisible or changes how the text around it looks; compilers refuse some of them.
fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(char, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A line of a comment, without hidden characters.
pub(super) fn shown(line: &str) -> String {
    let line = line.replace('\t', "    ");
    line.chars().filter(|char| !is_hidden(*char)).collect::<String>().trim_end().to_owned()
}

/// JSON with the same meaning, in which every line ends with a line feed and hidden characters are written as
/// numbers. JSON has hidden characters only inside of its strings, and line ends only outside of them.
pub(super) fn json_escaped(json: &str) -> String {
    let json = json.replace("\r\n", "\n").replace('\r', "\n").replace('\t', "    ");
    let lines: Vec<&str> = json.trim().lines().map(|line| line.trim_end_matches(' ')).collect();
    let mut text = String::with_capacity(json.len());
    for char in lines.join("\n").chars() {
        if char != '\n' && is_hidden(char) {
            for unit in char.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            text.push(char);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_written_out() {
        assert_eq!(shown("a\u{202e}b\tc \u{7}"), "ab    c");
        let json = " {\r\n\t\"a\u{202e}\": \"\u{e4}\u{e0001}\"  \r}\n";
        let escaped = json_escaped(json);
        assert_eq!(escaped, "{\n    \"a\\u202e\": \"\u{e4}\\udb40\\udc01\"\n}");
        let values: [serde_json::Value; 2] = [json, &escaped].map(|json| serde_json::from_str(json).unwrap());
        assert_eq!(values[0], values[1]);
    }
}
