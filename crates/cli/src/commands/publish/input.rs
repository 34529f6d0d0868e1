//! The lines to publish: one payload several times, or the lines of a file or of standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use tokio::sync::mpsc;

use super::PubArgs;

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Bytes of one batch, after which it is sent although more lines would fit.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of one line, at most; a payload has at most 1 MiB.
const LINE_BYTES_MAX: u64 = 8 << 20;
/// Batches that are read ahead.
const AHEAD: usize = 4;

/// One line with its number, from 1.
#[derive(Debug)]
pub(in crate::commands) struct InputLine {
    pub(in crate::commands) number: u64,
    pub(in crate::commands) text: String,
}

/// Where lines come from.
pub(in crate::commands) enum PayloadInput {
    /// The argument, which is published several times.
    Repeated {
        /// How often it was given.
        given: u64,
        /// How often it is wanted.
        count: u64,
        /// The argument.
        text: String,
    },
    /// Batches of lines that a thread reads.
    Read(mpsc::Receiver<Result<Vec<InputLine>>>),
}

impl PayloadInput {
    pub(in crate::commands) fn open(args: &PubArgs) -> Result<Self> {
        if let Some(text) = &args.payload {
            return Ok(Self::Repeated { given: 0, count: args.count, text: text.clone() });
        }
        let max = super::batch_size(args);
        let reader: Box<dyn Read + Send> = match args.file.as_deref().filter(|path| *path != Path::new("-")) {
            Some(path) => {
                Box::new(File::open(path).with_context(|| format!("cannot read `{}`", path.display()))?)
            }
            None => {
                if io::stdin().is_terminal() {
                    args.output.note("reading payloads from the terminal, one on each line; Ctrl-D ends");
                }
                Box::new(io::stdin())
            }
        };
        Self::read(reader, max)
    }

    /// The lines of a reader, which a thread reads ahead.
    pub(in crate::commands) fn read(reader: Box<dyn Read + Send>, max: usize) -> Result<Self> {
        let (batches, receiver) = mpsc::channel(AHEAD);
        let thread = std::thread::Builder::new().name("input".to_owned());
        thread.spawn(move || read_batches(reader, max, &batches)).context("start a thread")?;
        Ok(Self::Read(receiver))
    }

    /// The next lines, at most `max`; `None` at the end.
    pub(in crate::commands) async fn next(&mut self, max: usize) -> Result<Option<Vec<InputLine>>> {
        match self {
            Self::Read(batches) => batches.recv().await.transpose(),
            Self::Repeated { given, count, text } => {
                let first = *given;
                *given = count.saturating_sub(first).min(max as u64).saturating_add(first);
                let lines = (first..*given).map(|at| InputLine { number: at + 1, text: text.clone() });
                Ok(Some(lines.collect::<Vec<_>>()).filter(|lines| !lines.is_empty()))
            }
        }
    }
}

/// Reads lines until the end. A batch is given away when it is full, or when reading on would wait.
fn read_batches(reader: Box<dyn Read + Send>, max: usize, batches: &mpsc::Sender<Result<Vec<InputLine>>>) {
    let mut reader = BufReader::with_capacity(READ_BYTES, reader);
    let (mut batch, mut bytes, mut number) = (Vec::new(), 0, 0);
    loop {
        let line = read_line(&mut reader);
        number += 1;
        let is_over = match line {
            Ok(None) => true,
            Ok(Some(text)) => {
                if !text.trim().is_empty() {
                    bytes += text.len();
                    batch.push(InputLine { number, text });
                }
                false
            }
            Err(error) => {
                // The receiver is gone only if the command ends.
                let _ = batches.blocking_send(Err(error.context(format!("line {number} of the input"))));
                return;
            }
        };
        let is_full = batch.len() >= max || bytes >= BATCH_BYTES;
        if !batch.is_empty() && (is_over || is_full || reader.buffer().is_empty()) {
            bytes = 0;
            if batches.blocking_send(Ok(std::mem::take(&mut batch))).is_err() {
                return;
            }
        }
        if is_over {
            return;
        }
    }
}

/// One line without its end; `None` at the end of the input.
fn read_line(reader: &mut impl BufRead) -> Result<Option<String>> {
    let mut line = Vec::new();
    let read = reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).context("cannot read the input")?;
    if read == 0 {
        return Ok(None);
    }
    if line.pop_if(|byte| *byte == b'\n').is_none() && read as u64 == LINE_BYTES_MAX {
        return Err(anyhow!("the line has more than 8 MiB; a payload has at most 1 MiB"));
    }
    let _ = line.pop_if(|byte| *byte == b'\r');
    String::from_utf8(line).map(Some).map_err(|_| anyhow!("the line is not UTF-8 text"))
}
