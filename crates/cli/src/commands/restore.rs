//! `promethean restore`: makes a data directory from a point of a backup.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use promethean_log::LogOptions;
use promethean_model::SystemClock;
use promethean_store::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean_store::port::{CursorReads, DocReads, EventReads, Store};
use serde::Serialize;

use crate::backup_set::check::{BackupCheck, check};
use crate::backup_set::{BackupSet, PieceRead, PointFile, SavedPoint};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{OutputArgs, count_text, print_json, print_line, progress, time_text};

/// Topics and collections that are read at once.
const PAGE: usize = 1_000;
/// Shows that a folder beside the data directory is the work of a restore.
const MARKER: &str = "RESTORING";
/// Zeros that are written at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The flags of `promethean restore`.
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is overwritten: the data directory must not exist, or be empty. The backup is checked first, and \
the data directory appears when it is whole. Start a server on it with `promethean serve --data DIR`.

Examples:
  promethean restore /backups/orders --data promethean-data
  promethean restore /backups/orders --data before-the-mistake --point 3 --json"
)]
pub(crate) struct RestoreArgs {
    /// The directory of the backup
    backup: PathBuf,
    /// The data directory to make
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The number of the point; the latest if left out
    #[arg(long, value_name = "N")]
    point: Option<u32>,
    #[command(flatten)]
    output: OutputArgs,
}

/// What a restored directory has.
#[derive(Debug, Serialize)]
struct Restored {
    point: u32,
    taken: i64,
    position: u64,
    topics: u64,
    events: u64,
    groups: u64,
    collections: u64,
    state_entries: u64,
}

pub(crate) fn run(args: &RestoreArgs) -> Result<ExitCode> {
    let set = BackupSet::open(&args.backup)?;
    refuse_used(&args.data)?;
    let point = set.choose(args.point)?;
    let show = |done: u64| {
        if !args.output.quiet {
            progress(&format!("{} MB", done / 1_000_000));
        }
    };
    let checked = check(&set, &[point.point], &mut |done| show(done))?;
    show_end(args);
    if !checked.clean {
        return Err(damaged(&checked).into());
    }
    let work = work_folder(&args.data)?;
    let restored =
        restore(&set, &point, &work).with_context(|| format!("restore to `{}`", work.display()))?;
    fs::remove_file(work.join(MARKER))?;
    sync_folder(&work)?;
    fs::rename(&work, &args.data).with_context(|| format!("cannot make `{}`", args.data.display()))?;
    sync_folder(&parent_of(&args.data))?;
    report(args, &restored)?;
    Ok(ExitCode::SUCCESS)
}

fn show_end(args: &RestoreArgs) {
    if !args.output.quiet {
        progress("");
    }
}

/// Refuses a directory with anything in it.
fn refuse_used(data: &Path) -> Result<()> {
    match fs::read_dir(data).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let message = format!(
                "`{}` is not empty, and nothing is overwritten; name another directory",
                data.display()
            );
            Err(CommandFailure::new(FailureKind::Refused, message).into())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot use `{}`", data.display())),
    }
}

fn damaged(checked: &BackupCheck) -> CommandFailure {
    let mut lines: Vec<String> = checked.damage.iter().map(ToString::to_string).collect();
    lines.extend(checked.errors.iter().cloned());
    let more = lines.len().saturating_sub(10);
    lines.truncate(10);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    let message =
        format!("the backup is damaged, nothing was restored; choose another point:\n{}", lines.join("\n"));
    CommandFailure::new(FailureKind::Refused, message)
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Makes the folder in which the data directory is put together. What an interrupted restore left is removed.
fn work_folder(data: &Path) -> Result<PathBuf> {
    let name = data.file_name().with_context(|| format!("`{}` is no name of a directory", data.display()))?;
    let mut name = name.to_owned();
    name.push(".restoring");
    let work = parent_of(data).join(name);
    if work.exists() {
        ensure!(
            work.join(MARKER).exists(),
            "`{}` is in the way; move it, or name another directory",
            work.display()
        );
        fs::remove_dir_all(&work)?;
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&work);
    made.with_context(|| format!("cannot make `{}`", work.display()))?;
    create(&work.join(MARKER))?;
    Ok(work)
}

fn create(path: &Path) -> Result<File> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.with_context(|| format!("cannot write `{}`", path.display()))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn restore(set: &BackupSet, point: &SavedPoint, work: &Path) -> Result<Restored> {
    for folder in ["segments", "index", "journal"] {
        DirBuilder::new().mode(0o700).create(work.join(folder))?;
    }
    for file in &point.files {
        write_file(set, file, work)?;
    }
    for folder in ["segments", "index", "journal"] {
        sync_folder(&work.join(folder))?;
    }
    let options = || EmbeddedOptions {
        // Without threads, nothing is written beside what is asked for.
        log: LogOptions { threads: false, ..LogOptions::default() },
        ..EmbeddedOptions::default()
    };
    let mut pages = point.state.iter();
    let mut next = || match pages.next() {
        Some(hash) => piece(set, hash).map(Some).map_err(io::Error::other),
        None => Ok(None),
    };
    let state_entries = EmbeddedStore::restore_state(work, options(), &mut next)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let (store, _) = EmbeddedStore::open(work, Arc::new(SystemClock::new()), options()).await?;
        let looked = look(&store, point, state_entries).await;
        store.close().await;
        looked
    })
}

