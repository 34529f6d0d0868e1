//! `promethean export`: writes the events of a topic to a file, one on each line.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream::TryStreamExt;
use promethean_client::{Client, ExportRange};
use promethean_model::{Clock, Moment, SystemClock, TopicName};
use serde_json::json;

use super::position::TransferPosition;
use crate::commands::consume::UntypedEvent;
use crate::failure::FailureKind;
use crate::output::{OutputArgs, bytes_text, count_text};
use crate::session::{Interrupt, with_client};
use crate::target::TargetArgs;

/// The last millisecond of the year 9999: events of the future are exported too.
const TS_MAX: i64 = 253_402_300_799_999;
/// Bytes of events after which the file is synced and the position is kept.
const PART_BYTES: u64 = 8 << 20;
const WORD: &str = "exported";

/// The flags of `promethean export`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  promethean export orders.placed orders.ndjson.gz
  promethean export orders.placed orders.ndjson --since \"1d ago\" --resume")]
pub(crate) struct ExportArgs {
    /// The topic
    topic: TopicName,
    /// The file; `-`, or none, is standard output
    file: Option<PathBuf>,
    /// Compress; files whose names end in .gz are compressed anyway
    #[arg(long)]
    gzip: bool,
    /// Begin at this offset
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// Only events of this time and later, such as 2027-01-31T12:00:00Z or "1h ago"
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only events of this time and earlier
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Go on where the last export to this file ended; the position is kept in FILE.exported
    #[arg(long, requires = "file")]
    resume: bool,
    /// Replace the file if it exists
    #[arg(long, conflicts_with = "resume")]
    replace: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

impl ExportArgs {
    /// The path of the file; `None` for standard output.
    fn path(&self) -> Option<&Path> {
        self.file.as_deref().filter(|path| *path != Path::new("-"))
    }
}

pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode> {
    with_client(&args.target, async |client| export(args, client).await)
}

async fn export(args: &ExportArgs, client: &Client) -> Result<ExitCode> {
    let mut interrupt = Interrupt::new()?;
    let now = SystemClock::new().wall_ms();
    let time = |text: &Option<String>| text.as_deref().map(|text| Moment::parse(text, now)).transpose();
    let (since, until) = (time(&args.since)?, time(&args.until)?);
    let topic = client.admin().topic(args.topic.as_str()).await?;
    let known = match args.path().filter(|_| args.resume) {
        Some(path) => TransferPosition::read(path, WORD, args.topic.as_str())?,
        None => None,
    };
    let first = known.as_ref().map_or(args.offset, |known| known.next);
    let mut sink = ExportSink::open(args, known)?;
    let range = ExportRange {
        from_ts: since.map(Moment::ms),
        to_ts: Some(until.map_or(TS_MAX, Moment::ms)),
        from_offset: Some(first),
    };
    let bar = args.output.bar(Some(topic.end.saturating_sub(first.max(topic.earliest))));
    let mut events = client.reader().export(args.topic.as_str(), range);
    let mut is_interrupted = false;
    while sink.next < topic.end {
        let event: Option<UntypedEvent> = tokio::select! {
            event = events.try_next() => event?,
            () = interrupt.wait() => {
                is_interrupted = true;
                break;
            }
        };
        // Events that were published meanwhile belong to the next export.
        let Some(event) = event.filter(|event| event.offset < topic.end) else { break };
        sink.write(&event)?;
        bar.set_position(event.offset.saturating_sub(first.max(topic.earliest)) + 1);
    }
    bar.finish_and_clear();
    let next = if is_interrupted { sink.next } else { topic.end.max(first) };
    sink.finish(next)?;
    report(args, &sink, is_interrupted)
}

fn report(args: &ExportArgs, sink: &ExportSink, is_interrupted: bool) -> Result<ExitCode> {
    let ExportSink { events, next, .. } = *sink;
    if args.output.json && args.path().is_some() {
        crate::output::print_json(
            &json!({"events": events, "next": next, "bytes": sink.file_bytes()?, "interrupted": is_interrupted}),
        )?;
    } else {
        let place = args.path().map_or("standard output".to_owned(), |path| format!("`{}`", path.display()));
        let size = sink.file_bytes()?.map(|bytes| format!(" ({})", bytes_text(bytes))).unwrap_or_default();
        let more = match (is_interrupted, args.resume) {
            (true, true) => "; interrupted, the same command goes on",
            (true, false) => "; interrupted, the rest is missing",
            (false, _) => "",
        };
        args.output.note(&format!(
            "{} event(s) of `{}` are in {place}{size}{more}",
            count_text(events),
            args.topic
        ));
    }
    Ok(if is_interrupted { FailureKind::Interrupted.code() } else { ExitCode::SUCCESS })
}

/// The file or pipe that events are written to.
struct ExportSink {
    out: Option<ExportWriter>,
    path: Option<PathBuf>,
    keeps_position: bool,
    topic: String,
    is_compressed: bool,
    /// Bytes since the last position.
    part: u64,
    events: u64,
    /// The offset after the last event.
    next: u64,
}

enum ExportWriter {
    Plain(Box<dyn FileOrPipe>),
    Gzip(GzEncoder<Box<dyn FileOrPipe>>),
}

/// A place to write to; a file can be synced, and knows its size.
trait FileOrPipe: Write {
    fn sync(&mut self) -> io::Result<Option<u64>>;
}

impl FileOrPipe for BufWriter<File> {
    fn sync(&mut self) -> io::Result<Option<u64>> {
        self.flush()?;
        self.get_ref().sync_data()?;
        Ok(Some(self.get_ref().metadata()?.len()))
    }
}

impl FileOrPipe for BufWriter<io::Stdout> {
    fn sync(&mut self) -> io::Result<Option<u64>> {
        self.flush().map(|()| None)
    }
}

impl ExportSink {
    fn open(args: &ExportArgs, known: Option<TransferPosition>) -> Result<Self> {
        let path = args.path().map(Path::to_owned);
        let is_compressed =
            args.gzip || path.as_ref().is_some_and(|path| path.extension().is_some_and(|end| end == "gz"));
        let next = known.as_ref().map_or(args.offset, |known| known.next);
        let place: Box<dyn FileOrPipe> = match &path {
            Some(path) => {
                Box::new(BufWriter::with_capacity(256 << 10, open_file(args, path, known.as_ref())?))
            }
            None => {
                ensure!(
                    !(is_compressed && io::stdout().is_terminal()),
                    "compressed events cannot be shown; name a file"
                );
                Box::new(BufWriter::with_capacity(256 << 10, io::stdout()))
            }
        };
        let out = Some(writer(place, is_compressed));
        let topic = args.topic.to_string();
        Ok(Self { out, path, keeps_position: args.resume, topic, is_compressed, part: 0, events: 0, next })
    }

