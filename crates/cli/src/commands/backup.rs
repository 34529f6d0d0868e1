//! `promethean backup`: copies a running server to a directory, as it was at one moment.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::ProgressBar;
use promethean_client::{BackupFile, BackupPiece, BackupPoint, BackupReader, Client, ClientError};
use promethean_model::{Clock, IdMint, SystemClock};
use serde_json::json;

use crate::backup_set::{BackupSet, FetchProgress, PieceRead, PointFile, STATE, SavedPoint, hash_of};
use crate::failure::FailureKind;
use crate::output::{OutputArgs, bytes_text, count_text, print_json, print_line};
use crate::session::{Interrupt, with_client};
use crate::target::TargetArgs;

/// The flags of `promethean backup`.
#[derive(Debug, Args)]
#[command(
    after_help = "The server goes on while it is copied, and the copy is of one moment. A later backup to the same directory \
adds a point and fetches only what is new. Run an interrupted backup again to go on. The token needs scope `admin`.

Examples:
  promethean backup /backups/orders
  promethean backup /backups/orders --token-file admin.token --json"
)]
pub(crate) struct BackupArgs {
    /// The directory of the backup; it is made if it does not exist
    dir: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

pub(crate) fn run(args: &BackupArgs) -> Result<ExitCode> {
    let mut set = BackupSet::open_to_write(&args.dir)?;
    with_client(&args.target, async |client| {
        let mut interrupt = Interrupt::new()?;
        tokio::select! {
            done = backup(args, &mut set, client) => done,
            () = interrupt.wait() => {
                args.output.note("interrupted: no point was added; run the same command again to go on");
                Ok(FailureKind::Interrupted.code())
            }
        }
    })
}

async fn backup(args: &BackupArgs, set: &mut BackupSet, client: &Client) -> Result<ExitCode> {
    let mut progress = FetchProgress::read(set)?;
    let (reader, number) = (client.backups(), set.points()?.last().map_or(1, |last| last + 1));
    let (point, files) = begin(set, &mut progress, &reader).await?;
    let bar = args.output.bytes_bar(point.bytes);
    let mut fetch =
        PointFetch { set, progress, reader, point, bar, fetched_bytes: 0, fetched_files: 0, reused: 0 };
    let topics = fetch.reader.topics(&fetch.point.backup).await?;
    let files = fetch.files(files).await?;
    let state = fetch.state().await?;
    let saved = SavedPoint {
        point: number,
        taken: fetch.point.taken,
        position: fetch.point.position,
        piece_bytes: fetch.point.piece_bytes,
        topics,
        files,
        state,
    };
    fetch.set.write_point(&saved)?;
    fetch.bar.finish_and_clear();
    // The point is complete. If the server cannot be told, it ends the backup by itself.
    let _ = fetch.reader.end(&fetch.point.backup).await;
    report(args, &saved, &fetch)?;
    fetch.progress.end(fetch.set)?;
    Ok(ExitCode::SUCCESS)
}

/// Takes a point. If the fetch of an earlier one was interrupted and the server still has it, it is that point.
async fn begin(
    set: &BackupSet,
    progress: &mut FetchProgress,
    reader: &BackupReader,
) -> Result<(BackupPoint, Vec<BackupFile>)> {
    let id = match progress.id {
        Some(id) => id,
        None => IdMint::new()?.mint(u64::try_from(SystemClock::new().wall_ms()).unwrap_or(0)),
    };
    progress.begin(set, id)?;
    let point = reader.begin(id).await.map_err(explain)?;
    ensure!(point.piece_bytes > 0, "the server divides files into pieces of no bytes; use its version");
    let files = reader.files(&point.backup).await?;
    Ok((point, files))
}

fn explain(error: ClientError) -> anyhow::Error {
    let is_running = error.code() == "backup_running";
    let error = anyhow::Error::from(error);
    match is_running {
        true => error.context("one backup is read at a time; one that is not read ends after 5 minutes"),
        false => error,
    }
}

/// A fetch under way.
struct PointFetch<'a> {
    set: &'a mut BackupSet,
    progress: FetchProgress,
    reader: BackupReader,
    point: BackupPoint,
    bar: ProgressBar,
    fetched_bytes: u64,
    /// Files of which at least one piece came from the server.
    fetched_files: u64,
    /// Pieces that were there already.
    reused: u64,
}