/// Writes a file from its pieces, and the zeros that follow them.
fn write_file(set: &BackupSet, file: &PointFile, work: &Path) -> Result<()> {
    let mut out = create(&work.join(&file.file.file))?;
    for hash in &file.pieces {
        out.write_all(&piece(set, hash)?)?;
    }
    let mut left = file.file.length.saturating_sub(file.file.bytes);
    while left > 0 {
        let zeros = ZEROS.get(..left.min(ZEROS.len() as u64) as usize).unwrap_or_default();
        out.write_all(zeros)?;
        left -= zeros.len() as u64;
    }
    Ok(out.sync_all()?)
}

fn piece(set: &BackupSet, hash: &str) -> Result<Vec<u8>> {
    match set.read_piece(hash)? {
        PieceRead::Whole(bytes) => Ok(bytes),
        PieceRead::Missing | PieceRead::Damaged => {
            bail!("the piece {hash} was damaged while the backup was restored")
        }
    }
}

/// Reads the whole directory, compares it with the point, and counts what it has.
async fn look(store: &EmbeddedStore, point: &SavedPoint, state_entries: u64) -> Result<Restored> {
    for topic in &point.topics {
        let name = topic.topic.parse().with_context(|| format!("the name of topic `{}`", topic.topic))?;
        // A topic whose deletion was decided and not done at the point is deleted when the directory is opened.
        if let Some(info) = store.topic_info(&name).await? {
            ensure!(
                info.end.get() == topic.end,
                "topic `{name}` ends at {} and not at {}",
                info.end,
                topic.end
            );
        }
    }
    store.checkpoint().await?;
    let read = store.verify(|_, _| {}).await?;
    if let Some(damage) = read.log.damage.first() {
        bail!("the server was damaged when the backup was made: {damage}");
    }
    ensure!(
        read.is_clean(),
        "the restored files do not fit each other: {:?} {:?}",
        read.log.errors,
        read.state_details
    );
    let mut groups = BTreeSet::new();
    let (mut topics, mut after) = (0, None);
    loop {
        let page = store.topics(after.as_ref(), PAGE).await?.topics;
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        for topic in &page {
            topics += 1;
            groups.extend(store.cursors_of_topic(&topic.name).await?.into_iter().map(|cursor| cursor.group));
        }
    }
    let (mut collections, mut after) = (0, None);
    loop {
        let page = store.collections(after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.collection.name.clone());
        collections += page.len() as u64;
    }
    Ok(Restored {
        point: point.point,
        taken: point.taken,
        position: point.position,
        topics,
        events: read.log.records,
        groups: groups.len() as u64,
        collections,
        state_entries,
    })
}

fn report(args: &RestoreArgs, restored: &Restored) -> Result<()> {
    if args.output.json {
        return print_json(restored);
    }
    if args.output.quiet {
        return Ok(());
    }
    print_line(&format!(
        "`{}` is restored from point {} of {}: {} topic(s), {} event(s), {} group(s), {} collection(s)",
        args.data.display(),
        restored.point,
        time_text(restored.taken),
        count_text(restored.topics),
        count_text(restored.events),
        count_text(restored.groups),
        count_text(restored.collections),
    ))?;
    Ok(())
}