    fn write(&mut self, event: &UntypedEvent) -> Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        match &mut self.out {
            Some(ExportWriter::Plain(out)) => out.write_all(&line)?,
            Some(ExportWriter::Gzip(out)) => out.write_all(&line)?,
            None => bail!("the file is closed"),
        }
        self.part += line.len() as u64;
        self.events += 1;
        self.next = event.offset + 1;
        if self.keeps_position && self.part >= PART_BYTES {
            self.keep(self.next)?;
        }
        Ok(())
    }

    /// Ends the file; the next export begins at `next`.
    fn finish(&mut self, next: u64) -> Result<()> {
        self.next = next;
        self.keep(next)?;
        self.out = None;
        Ok(())
    }

    /// Syncs the file and keeps the position. A compressed file gets one member for each such part.
    fn keep(&mut self, next: u64) -> Result<()> {
        let mut place = match self.out.take() {
            Some(ExportWriter::Plain(out)) => out,
            Some(ExportWriter::Gzip(out)) => out.finish()?,
            None => return Ok(()),
        };
        let bytes = place.sync()?;
        self.part = 0;
        if let (Some(path), Some(bytes), true) = (&self.path, bytes, self.keeps_position) {
            TransferPosition { topic: self.topic.clone(), next, bytes }.write(path, WORD)?;
        }
        self.out = Some(writer(place, self.is_compressed));
        Ok(())
    }

    fn file_bytes(&self) -> Result<Option<u64>> {
        Ok(self.path.as_ref().map(std::fs::metadata).transpose()?.map(|file| file.len()))
    }
}

fn writer(place: Box<dyn FileOrPipe>, is_compressed: bool) -> ExportWriter {
    match is_compressed {
        true => ExportWriter::Gzip(GzEncoder::new(place, Compression::fast())),
        false => ExportWriter::Plain(place),
    }
}

/// Opens the file: a new one, or the known one, cut where its position is.
fn open_file(args: &ExportArgs, path: &Path, known: Option<&TransferPosition>) -> Result<File> {
    let what = || format!("cannot write `{}`", path.display());
    let mut options = File::options();
    options.write(true);
    if let Some(known) = known {
        let mut file = options.open(path).with_context(what)?;
        let length = file.metadata().with_context(what)?.len();
        ensure!(
            length >= known.bytes,
            "`{}` is shorter than its position says; remove `{0}.{WORD}` to begin anew",
            path.display()
        );
        file.set_len(known.bytes).and_then(|()| file.seek(SeekFrom::End(0))).with_context(what)?;
        return Ok(file);
    }
    let created = match args.replace {
        true => options.create(true).truncate(true).open(path),
        false => options.create_new(true).open(path),
    };
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("`{}` exists; name another file, or add --replace", path.display())
        }
        created => created.with_context(what),
    }
}
