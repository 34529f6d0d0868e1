//! Standard output: lines, JSON objects, tables and colours. The benches print the same lines, so those live in
//! their crate.
//!
//! Every command that asks a server prints tables for people and, with `--json`, JSON lines for programs. Answers
//! go to standard output; notes and progress go to standard error, and `--quiet` leaves them out.

mod human;
mod style;
mod table;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
pub(crate) use promethean_bench::output::{JsonLine, print_line, progress};
use serde::Serialize;

pub(crate) use self::human::{bytes_text, count_text, time_text};
pub(crate) use self::style::{Paint, Tone, stderr_is_terminal, stdout_is_terminal};
pub(crate) use self::table::{Column, TextTable, print_table};

/// The flags that choose what is printed.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct OutputArgs {
    /// Print JSON, one object on each line, instead of a table
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Print no notes and no progress, only answers and errors
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,
}

impl OutputArgs {
    /// Tells a person something that is not the answer.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Prints what a change did: a sentence for people, the answer of the server for programs.
    pub(crate) fn done(&self, sentence: &str, answer: &impl Serialize) -> anyhow::Result<()> {
        match (self.json, self.quiet) {
            (true, _) => print_json(answer),
            (false, true) => Ok(()),
            (false, false) => Ok(print_line(sentence)?),
        }
    }

    /// A progress bar on standard error; hidden if standard error is no terminal, and with `--quiet`.
    pub(crate) fn bar(&self, length: Option<u64>) -> ProgressBar {
        if self.quiet || !stderr_is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
        let template = match length {
            Some(_) => "{bar:30} {human_pos}/{human_len} events, {per_sec}, {eta} left",
            None => "{spinner} {human_pos} events, {per_sec}, {elapsed}",
        };
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }
}

impl OutputArgs {
    /// As [`OutputArgs::bar`], for bytes.
    pub(crate) fn bytes_bar(&self, length: u64) -> ProgressBar {
        if self.quiet || !stderr_is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(length);
        match ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(print_line(&serde_json::to_string(value)?)?)
}
