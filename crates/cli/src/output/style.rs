//! Colours, which only a terminal gets, and the width of the terminal.

use std::io::{self, IsTerminal};

/// What a piece of text is, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// The head of a column, or a name.
    Strong,
    /// What most readers skip.
    Faint,
    /// A key or a value to look for.
    Mark,
    /// All is well.
    Good,
    /// A person may want to look at it.
    Warn,
    /// A person must look at it.
    Bad,
}

/// Colours text, or leaves it as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    is_on: bool,
}

impl Paint {
    /// For standard output: on if it is a terminal that shows colours and the user has not set `NO_COLOR`.
    pub(crate) fn stdout() -> Self {
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { is_on: stdout_is_terminal() && !is_refused && !is_dumb }
    }

    #[cfg(test)]
    pub(crate) const fn off() -> Self {
        Self { is_on: false }
    }

    /// The text in the colour of its tone.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        if !self.is_on || text.is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Strong => "1",
            Tone::Faint => "2",
            Tone::Mark => "36",
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// The columns of the terminal of standard output; `None` if it is no terminal.
pub(crate) fn terminal_columns() -> Option<usize> {
    if !stdout_is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