impl PointFetch<'_> {
    async fn files(&mut self, files: Vec<BackupFile>) -> Result<Vec<PointFile>> {
        let mut fetched = Vec::with_capacity(files.len());
        for file in files {
            let before = self.fetched_bytes;
            let count = file.bytes.div_ceil(self.point.piece_bytes).max(1);
            let mut pieces = Vec::new();
            for at in 0..count {
                let known = self.stored(&file.file, at)?;
                let backup = &self.point.backup;
                let piece = self.reader.piece(backup, &file.file, at, known.as_deref()).await?;
                let len = (file.bytes - at * self.point.piece_bytes).min(self.point.piece_bytes);
                pieces.push(self.take(&file.file, at, piece, Some(len))?);
                self.bar.inc(len);
            }
            self.fetched_files += u64::from(self.fetched_bytes > before);
            fetched.push(PointFile { file, pieces });
        }
        Ok(fetched)
    }

    async fn state(&mut self) -> Result<Vec<String>> {
        let mut pages = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let known = self.stored(STATE, pages.len() as u64)?;
            let backup = &self.point.backup;
            let page = self.reader.state(backup, after.as_deref(), known.as_deref()).await?;
            after = page.next.clone();
            pages.push(self.take(STATE, pages.len() as u64, page, None)?);
            if after.is_none() {
                return Ok(pages);
            }
        }
    }

    /// The hash of a piece that is stored and whole. A piece that was damaged since is fetched again.
    fn stored(&self, file: &str, at: u64) -> Result<Option<String>> {
        let Some(known) = self.progress.known(file, at) else { return Ok(None) };
        let is_whole = matches!(self.set.read_piece(known), Ok(PieceRead::Whole(_)));
        Ok(is_whole.then(|| known.to_owned()))
    }

    /// Checks and stores what the server sent. Returns its hash.
    fn take(&mut self, file: &str, at: u64, piece: BackupPiece, len: Option<u64>) -> Result<String> {
        let Some(bytes) = piece.bytes else {
            self.reused += 1;
            return Ok(piece.hash);
        };
        if len.is_some_and(|len| bytes.len() as u64 != len) || hash_of(&bytes) != piece.hash {
            bail!(
                "piece {at} of `{file}` did not arrive as it was sent; run the same command again to go on"
            );
        }
        self.set.write_piece(&piece.hash, &bytes).with_context(|| format!("store a piece of `{file}`"))?;
        self.progress.note(file, at, &piece.hash)?;
        self.fetched_bytes += bytes.len() as u64;
        Ok(piece.hash)
    }
}

fn report(args: &BackupArgs, point: &SavedPoint, fetch: &PointFetch<'_>) -> Result<()> {
    if args.output.json {
        return print_json(&json!({
            "complete": true,
            "point": point.point,
            "taken": point.taken,
            "position": point.position,
            "topics": point.topics.len(),
            "events": point.events(),
            "files": point.files.len(),
            "bytes": point.bytes(),
            "fetched_files": fetch.fetched_files,
            "fetched_bytes": fetch.fetched_bytes,
            "reused_pieces": fetch.reused,
        }));
    }
    if args.output.quiet {
        return Ok(());
    }
    print_line(&format!(
        "point {} of `{}` is complete: {} topic(s), {} event(s), {} in {} file(s), {} fetched",
        point.point,
        args.dir.display(),
        count_text(point.topics.len() as u64),
        count_text(point.events()),
        bytes_text(point.bytes()),
        count_text(point.files.len() as u64),
        bytes_text(fetch.fetched_bytes),
    ))?;
    Ok(())
}
