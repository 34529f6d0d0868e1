//! Who did what, as events of a topic.
//!
//! Records wait in a queue with a bound and are written by one task, so that no client waits for them. What finds no
//! room is counted, and the next record says how many were lost.

mod record;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use promethean_bus::limits::{Bucket, Rate};
use promethean_bus::metrics::{Counter, Family, Kind, Reading, Series};
use promethean_bus::publish::Publish;
use promethean_bus::{Bus, BusError};
use promethean_delivery::Subject;
use promethean_model::{Clock, TopicName};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub(crate) use self::record::Record;
use crate::auth::{Access, Identity};

/// Records that wait to be written.
const QUEUE_MAX: usize = 4_096;
/// Records written at once.
const BATCH_MAX: usize = 500;

/// Takes records. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    topic: TopicName,
    queue: mpsc::Sender<Record>,
    /// Refusals are written no faster than this: a client can cause any number of them.
    refusals: Arc<Bucket>,
    clock: Arc<dyn Clock>,
    /// Since the last record.
    lost: Arc<AtomicU64>,
    metrics: Arc<AuditSeries>,
}

/// Writes records.
#[derive(Debug)]
pub(crate) struct Writer {
    bus: Bus,
    audit: Audit,
    records: mpsc::Receiver<Record>,
}

impl Audit {
    /// Takes records for the topic, which is made if it is not there.
    pub(crate) async fn open(
        bus: &Bus,
        clock: Arc<dyn Clock>,
        topic: &TopicName,
    ) -> Result<(Self, Writer), BusError> {
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
        Ok((audit.clone(), Writer { bus: bus.clone(), audit, records }))
    }

    /// Takes a record, or counts it as lost.
    pub(crate) fn put(&self, record: Record) {
        let too_many = record.is_refusal() && self.refusals.take(1, self.clock.monotonic_ms()).is_err();
        if too_many || self.queue.try_send(record).is_err() {
            self.lose(1);
        }
    }

    fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
        self.metrics.lost.add(count);
    }

    /// Whether the topic of records lets this happen, whatever the client is allowed: nobody publishes to it, and only
    /// who may everything changes it.
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

impl Writer {
    /// Writes what comes until the gateway stops, and then what is there.
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

    async fn write(&self, batch: &mut Vec<Record>) {
        let lost = self.audit.lost.swap(0, Ordering::Relaxed);
        if let Some(first) = batch.first_mut() {
            first.lost = lost;
        }
        let texts: Vec<String> = batch.drain(..).map(|record| record.json()).collect();
        let events = texts.iter().map(|text| Publish::new(self.audit.topic.clone(), text.as_str())).collect();
        let results = self.bus.publish_each(events).await;
        if let Some(error) = results.iter().find_map(|result| result.as_ref().err()) {
            let failed = results.iter().filter(|result| result.is_err()).count();
            warn!(%error, failed, "records of who did what could not be written");
            // Those that the first one told of are lost again with it.
            let first_failed = results.first().is_some_and(Result::is_err);
            self.audit.lost.fetch_add(if first_failed { lost } else { 0 }, Ordering::Relaxed);
            self.audit.lose(failed as u64);
        }
        self.audit.metrics.written.add(results.iter().filter(|result| result.is_ok()).count() as u64);
    }
}

#[derive(Debug, Default)]
struct AuditSeries {
    written: Counter,
    lost: Counter,
}

impl Series for AuditSeries {
    const LABELS: &'static [&'static str] = &[];
    const FAMILIES: &'static [Family] = &[
        Family { name: "audit_records_total", help: "Audit records written.", kind: Kind::Counter },
        Family { name: "audit_records_lost_total", help: "Audit records lost.", kind: Kind::Counter },
    ];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![Reading::Counter(self.written.get()), Reading::Counter(self.lost.get())]
    }
}
