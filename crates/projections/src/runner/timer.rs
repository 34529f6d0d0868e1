//! Programs that look at every document of a collection again and again.

use promethean_bus::BusError;
use promethean_bus::groups::Follower;
use promethean_bus::publish::Publish;
use promethean_jq::Caps;
use promethean_model::{EventId, GroupName};
use promethean_store::port::{Doc, Store};
use serde_json::Value;

use crate::change::{Change, Emit};
use crate::definition::Timer;
use crate::logic::{CHANGES_MAX, read_change};

/// Documents looked at at once: whatever else the projector is to do waits for so many runs of the program.
const PAGE: usize = 64;

/// A page of one run of a timer.
pub(crate) struct Run<'a> {
    pub(crate) timer: &'a Timer,
    pub(crate) projector: &'a GroupName,
    pub(crate) follower: &'a Follower,
    pub(crate) store: &'a dyn Store,
    pub(crate) now_ms: i64,
}

/// How a page went.
pub(crate) struct Looked {
    /// Its last document; `None` if there were none left.
    pub(crate) last: Option<String>,
    /// The first failure. A document at which the program fails does not stop the others.
    pub(crate) failed: Result<(), String>,
}

impl Run<'_> {
    /// Looks at the documents after a key, and publishes.
    pub(crate) async fn after(&self, key: Option<&str>) -> Looked {
        match self.store.docs_by_key(&self.timer.over, key, PAGE).await {
            Ok(docs) => {
                let failed = self.page(&docs).await;
                Looked { last: docs.into_iter().next_back().map(|last| last.key), failed }
            }
            Err(error) => Looked { last: None, failed: Err(error.to_string()) },
        }
    }

    async fn page(&self, docs: &[Doc]) -> Result<(), String> {
        let input = |doc: &Doc| {
            let key = Value::String(doc.key.clone());
            format!(r#"{{"now":{},"key":{key},"doc":{}}}"#, self.now_ms, doc.body)
        };
        let caps = Caps { outputs: CHANGES_MAX, ..Caps::default() };
        let outputs = self
            .timer
            .program
            .run_each(self.follower.jq_pool(), docs.iter().map(input).collect(), caps)
            .await;
        let (mut events, mut first) = (Vec::new(), Ok(()));
        for (doc, outputs) in docs.iter().zip(outputs) {
            let read =
                outputs.map_err(|error| error.to_string()).and_then(|outputs| self.read(doc, &outputs));
            match read {
                Ok(published) => events.extend(published),
                Err(reason) if first.is_ok() => first = Err(format!("at document `{}`: {reason}", doc.key)),
                Err(_) => {}
            }
        }
        for result in self.follower.publish_each(events).await {
            match result {
                Ok(_) | Err(BusError::KeyConflict { .. } | BusError::IdConflict { .. }) => {}
                Err(error) if first.is_ok() => first = Err(format!("what it publishes was refused: {error}")),
                Err(_) => {}
            }
        }
        first
    }

    fn read(&self, doc: &Doc, outputs: &[String]) -> Result<Vec<Publish<'static>>, String> {
        let mut events = Vec::with_capacity(outputs.len());
        for (n, output) in (0_u32..).zip(outputs) {
            let Change::Publish(emit) = read_change(output)? else {
                return Err("a timer may only publish; give {publish: ...}".to_owned());
            };
            events.push(self.event(doc, n, emit));
        }
        Ok(events)
    }

    /// Its id follows from the time of the run, so that a publish that is tried again adds nothing.
    fn event(&self, doc: &Doc, n: u32, emit: Emit) -> Publish<'static> {
        let mut name = self.projector.as_str().as_bytes().to_vec();
        name.push(0);
        name.extend_from_slice(doc.key.as_bytes());
        name.push(0);
        name.extend_from_slice(&self.now_ms.to_be_bytes());
        name.extend_from_slice(&n.to_be_bytes());
        let id = EventId::derive(b"timer", &name);
        emit.into_event(id)
    }
}
