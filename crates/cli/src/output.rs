//! Standard output: lines, JSON objects and tables. The benches print the same lines, so those live in their
//! crate.

use std::io;

pub(crate) use promethean_bench::output::{JsonLine, print_line, progress};

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
