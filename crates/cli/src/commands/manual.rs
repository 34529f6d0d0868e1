//! What the command tells about itself: completions of shells, manual pages, and the reference in `docs/cli.md`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command as ClapCommand, CommandFactory, ValueEnum};

use super::Cli;
use crate::output::print_line;

/// The part of the reference that no command knows.
const REFERENCE_HEAD: &str = include_str!("reference_head.md");
const REFERENCE_COLUMNS: usize = 100;

/// The flags of `promethean completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  promethean completions bash > /etc/bash_completion.d/promethean
  promethean completions fish > ~/.config/fish/completions/promethean.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: ShellName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ShellName {
    Bash,
    Zsh,
    Fish,
}

/// The flags of `promethean man`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean man ~/.local/share/man/man1\n  promethean man . && man ./promethean-pub.1"
)]
pub(crate) struct ManArgs {
    /// The folder to write the pages to; it is created if it does not exist
    dir: PathBuf,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    let shell = match args.shell {
        ShellName::Bash => clap_complete::Shell::Bash,
        ShellName::Zsh => clap_complete::Shell::Zsh,
        ShellName::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "promethean", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: &ManArgs) -> Result<ExitCode> {
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(&args.dir)?;
        clap_mangen::generate_to(Cli::command(), &args.dir)
    };
    write().with_context(|| format!("cannot write to `{}`", args.dir.display()))?;
    print_line(&format!("the pages are in `{0}`; try `man {0}/promethean.1`", args.dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the reference of all commands, for `docs/cli.md`.
pub(crate) fn reference() -> Result<ExitCode> {
    let mut root = Cli::command().term_width(REFERENCE_COLUMNS);
    root.build();
    let mut text = REFERENCE_HEAD.trim_end().to_owned();
    text.push_str("\n\n## Commands\n\n| command | does |\n| --- | --- |\n");
    for command in root.get_subcommands().filter(|command| is_shown(command)) {
        let (name, about) = (command.get_name(), about_of(command));
        text.push_str(&format!("| [`{name}`](#promethean-{name}) | {about} |\n"));
    }
    for command in root.get_subcommands().filter(|command| is_shown(command)) {
        section(&mut text, command, 2);
    }
    print_line(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn section(text: &mut String, command: &ClapCommand, level: usize) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut shown = command.clone().term_width(REFERENCE_COLUMNS);
    let help = shown.render_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    text.push_str(&format!(
        "\n{} {name}\n\n```text\n{}\n```\n",
        "#".repeat(level),
        help.join("\n").trim_end()
    ));
    for command in command.get_subcommands().filter(|command| is_shown(command)) {
        section(text, command, level + 1);
    }
}

fn is_shown(command: &ClapCommand) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn about_of(command: &ClapCommand) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}
