//! JSON lines on standard output, and progress on the terminal.

use std::io::{self, IsTerminal, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// One JSON object whose fields keep the order they were added in.
#[derive(Debug, Clone, Default)]
pub struct JsonLine(Vec<(&'static str, Value)>);

impl JsonLine {
    /// An object without fields.
    pub fn new() -> JsonLine {
        JsonLine::default()
    }

    /// Adds a field.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> JsonLine {
        self.0.push((name, value.into()));
        self
    }

    /// Adds a figure, rounded to four significant digits: more would be noise.
    pub fn figure(self, name: &'static str, value: f64) -> JsonLine {
        self.with(name, rounded(value))
    }

    /// Prints the object on a line of its own.
    pub fn print(&self) -> anyhow::Result<()> {
        Ok(print_line(&serde_json::to_string(self)?)?)
    }
}

impl Serialize for JsonLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Rounds to four significant digits; whole numbers stay whole.
pub(crate) fn rounded(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    if value.abs() >= 1000.0 {
        return Value::from(value.round() as i64);
    }
    let scale = if value == 0.0 { 1.0 } else { 10_f64.powf(3.0 - value.abs().log10().floor()) };
    Value::from((value * scale).round() / scale)
}

/// Prints a line and flushes it, so that a reader of a pipe sees it at once.
pub fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Shows a person at a terminal what the command is doing; a file or a pipe gets nothing.
pub fn progress(what: &str) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        // Work goes on when the terminal cannot be written.
        let _ = write!(terminal, "\r\x1b[K{what}");
        let _ = terminal.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_four_digits() {
        let text = |value: f64| rounded(value).to_string();
        assert_eq!(text(1_234_567.8), "1234568");
        assert_eq!(text(0.123_456), "0.1235");
        assert_eq!(text(12.345_6), "12.35");
        assert_eq!(text(0.0), "0.0");
        assert_eq!(text(f64::NAN), "null");
    }

    #[test]
    fn fields_keep_their_order() {
        let line = JsonLine::new().with("z", 1).figure("a", 2.5);
        assert_eq!(serde_json::to_string(&line).unwrap(), r#"{"z":1,"a":2.5}"#);
    }
}
