//! Schemas that are being compiled: whoever needs one that somebody compiles already waits for that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_model::{IgnorePoison, TopicName};
use tokio::sync::watch;

use super::cache::Compiled;
use crate::error::BusError;

type Key = (TopicName, u32, String);
type Answer = Result<Arc<Compiled>, BusError>;

/// As large as there are schemas being compiled.
#[derive(Debug, Default)]
pub(super) struct Flights {
    under_way: Mutex<HashMap<Key, watch::Receiver<Option<Answer>>>>,
}

/// Whose it is to compile.
pub(super) enum Flight<'a> {
    /// Ours.
    Lead(Lead<'a>),
    /// Somebody else's.
    Follow(watch::Receiver<Option<Answer>>),
}

/// Until it is dropped, nobody else compiles the schema.
pub(super) struct Lead<'a> {
    flights: &'a Flights,
    key: Key,
    answer: watch::Sender<Option<Answer>>,
}

impl Flights {
    /// The number alone does not say which schema, see the cache.
    pub(super) fn join(&self, topic: &TopicName, version: u32, fingerprint: &str) -> Flight<'_> {
        let key = (topic.clone(), version, fingerprint.to_owned());
        let mut under_way = self.lock();
        if let Some(answer) = under_way.get(&key) {
            return Flight::Follow(answer.clone());
        }
        let (answer, follow) = watch::channel(None);
        under_way.insert(key.clone(), follow);
        Flight::Lead(Lead { flights: self, key, answer })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, watch::Receiver<Option<Answer>>>> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.under_way.lock().ignore_poison()
    }
}

impl Lead<'_> {
    /// Tells those who wait, a failure too: they would fail the same way, one after the other.
    pub(super) fn end(self, answer: Answer) {
        self.answer.send_replace(Some(answer));
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.key);
    }
}

/// What the leader found; `None` if it went away before.
pub(super) async fn followed(mut answer: watch::Receiver<Option<Answer>>) -> Option<Answer> {
    answer.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone())
}
