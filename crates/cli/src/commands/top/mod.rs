//! `promethean top`: the groups and topics of a server, live in the terminal.

mod sample;
mod screen;
mod state;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use promethean_client::Client;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use self::sample::TopSample;
use self::state::{TopAction, TopState};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::stdout_is_terminal;
use crate::session::{Interrupt, with_client};
use crate::target::TargetArgs;

/// How long the thread that reads keys waits before it looks whether the command has ended.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Keys that wait to be handled, at most.
const KEYS_MAX: usize = 64;

/// The flags of `promethean top`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  promethean top
  promethean top --every 5 --context prod

Keys: Tab shows groups or topics, s sorts by the next column, r turns the
order round, / filters by name, arrows and page keys scroll, p pauses, q ends.")]
pub(crate) struct TopArgs {
    /// Ask the server again after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    #[command(flatten)]
    target: TargetArgs,
}

pub(crate) fn run(args: &TopArgs) -> Result<ExitCode> {
    if !stdout_is_terminal() {
        let message = "`top` needs a terminal; `promethean ops --json` prints the same once";
        return Err(CommandFailure::new(FailureKind::Usage, message).into());
    }
    with_client(&args.target, async |client| {
        let first = TopSample::take(client).await?;
        let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
        let watched = watch(args, client, first, &mut terminal).await;
        ratatui::try_restore().context("cannot restore the terminal")?;
        watched
    })
}

async fn watch(
    args: &TopArgs,
    client: &Client,
    first: TopSample,
    terminal: &mut DefaultTerminal,
) -> Result<ExitCode> {
    let mut interrupt = Interrupt::new()?;
    let mut keys = KeyReader::start()?;
    let mut state = TopState::new(client.address().to_string());
    state.take(first);
    let mut tick = tokio::time::interval(Duration::from_secs(args.every));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    loop {
        terminal.draw(|frame| screen::draw(frame, &state)).context("cannot draw")?;
        tokio::select! {
            _ = tick.tick() => {
                if !state.is_paused() {
                    match TopSample::take(client).await {
                        Ok(sample) => state.take(sample),
                        Err(error) => state.failed(&error),
                    }
                }
            }
            key = keys.next() => match key {
                Some(Some(key)) if state.press(key) == TopAction::Quit => return Ok(ExitCode::SUCCESS),
                // A key that changes the state, or another size of the terminal: draw again.
                Some(_) => {}
                None => return Ok(ExitCode::SUCCESS),
            },
            () = interrupt.wait() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Reads keys on a thread of its own, because reading blocks.
struct KeyReader {
    keys: mpsc::Receiver<Option<KeyEvent>>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl KeyReader {
    fn start() -> Result<Self> {
        let (sender, keys) = mpsc::channel(KEYS_MAX);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("keys".to_owned());
        let thread = thread.spawn(move || read_keys(&sender, &over)).context("start a thread")?;
        Ok(Self { keys, is_over, thread: Some(thread) })
    }

    /// The next key; `Some(None)` if only the size of the terminal changed, `None` if the terminal is gone.
    async fn next(&mut self) -> Option<Option<KeyEvent>> {
        self.keys.recv().await
    }
}

impl Drop for KeyReader {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.keys.close();
        if let Some(thread) = self.thread.take() {
            // The thread only reads keys; a panic there was printed.
            let _ = thread.join();
        }
    }
}

fn read_keys(sender: &mpsc::Sender<Option<KeyEvent>>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let read = match event::poll(KEY_WAIT) {
            Ok(true) => event::read(),
            Ok(false) => continue,
            Err(_) => return,
        };
        let sent = match read {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => sender.blocking_send(Some(key)),
            Ok(Event::Resize(..)) => sender.blocking_send(None),
            Ok(_) => continue,
            Err(_) => return,
        };
        if sent.is_err() {
            return;
        }
    }
}
