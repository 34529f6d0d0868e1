//! The self-check of the test suite: each planted bug must make the suite fail, and a test checks that it
//! does.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::repo::Repo;

/// Fewer passing tests than this means the self-check is not running.
const PLANTED_MIN: usize = 7;

pub(crate) fn run(repo: &Repo) -> Result<()> {
    let mut child = repo
        .cargo()
        .args(["test", "--locked", "-p", "promethean-log", "--features", "planted-bugs", "planted"])
        .args(["--", "--test-threads=1"]) // a bug is planted in the whole process
        .stdout(Stdio::piped())
        .spawn()
        .context("run the planted bugs")?;
    let stdout = child.stdout.take().context("read the planted bugs' output")?;
    let mut caught = 0;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        caught += usize::from(is_caught(&line));
        println!("{line}");
    }
    if !child.wait()?.success() {
        bail!("a planted bug was not caught by the suite");
    }
    if caught < PLANTED_MIN {
        bail!("{caught} planted bug(s) caught, expected at least {PLANTED_MIN}");
    }
    println!("planted: {caught} bugs planted, {caught} caught");
    Ok(())
}

/// The run without a bug shows that the suite fails only because of a bug; it counts for none.
const CONTROL: &str = "planted_nothing";

fn is_caught(line: &str) -> bool {
    let passed = line.starts_with("test ") && line.ends_with(" ... ok");
    passed && line.contains("planted") && !line.contains(CONTROL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_passing_planted_tests_count() {
        assert!(is_caught("test suite::planted_bugs_are_caught::planted_skip_sync ... ok"));
        assert!(!is_caught("test planted_skip_sync ... FAILED"));
        assert!(!is_caught("test recovers ... ok"));
        assert!(!is_caught("test suite::planted_bugs_are_caught::planted_nothing_finds_nothing ... ok"));
        assert!(!is_caught("test result: ok. 0 passed; planted"));
    }
}
