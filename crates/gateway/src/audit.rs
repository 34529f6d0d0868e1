//! Audit records: who did what, as events of a topic.
//!
//! Records wait in a bounded queue and one task writes them, so that no client waits for them. A record that
//! finds no room is lost and counted; the next record says how many were lost.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use promethean_bus::limits::{Bucket, Rate};
use promethean_bus::publish::Publish;
use promethean_bus::{Bus, BusError, series};
use promethean_delivery::Subject;
use promethean_model::{Clock, TopicName};
use serde::{Serialize, Serializer};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::auth::{Access, Identity};

/// Records that wait to be written.
const QUEUE_MAX: usize = 4_096;
/// Records written at once.
const BATCH_MAX: usize = 500;

/// Takes audit records. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    topic: TopicName,
    queue: mpsc::Sender<AuditRecord>,
    /// Limits how fast refusals are recorded: a client can cause any number of them.
    refusals: Arc<Bucket>,
    clock: Arc<dyn Clock>,
    /// Records lost since the last one that was written.
    lost: Arc<AtomicU64>,
    metrics: Arc<AuditSeries>,
}

/// Writes the audit records to their topic.
#[derive(Debug)]
pub(crate) struct AuditWriter {
    bus: Bus,
    audit: Audit,
    records: mpsc::Receiver<AuditRecord>,
}

impl Audit {
    /// Creates the topic if it does not exist.
    pub(crate) async fn open(
        bus: &Bus,
        clock: Arc<dyn Clock>,
        topic: &TopicName,
    ) -> Result<(Self, AuditWriter), BusError> {
        bus.create_topic(topic).await?;
        let (queue, records) = mpsc::channel(QUEUE_MAX);
        let audit = Self {
            topic: topic.clone(),
            queue,
            refusals: Arc::new(Bucket::new(Rate::new(20, 1_000), clock.monotonic_ms())),
            clock,
            lost: Arc::default(),
            metrics: bus.metrics().registry().table(1).series(&[]),
        };
        Ok((audit.clone(), AuditWriter { bus: bus.clone(), audit, records }))
    }

    /// Takes a record, or counts it as lost.
    pub(crate) fn put(&self, record: AuditRecord) {
        let too_many = record.is_refusal() && self.refusals.take(1, self.clock.monotonic_ms()).is_err();
        if too_many || self.queue.try_send(record).is_err() {
            self.lose(1);
        }
    }

    fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
        self.metrics.lost.add(count);
    }

    /// Whether the audit topic allows an access, on top of the grants of the client: no client publishes to
    /// it, and only an admin changes it.
    pub(crate) fn lets(&self, identity: &Identity, access: &Access<'_>) -> bool {
        let is_ours =
            |topic: &TopicName| *topic == self.topic || topic.base().is_some_and(|base| base == self.topic);
        match access {
            Access::Publish(topic) => !is_ours(topic),
            Access::Manage(Subject::Topic(topic)) if is_ours(topic) => identity.may(&Access::Admin),
            _ => true,
        }
    }
}

impl AuditWriter {
    /// Writes records until the gateway stops and the queue is empty.
    pub(crate) async fn run(mut self, stopping: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            tokio::select! {
                biased;
                count = self.records.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
                () = stopping.cancelled() => return,
            }
            self.write(&mut batch).await;
        }
    }

    async fn write(&self, batch: &mut Vec<AuditRecord>) {
        let lost = self.audit.lost.swap(0, Ordering::Relaxed);
        if let Some(first) = batch.first_mut() {
            first.lost = lost;
        }
        let texts: Vec<String> = batch.drain(..).map(|record| record.json()).collect();
        let events = texts.iter().map(|text| Publish::new(self.audit.topic.clone(), text.as_str())).collect();
        let results = self.bus.publish_each(events).await;
        if let Some(error) = results.iter().find_map(|result| result.as_ref().err()) {
            let failed = results.iter().filter(|result| result.is_err()).count();
            warn!(%error, failed, "cannot write audit records");
            // The first record carried the count of lost ones, so that count is not written yet either.
            let first_failed = results.first().is_some_and(Result::is_err);
            self.audit.lost.fetch_add(if first_failed { lost } else { 0 }, Ordering::Relaxed);
            self.audit.lose(failed as u64);
        }
        self.audit.metrics.written.add(results.iter().filter(|result| result.is_ok()).count() as u64);
    }
}

series! {
    /// Counts of all audit records.
    struct AuditSeries [] {
        written: Counter = "audit_records_total", "Audit records written.";
        lost: Counter = "audit_records_lost_total", "Audit records lost.";
    }
}

/// One audit record. It never holds a token.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AuditRecord {
    /// The name of the identity, if the client has shown a valid token.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text")]
    pub(crate) who: Option<Arc<str>>,
    /// How that client is known: without this, a signed token could pass for a listed one of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) known: Option<&'static str>,
    /// The address of the client.
    pub(crate) from: IpAddr,
    /// `auth`, the id of an HTTP operation, or the op of a frame.
    pub(crate) what: &'static str,
    /// The topic, group or other thing that it was done to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) on: Option<String>,
    /// `ok`, or the code of the refusal.
    pub(crate) outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
    /// How many records before this one were lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) lost: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::ref_option, reason = "as serde wants it")]
fn text<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(serializer)
}

impl AuditRecord {
    pub(crate) fn new(from: IpAddr, what: &'static str, outcome: &'static str) -> Self {
        Self { who: None, known: None, from, what, on: None, outcome, request_id: None, lost: 0 }
    }

    /// As done by this client, if it is known.
    #[must_use]
    pub(crate) fn by(mut self, identity: Option<&Identity>) -> Self {
        self.who = identity.map(|identity| Arc::clone(&identity.name));
        self.known = identity.map(|identity| identity.kind.as_str());
        self
    }

    /// Whether it records a refusal.
    fn is_refusal(&self) -> bool {
        self.outcome != "ok"
    }

    fn json(&self) -> String {
        // A record has only fields that can be serialised.
        serde_json::to_string(self).unwrap_or_default()
    }
}
