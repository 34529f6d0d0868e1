//! The commands in the documents: each must be run by `cargo xtask docs-commands` or by `.ci/run`.

mod blocks;
mod output;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use self::blocks::{Block, Tag};
use crate::metadata::{Graph, Scope};
use crate::repo::{Repo, TextFile};
use crate::report::Report;

const CI: &str = ".ci/run";

/// Refuses shell blocks that nothing runs. The tags are explained in CONTRIBUTING.md.
pub(crate) fn check_tags(repo: &Repo) -> Result<Report> {
    let mut report = Report::default();
    let ci = repo.read(CI)?;
    for document in documents(repo)? {
        let mut previous = None;
        for block in blocks::parse(&document.text) {
            let place = format!("{}:{}", document.path, block.line);
            match block.tag {
                Tag::Unknown => {
                    report.fail(format!("{place}: a shell block needs a tag that says who runs it"))
                }
                Tag::Output if !matches!(previous, Some(Tag::Test | Tag::TestInRepo)) => {
                    report.fail(format!("{place}: no command to compare this output with"));
                }
                Tag::Ci => {
                    for line in block.commands().filter(|line| !ci.contains(line)) {
                        report.fail(format!("{place}: {CI} does not run `{line}`"));
                    }
                }
                _ => {}
            }
            previous = Some(block.tag);
        }
    }
    Ok(report)
}

/// Builds the binary, then runs the tagged blocks of every document in order.
pub(crate) fn run_commands(repo: &Repo) -> Result<()> {
    let built = repo.cargo().args(["build", "--locked", "--release", "--bin", "promethean"]).status()?;
    if !built.success() {
        bail!("the release build failed");
    }
    let target = PathBuf::from(Graph::load(repo, Scope::Linux)?.target_dir);
    let mut ran = 0;
    for document in documents(repo)? {
        ran += run_document(repo, &document, &target)?;
    }
    println!("docs-commands: {ran} block(s) ran as documented");
    Ok(())
}

/// Blocks of one document share one fresh directory, so a later one can use what an earlier one made.
fn run_document(repo: &Repo, document: &TextFile, target: &Path) -> Result<usize> {
    let scratch = target.join("docs-commands").join(document.path.replace('/', "-"));
    if scratch.exists() {
        fs::remove_dir_all(&scratch).context("clear the scratch directory")?;
    }
    fs::create_dir_all(scratch.join("run")).context("make the scratch directory")?;
    let blocks = blocks::parse(&document.text);
    let (mut ran, mut servers) = (0, Vec::new());
    for (at, block) in blocks.iter().enumerate() {
        let folder = match block.tag {
            Tag::Test | Tag::Server => scratch.join("run"),
            Tag::TestInRepo | Tag::ServerInRepo => repo.root().to_path_buf(),
            _ => continue,
        };
        let place = format!("{}:{}", document.path, block.line);
        println!("docs-commands: {place}");
        let session = Session { folder, capture: scratch.join("stdout"), binaries: target.join("release") };
        if matches!(block.tag, Tag::Server | Tag::ServerInRepo) {
            let command = session.command(&format!("exec {}", block.body.trim()))?;
            servers.push(Server::start(command, &scratch).with_context(|| format!("start {place}"))?);
            ran += 1;
            continue;
        }
        let (status, stdout) = session.run(block).with_context(|| format!("run {place}"))?;
        if !status.success() {
            bail!("{place}: {status}\n--- stdout\n{stdout}");
        }
        let expected = blocks.get(at + 1).filter(|next| next.tag == Tag::Output);
        if let Some(expected) = expected.filter(|expected| !output::matches(&expected.body, &stdout)) {
            bail!("{place}: unexpected output\n--- documented\n{}--- stdout\n{stdout}", expected.body);
        }
        ran += 1;
    }
    drop(servers);
    fs::remove_dir_all(&scratch).context("clear the scratch directory")?;
    Ok(ran)
}

/// Where and how the blocks of a document run.
struct Session {
    folder: PathBuf,
    capture: PathBuf,
    binaries: PathBuf,
}

impl Session {
    /// Standard output goes to a file: a pipe would wait for background processes to close it.
    fn run(&self, block: &Block) -> Result<(ExitStatus, String)> {
        let status = self.command(&block.body)?.stdout(File::create(&self.capture)?).status()?;
        Ok((status, String::from_utf8_lossy(&fs::read(&self.capture)?).into_owned()))
    }

    fn command(&self, body: &str) -> Result<Command> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(std::iter::once(self.binaries.clone()).chain(std::env::split_paths(&path)))?;
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", body]).current_dir(&self.folder).env("PATH", path);
        command.stdin(Stdio::null());
        Ok(command)
    }
}

/// The address that the documents use.
const READY: &str = "http://127.0.0.1:8090/ready";

/// A server that a document starts; stopped when dropped.
struct Server(Child);

impl Server {
    /// Starts the server on an empty data directory, and waits until it is ready.
    fn start(mut command: Command, scratch: &Path) -> Result<Self> {
        let child = command
            .env("PROMETHEAN_DATA", scratch.join("data"))
            .stdout(Stdio::null())
            .spawn()
            .context("start a server")?;
        let server = Self(child);
        let ready = format!("until curl -sf {READY} >/dev/null; do sleep 0.1; done");
        // Long enough to build the binary first.
        let waited = Command::new("timeout").args(["600", "bash", "-c", &ready]).status()?;
        if !waited.success() {
            bail!("{READY} does not answer");
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// README, CONTRIBUTING and the like at the root, and everything under `docs/`.
fn documents(repo: &Repo) -> Result<Vec<TextFile>> {
    let mut files = repo.text_files()?;
    files.retain(|file| {
        file.path.ends_with(".md") && (!file.path.contains('/') || file.path.starts_with("docs/"))
    });
    Ok(files)
}
