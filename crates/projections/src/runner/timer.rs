//! The timer of a projector: a program that looks at every document of a collection again and again, and may
//! publish.
//!
//! A run goes page by page, so that events and commands are dealt with in between.

use std::collections::BTreeSet;

use promethean_bus::BusError;
use promethean_bus::groups::Follower;
use promethean_bus::publish::Publish;
use promethean_jq::Caps;
use promethean_model::{EventId, GroupName, TopicName};
use promethean_store::port::{Doc, Store};
use serde_json::Value;
use tokio::time::Instant;
use tracing::warn;

use super::{Interruption, ProjectorRunner, stopped};
use crate::change::{Change, Emit};
use crate::definition::{Timer, check_target};
use crate::logic::{CHANGES_MAX, read_change};
use crate::status::Activity;

/// Documents of a page: the events of the projector wait for so many runs of the program.
const PAGE: usize = 64;

/// A run of the timer over all documents.
pub(super) struct TimerRun {
    /// When the run began: the same for all documents.
    now_ms: i64,
    /// The key of the last document that was looked at.
    after: Option<String>,
    /// The first failure. A document at which the program fails does not stop the run.
    failed: Option<String>,
}

impl ProjectorRunner {
    /// Looks at the next page of documents, if the timer is due. Returns whether there is more to do.
    pub(super) async fn timer_step(&mut self, due: &mut Option<Instant>) -> Result<bool, Interruption> {
        let Some(timer) = &self.projector.timer else { return Ok(false) };
        let mut run = match self.timer_run.take() {
            Some(run) => run,
            None if due.is_some_and(|due| due <= Instant::now()) => {
                TimerRun { now_ms: self.context.clock.wall_ms(), after: None, failed: None }
            }
            None => return Ok(false),
        };
        let page = TimerPage {
            timer,
            projector: &self.projector.name,
            follower: &self.follower,
            store: &*self.context.store,
            now_ms: run.now_ms,
            reserved: &self.context.reserved,
        };
        let (last, failed) = tokio::select! {
            looked_at = page.look_after(run.after.as_deref()) => looked_at,
            // The next run publishes what this one has not.
            () = stopped(&mut self.stopping) => return Err(Interruption::Stop),
        };
        run.failed = run.failed.or(failed);
        if last.is_some() {
            run.after = last;
            self.timer_run = Some(run);
            return Ok(true);
        }
        *due = Some(Instant::now() + timer.every);
        self.status.change(|status| status.timer_runs += 1);
        if let Some(reason) = run.failed {
            let reason = format!("the timer failed {reason}");
            warn!(projector = %self.projector.name, %reason, "timer failed");
            self.status.change(|status| status.failures += 1);
            self.show_activity(Activity::Running, Some(reason));
        }
        Ok(false)
    }
}

/// One page of a run.
struct TimerPage<'a> {
    timer: &'a Timer,
    projector: &'a GroupName,
    follower: &'a Follower,
    store: &'a dyn Store,
    now_ms: i64,
    /// Topics that the program may not publish to.
    reserved: &'a BTreeSet<TopicName>,
}

impl TimerPage<'_> {
    /// Runs the program on the documents after a key, and publishes. Returns the key of the last document,
    /// `None` if there are none left, and the first failure.
    async fn look_after(&self, key: Option<&str>) -> (Option<String>, Option<String>) {
        match self.store.docs_by_key(&self.timer.over, key, PAGE).await {
            Ok(docs) => {
                let failed = self.publish_for(&docs).await.err();
                (docs.into_iter().next_back().map(|last| last.key), failed)
            }
            Err(error) => (None, Some(format!("to read documents: {error}"))),
        }
    }

    async fn publish_for(&self, docs: &[Doc]) -> Result<(), String> {
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
                Err(reason) => first = first.and(Err(format!("at document `{}`: {reason}", doc.key))),
            }
        }
        for result in self.follower.publish_each(events).await {
            match result {
                Ok(_) | Err(BusError::KeyConflict { .. } | BusError::IdConflict { .. }) => {}
                Err(error) => first = first.and(Err(format!("to publish: {error}"))),
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
            check_target(&emit.topic, self.reserved)?;
            events.push(self.event(doc, n, emit));
        }
        Ok(events)
    }

    /// Makes the `n`th event for a document. Its id follows from the time of the run, so that a publish that
    /// is tried again adds nothing.
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
