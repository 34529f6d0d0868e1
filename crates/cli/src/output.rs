//! What goes to standard output and to the terminal.

use std::io::{self, IsTerminal, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// One JSON object whose fields keep the order they were added in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line(Vec<(&'static str, Value)>);

impl Line {
    pub(crate) fn new() -> Line {
        Line::default()
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Line {
        self.0.push((name, value.into()));
        self
    }

    /// Adds a figure, rounded to four significant digits: more would be noise.
    pub(crate) fn figure(self, name: &'static str, value: f64) -> Line {
        self.with(name, rounded(value))
    }

    /// Prints the object on a line of its own.
    pub(crate) fn print(&self) -> anyhow::Result<()> {
        Ok(print_line(&serde_json::to_string(self)?)?)
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Four significant digits; whole numbers stay whole.
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

/// Prints rows with their columns below each other; the first row is their heads.
pub(crate) fn print_table(rows: &[Vec<String>]) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        print_line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

pub(crate) fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Tells a person at a terminal what is going on; says nothing to a file or a pipe.
pub(crate) fn progress(what: &str) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        // Progress that cannot be shown is no reason to stop.
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
        let line = Line::new().with("z", 1).figure("a", 2.5);
        assert_eq!(serde_json::to_string(&line).unwrap(), r#"{"z":1,"a":2.5}"#);
    }
}
