//! A log on a fault disk, with a ledger of all that its users know.

use std::sync::{Arc, Mutex};

use promethean_log::state::StateSink;
use promethean_log::{
    AppendError, Log, LogBatch, LogNotice, LogOpenError, LogOptions, LogRepair, LogRepairReport, NewEvent,
    NewId, NoObserver, Observer, OpenArgs, ReadLimit, RecoveryReport, RepairSettings, Topic,
};
use promethean_model::{Durability, EventId, TopicName};
use promethean_testkit::{FaultDisk, FaultState, ManualClock};

/// Small sizes, so that a few hundred events cause many rolls, checkpoints and merges.
pub(super) fn small() -> LogOptions {
    LogOptions {
        journal_file_bytes: 8 * 1024,
        checkpoint_bytes: 16 * 1024,
        segment_bytes: 4 * 1024,
        tail_bytes: 2 * 1024,
        index_bytes: 64 * 1024,
        open_files: 8,
        reserve_bytes: 0,
        reserve_files: 0,
        compaction_bytes_min: 1024,
        compaction_age_ms: 2000,
        threads: false,
        ..LogOptions::default()
    }
}

pub(super) struct World {
    pub(super) disk: FaultDisk,
    pub(super) state: Arc<FaultState>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) options: LogOptions,
}

impl World {
    pub(super) fn new() -> World {
        World::with(small())
    }

    pub(super) fn with(options: LogOptions) -> World {
        World {
            disk: FaultDisk::new(),
            state: Arc::new(FaultState::new()),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            options,
        }
    }

    pub(super) fn args(&self) -> OpenArgs {
        OpenArgs {
            disk: Arc::new(self.disk.clone()),
            clock: Arc::clone(&self.clock) as _,
            state: Arc::clone(&self.state) as _,
            observer: Arc::new(NoObserver),
            options: self.options.clone(),
        }
    }

    pub(super) fn try_open(&self) -> Result<(Log, RecoveryReport), LogOpenError> {
        Log::open(self.args()).inspect(|(log, _)| log.holds().settle())
    }

    pub(super) fn open(&self) -> Log {
        self.try_open().unwrap().0
    }

    /// A world with a copy of the files and of the state, as a killed process leaves them.
    pub(super) fn copy(&self) -> World {
        World {
            disk: self.disk.kill(),
            state: Arc::new(self.state.kill()),
            clock: Arc::clone(&self.clock),
            options: self.options.clone(),
        }
    }

    pub(super) fn repair(&self, dry_run: bool) -> LogRepairReport {
        let repair = LogRepair::begin(Arc::new(self.disk.clone())).unwrap();
        let applied_lsn = self.state.applied_lsn().unwrap();
        repair.run(RepairSettings { applied_lsn, dry_run, now_ms: 1_700_000_000_000 }).unwrap()
    }
}

pub(super) fn name(text: &str) -> TopicName {
    text.parse().unwrap()
}

pub(super) fn id(number: u64) -> EventId {
    EventId::derive(b"test", &number.to_le_bytes())
}

pub(super) fn event<'a>(number: u64, key: Option<&'a str>, payload: &'a str) -> NewEvent<'a> {
    NewEvent {
        id: NewId::Given(id(number)),
        ts: None,
        key: key.map(str::as_bytes),
        meta: b"",
        payload: payload.as_bytes(),
        tombstone: payload == "null",
    }
}

pub(super) fn append(log: &Log, topic: &str, event: NewEvent<'_>) -> Result<u64, AppendError> {
    let topic = log.topic_or_create(&name(topic))?;
    let mut batch = LogBatch::new();
    batch.push(&topic, event)?;
    Ok(log.append(batch, Durability::Fsync)?.events[0].offset)
}

/// The payloads of a topic from an offset on.
pub(super) fn payloads(log: &Log, topic: &str, from: u64) -> Vec<(u64, String)> {
    let Some(topic) = log.topic(&name(topic)) else { return Vec::new() };
    let mut found = Vec::new();
    let mut next = from;
    loop {
        let page = log.read(&topic, next, ReadLimit { events: 7, bytes: 100_000 }).unwrap();
        found
            .extend(page.iter().map(|view| (view.offset, String::from_utf8(view.payload.to_vec()).unwrap())));
        if page.next == next {
            return found;
        }
        next = page.next;
    }
}

/// Hears the notices of a log.
#[derive(Default)]
pub(super) struct Notices(Mutex<Vec<LogNotice>>);

impl Observer for Notices {
    fn durable_end_moved(&self, _: &Topic, _: u64) {}

    fn notice(&self, notice: LogNotice) {
        self.0.lock().unwrap().push(notice);
    }
}

impl Notices {
    /// The notices that were not taken yet.
    pub(super) fn peek(&self) -> Vec<LogNotice> {
        self.0.lock().unwrap().clone()
    }

    pub(super) fn take(&self) -> Vec<LogNotice> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

pub(super) fn open_heard(world: &World) -> (Log, Arc<Notices>) {
    let notices = Arc::new(Notices::default());
    let args = OpenArgs { observer: Arc::clone(&notices) as _, ..world.args() };
    let log = Log::open(args).unwrap().0;
    log.holds().settle();
    (log, notices)
}
