//! The state engine as the log uses it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use promethean_log::state::{Redo, StateError, StateSink};
use promethean_model::IgnorePoison;

use super::engine::Engine;
use super::error::OpenError;
use super::options::EmbeddedOptions;
use super::overlay::Overlay;
use super::redo;
use crate::state::keys::counter::{self, StateCounter};
use crate::state::{StateSpace, Writes, read};

/// Applies redo to the engine.
///
/// The engine is opened when the log first asks for its position: by then the log holds the lock of the directory and
/// has checked its format, so a directory that is refused stays untouched.
pub(super) struct Sink {
    path: PathBuf,
    options: EmbeddedOptions,
    engine: OnceLock<Engine>,
    /// Why the engine did not open; the log passes this on only as text.
    refusal: Mutex<Option<OpenError>>,
    overlay: Arc<Overlay>,
}

impl Sink {
    pub(super) fn new(path: PathBuf, options: EmbeddedOptions, overlay: Arc<Overlay>) -> Self {
        Self { path, options, engine: OnceLock::new(), refusal: Mutex::default(), overlay }
    }

    /// The engine, once the log has asked for it.
    pub(super) fn engine(&self) -> Option<&Engine> {
        self.engine.get()
    }

    pub(super) fn take_refusal(&self) -> Option<OpenError> {
        self.refusal.lock().ignore_poison().take()
    }

    fn opened(&self) -> Result<&Engine, StateError> {
        if let Some(engine) = self.engine.get() {
            return Ok(engine);
        }
        match Engine::open(&self.path, &self.options) {
            Ok(engine) => Ok(self.engine.get_or_init(|| engine)),
            Err(refusal) => {
                let text = refusal.to_string();
                *self.refusal.lock().ignore_poison() = Some(refusal);
                Err(text.into())
            }
        }
    }

    fn apply_all(&self, frames: &[Redo<'_>]) -> Result<(), StateError> {
        let Some(last) = frames.last() else { return Ok(()) };
        // Frames are merged first: one engine batch must not write a key twice.
        let mut writes = Writes::default();
        let mut ticket = 0;
        for frame in frames {
            ticket = redo::decode(frame.bytes, &mut writes)?;
        }
        writes.set(StateSpace::Meta, counter::key(StateCounter::AppliedLsn), Some(counter::value(last.lsn)));
        self.opened()?.write(writes)?;
        // After the write: a reader must find each key in the engine or in the overlay.
        self.overlay.applied(ticket);
        Ok(())
    }
}

impl StateSink for Sink {
    fn applied_lsn(&self) -> Result<u64, StateError> {
        Ok(read::counter(self.opened()?, StateCounter::AppliedLsn)?.unwrap_or(0))
    }

    fn apply(&self, frames: &[Redo<'_>]) -> Result<(), StateError> {
        self.apply_all(frames).inspect_err(|error| self.overlay.fail(&error.to_string()))
    }

    fn sync(&self) -> Result<(), StateError> {
        Ok(self.opened()?.sync()?)
    }
}
