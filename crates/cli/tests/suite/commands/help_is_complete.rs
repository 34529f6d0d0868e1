//! `--help`, `completions`, `man` and the reference in `docs/cli.md`.

use std::path::Path;

use super::Shell;

/// Lines that a help may have.
const LINES_MAX: usize = 50;
/// Columns that the examples of a help may have, so that they fit a terminal of 80.
const COLUMNS_MAX: usize = 79;

/// The commands with their own help, from the reference.
fn commands(reference: &str) -> Vec<Vec<&str>> {
    let heads =
        reference.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(" promethean "));
    heads.map(|name| name.split(' ').collect()).collect()
}

#[test]
fn the_reference_is_what_the_binary_says() {
    let shell = Shell::new();
    let said = shell.says(&["reference"]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(said == kept, "docs/cli.md is old; run `cargo run --bin promethean -- reference > docs/cli.md`");
}

#[test]
fn every_help_fits_a_screen_and_ends_with_two_examples() {
    let shell = Shell::new();
    let reference = shell.says(&["reference"]);
    let commands = commands(&reference);
    assert!(commands.len() > 60, "{commands:?}");
    for words in &commands {
        let help = shell.says(&[&words[..], &["--help"]].concat());
        assert!(help.lines().count() <= LINES_MAX, "{words:?} has {} lines", help.lines().count());
        let examples =
            help.split_once("Examples:\n").unwrap_or_else(|| panic!("{words:?} has no examples")).1;
        let count = examples.lines().filter(|line| line.starts_with("  promethean ")).count();
        assert!(count >= 2, "{words:?} has {count} example(s)");
        for line in examples.lines() {
            // A longer line would be broken in the middle of a command.
            assert!(line.len() <= COLUMNS_MAX, "{words:?}: {line}");
        }
    }
}

#[test]
fn shells_and_man_get_their_files() {
    let shell = Shell::new();
    for (name, has) in
        [("bash", "complete -F"), ("zsh", "#compdef promethean"), ("fish", "complete -c promethean")]
    {
        assert!(shell.says(&["completions", name]).contains(has), "{name}");
    }
    shell.fails(&["completions", "csh"], 2);
    shell.says(&["man", "pages"]);
    let page = std::fs::read_to_string(shell.path().join("pages/promethean-topics-set.1")).unwrap();
    assert!(page.contains("retention.age"), "{page}");
    assert!(shell.path().join("pages/promethean.1").exists());
}
