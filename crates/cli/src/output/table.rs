//! Tables for people.

use std::io;

use super::print_line;
use super::style::{Paint, Tone, terminal_columns};

/// The shortest that a column becomes in a narrow terminal.
const COLUMN_MIN: usize = 12;

/// A column: its head, and which side its cells are aligned to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column {
    /// Text.
    Text(&'static str),
    /// Numbers, aligned to the right.
    Number(&'static str),
}

impl Column {
    const fn head(self) -> &'static str {
        match self {
            Self::Text(head) | Self::Number(head) => head,
        }
    }
}

/// Rows of text below the heads of their columns.
#[derive(Debug)]
pub(crate) struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<(String, Option<Tone>)>>,
}

impl TextTable {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into_iter().map(|cell| (cell, None)).collect());
    }

    /// Adds a row whose last cell has a tone.
    pub(crate) fn toned<const N: usize>(&mut self, cells: [String; N], tone: Tone) {
        self.row(cells);
        if let Some((_, last)) = self.rows.last_mut().and_then(|row| row.last_mut()) {
            *last = Some(tone);
        }
    }

    /// Prints the heads and the rows. In a terminal, no line is longer than the terminal is wide if its longest
    /// cell can be cut.
    pub(crate) fn print(&self) -> io::Result<()> {
        let paint = Paint::stdout();
        let widths = self.widths(terminal_columns());
        let heads = self.columns.iter().map(|column| (column.head().to_owned(), Some(Tone::Strong)));
        self.print_row(&heads.collect::<Vec<_>>(), &widths, paint)?;
        self.rows.iter().try_for_each(|row| self.print_row(row, &widths, paint))
    }

    fn widths(&self, terminal: Option<usize>) -> Vec<usize> {
        let width = |(at, column): (usize, &Column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            let longest = cells.map(|(cell, _)| cell.chars().count()).max().unwrap_or(0);
            longest.max(column.head().len())
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(width).collect();
        let Some(terminal) = terminal else { return widths };
        loop {
            let total: usize = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
            let Some(longest) = widths.iter_mut().max().filter(|longest| **longest > COLUMN_MIN) else {
                return widths;
            };
            if total <= terminal {
                return widths;
            }
            *longest = longest.saturating_sub(total - terminal).max(COLUMN_MIN);
        }
    }

    fn print_row(&self, row: &[(String, Option<Tone>)], widths: &[usize], paint: Paint) -> io::Result<()> {
        let mut line = String::new();
        for (at, ((cell, tone), width)) in row.iter().zip(widths).enumerate() {
            let cell = cut(cell, *width);
            let space = " ".repeat(width.saturating_sub(cell.chars().count()));
            let shown = tone.map_or_else(|| cell.clone(), |tone| paint.paint(tone, &cell));
            if at > 0 {
                line.push_str("  ");
            }
            match self.columns.get(at) {
                Some(Column::Number(_)) => line.extend([space, shown]),
                _ => line.extend([shown, space]),
            }
        }
        print_line(line.trim_end())
    }
}

/// The text, or its beginning and an ellipsis if it is longer than `width`.
fn cut(text: &str, width: usize) -> String {
    // A line break or another control character would break the table.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['\u{2026}']).collect(),
        false => text,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_column_gives_way() {
        let mut table =
            TextTable::new(&[Column::Text("TOPIC"), Column::Number("LAG"), Column::Text("REASON")]);
        table.row(["t".repeat(60), "7".to_owned(), "r".repeat(20)]);
        assert_eq!(table.widths(None), [60, 3, 20]);
        assert_eq!(table.widths(Some(80)), [53, 3, 20]);
        assert_eq!(table.widths(Some(20)), [COLUMN_MIN, 3, COLUMN_MIN], "no column disappears");
        assert_eq!(cut("a\nbcdef", 4), "a b\u{2026}");
    }
}
