//! Recovery: opens a data directory in the order manifest, segments, journal, state.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};

use crate::backup;
use crate::checkpoint::Upkeep;
use crate::commit::JournalCommitter;
use crate::core::{Catalog, Counters, LogCore, LogProgress, ManifestState, Signals};
use crate::error::{LogDamage, LogOpenError, open_io};
use crate::files::Files;
use crate::holds::Holds;
use crate::index::{self, EntryKind, EventIndex};
use crate::journal;
use crate::journal::reader::{JournalStart, read_journal};
use crate::journal::writer::{JournalFiles, JournalWriter};
use crate::log::OpenArgs;
use crate::log_clock::{LogClock, NEAR_MS};
use crate::manifest::{self, Edit, Manifest, ManifestSnapshot};
use crate::notice::LogNotice;
use crate::planted::{self, Bug};
use crate::poison::{Poison, lock};
use crate::room::RoomSignal;
use crate::segment::{self, SegmentId};
use crate::sequencer::LogSequencer;
use crate::space::Space;
use crate::state::Redo;
use crate::topic::{Segment, Topic, TopicState};

const FORMAT_PATH: &str = "FORMAT";
const FORMAT: &str = "promethean-data 1";
const FOLDERS: [&str; 4] = [journal::DIR, segment::DIR, index::DIR, "quarantine"];

/// What an open found and repaired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Frames redone from the journal.
    pub frames: u64,
    /// Events redone from the journal.
    pub events: u64,
    /// Bytes of the torn tail, which was dropped.
    pub torn_bytes: u64,
    /// Damage that was found and did not stop the open.
    pub damage: Vec<LogDamage>,
    /// Why the index was rebuilt from the segments, if it was.
    pub index_rebuilt: Option<String>,
}

/// Opens or creates the log in the directory.
pub(crate) fn open(args: OpenArgs) -> Result<(LogCore, RecoveryReport), LogOpenError> {
    let disk = Arc::clone(&args.disk);
    prepare_folders(&disk)?;
    backup::remove_staged(&*disk).map_err(open_io("empty", backup::DIR))?;
    let (manifest, snapshot) = open_manifest(&disk)?;
    let mut report = RecoveryReport::default();
    let (index, unusable) = open_index(&disk, &snapshot, &mut report)?;
    let core = build(args, index, manifest, &snapshot);
    core.replay(&snapshot, &mut report)?;
    if !unusable.is_empty() {
        let rebuilt = core.replace_runs(&unusable);
        rebuilt.map_err(|error| LogOpenError::State(format!("rebuilding the index failed: {error}")))?;
    }
    report.damage.extend(lock(&core.damage).iter().cloned());
    core.look_at_space();
    core.tell_shortages();
    core.tell_of_stamps_ahead();
    Ok((core, report))
}

/// Opens the runs that are whole. Returns also the runs that must be replaced. Ghosts cannot be rebuilt:
/// without them a repeated id of a removed event counts as a new one.
fn open_index(
    disk: &Arc<dyn crate::disk::Disk>,
    snapshot: &ManifestSnapshot,
    report: &mut RecoveryReport,
) -> Result<(EventIndex, Vec<u64>), LogOpenError> {
    let kinds =
        snapshot.runs.values().filter_map(|run| EntryKind::from_byte(run.kind).map(|kind| (run, kind)));
    let mut named: Vec<(u64, EntryKind, u8)> =
        kinds.map(|(run, kind)| (run.number, kind, run.level)).collect();
    let mut unusable = Vec::new();
    loop {
        let opened = if unusable.is_empty() {
            EventIndex::open(Arc::clone(disk), &named, snapshot.next_run)
        } else {
            EventIndex::open_to_rebuild(Arc::clone(disk), &named, snapshot.next_run)
        };
        let (number, error) = match opened {
            Ok(index) => return Ok((index, unusable)),
            Err(failed) => failed,
        };
        let is_ghost = named.iter().any(|(of, kind, _)| *of == number && *kind == EntryKind::Ghost);
        let before = named.len();
        named.retain(|(of, kind, _)| {
            let keep = if is_ghost { *of != number } else { *kind == EntryKind::Ghost };
            if !keep {
                unusable.push(*of);
            }
            keep
        });
        if named.len() == before {
            return Err(LogOpenError::State(format!("opening the index failed: {error}")));
        }
        report.index_rebuilt.get_or_insert_with(|| error.to_string());
    }
}

/// Refuses a directory of another format.
pub(crate) fn check_format(disk: &Arc<dyn crate::disk::Disk>) -> Result<(), LogOpenError> {
    let file = disk.open(FORMAT_PATH).map_err(open_io("open", FORMAT_PATH))?;
    let len = file.len().map_err(open_io("stat", FORMAT_PATH))?;
    let bytes = file.read_vec_at(0, len.min(256) as usize).map_err(open_io("read", FORMAT_PATH))?;
    let found = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    if found == FORMAT { Ok(()) } else { Err(LogOpenError::Format { found, expected: FORMAT }) }
}

fn prepare_folders(disk: &Arc<dyn crate::disk::Disk>) -> Result<(), LogOpenError> {
    match check_format(disk) {
        Ok(()) => {}
        Err(LogOpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            for folder in FOLDERS {
                disk.make_dir(folder).map_err(open_io("create", folder))?;
            }
            disk.sync_dir("").map_err(open_io("sync", "."))?;
            write_format(disk).map_err(open_io("write", FORMAT_PATH))?;
        }
        Err(error) => return Err(error),
    }
    for folder in FOLDERS {
        disk.make_dir(folder).map_err(open_io("create", folder))?;
        // A name that a killed process left may be only in the page cache; it must be durable before anything
        // relies on it.
        disk.sync_dir(folder).map_err(open_io("sync", folder))?;
    }
    disk.sync_dir("").map_err(open_io("sync", "."))
}

fn write_format(disk: &Arc<dyn crate::disk::Disk>) -> io::Result<()> {
    const TMP: &str = "FORMAT.tmp";
    match disk.remove(TMP) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(TMP)?;
    crate::file_io::write_all_at(&*file, format!("{FORMAT}\n").as_bytes(), 0)?;
    file.sync()?;
    disk.rename(TMP, FORMAT_PATH)?;
    disk.sync_dir("")
}

fn open_manifest(disk: &Arc<dyn crate::disk::Disk>) -> Result<(Manifest, ManifestSnapshot), LogOpenError> {
    if let Some(found) = Manifest::open(disk)? {
        return Ok(found);
    }
    for folder in [journal::DIR, segment::DIR] {
        let names = disk.list(folder).map_err(open_io("list", folder))?;
        if !names.is_empty() {
            return Err(LogOpenError::CorruptRange(LogDamage {
                topic: None,
                file: "manifest".to_owned(),
                from_byte: 0,
                to_byte: 0,
                from_offset: 0,
                to_offset: 0,
                what: "the manifest is missing and there is data",
            }));
        }
    }
    let edit = Edit { next_run: 1, ..Edit::default() };
    let written = Manifest::write_new(disk, 1, &edit).map_err(|failed| failed.error);
    let manifest = written.map_err(open_io("write", "manifest"))?;
    let mut snapshot = ManifestSnapshot::default();
    snapshot.apply(edit);
    Ok((manifest, snapshot))
}

/// Describes a manifest that lost its last edits, if this is one: it names a segment that is missing, and there are
/// segments of the same topic that it does not name. Files are removed only after the edit that drops them is
/// durable, so a crash does not leave a directory like this, and the unnamed files must not be removed.
fn outdated(snapshot: &ManifestSnapshot, named: &HashSet<SegmentId>, files: &[String]) -> Option<LogDamage> {
    let there: HashSet<SegmentId> = files
        .iter()
        .filter(|name| name.ends_with(".seg"))
        .filter_map(|name| SegmentId::from_name(name))
        .collect();
    let unnamed: HashSet<u32> = there.difference(named).map(|id| id.topic).collect();
    let lost = named.iter().find(|id| !there.contains(id) && unnamed.contains(&id.topic))?;
    let topic = snapshot.topics.get(&lost.topic);
    Some(LogDamage {
        topic: topic.map(|topic| topic.name.to_string()),
        file: manifest::PATH.to_owned(),
        from_byte: 0,
        to_byte: 0,
        from_offset: lost.base,
        to_offset: snapshot.segments.get(&(lost.topic, lost.base)).map_or(lost.base, |meta| meta.end),
        what: "the manifest names a segment that is gone, and lacks segments that are there",
    })
}

fn build(args: OpenArgs, index: EventIndex, manifest: Manifest, snapshot: &ManifestSnapshot) -> LogCore {
    let OpenArgs { disk, clock, state, observer, options } = args;
    let lsn = snapshot.checkpoint_lsn;
    let counters = Counters { opened_ms: AtomicU64::new(clock.monotonic_ms()), ..Counters::default() };
    let live = Arc::clone(&counters.journal_live);
    let writer =
        JournalWriter::new(Arc::clone(&disk), options.journal_file_bytes, JournalFiles::default(), live);
    let newest = snapshot.segments.values().map(|segment| segment.last_append).max();
    LogCore {
        times: LogClock::new(Arc::clone(&clock), newest),
        files: Files::new(Arc::clone(&disk), options.open_files),
        index,
        merging: Mutex::default(),
        upkeep: Mutex::new(Upkeep::default()),
        committer: Mutex::new(JournalCommitter::new(writer, lsn)),
        manifest: Mutex::new(ManifestState {
            manifest,
            checkpoint_lsn: lsn,
            journal_sequence: snapshot.journal_sequence,
            state_lsn: snapshot.state_lsn,
            next_run: snapshot.next_run,
            next_topic: snapshot.next_topic,
        }),
        sequencer: Mutex::new(LogSequencer { next_lsn: lsn + 1, group_number: 1, ..LogSequencer::default() }),
        work: Condvar::new(),
        room: RoomSignal::default(),
        progress: Mutex::new(LogProgress::default()),
        progressed: Condvar::new(),
        catalog: RwLock::new(catalog_of(snapshot)),
        poison: Poison::default(),
        space: Space::default(),
        tail_bytes: AtomicU64::new(0),
        tail_due: AtomicU64::new(options.tail_bytes),
        index_bytes: AtomicU64::new(0),
        journal_bytes: AtomicU64::new(0),
        damage: Mutex::default(),
        holds: Holds::new(),
        backup_staged: AtomicBool::new(false),
        signals: Signals::default(),
        counters,
        disk,
        clock,
        state,
        observer,
        options,
    }
}

fn catalog_of(snapshot: &ManifestSnapshot) -> Catalog {
    let mut segments: HashMap<u32, Vec<Segment>> = HashMap::new();
    for meta in snapshot.segments.values() {
        segments.entry(meta.id.topic).or_default().push(Segment::new(*meta, meta.bytes));
    }
    let mut catalog = Catalog { next_id: snapshot.next_topic, ..Catalog::default() };
    for item in snapshot.topics.values() {
        let reuse = u64::from(planted::is(Bug::ReuseOffset) && item.next_offset > 0);
        let mut segments = segments.remove(&item.id).unwrap_or_default();
        // After a hole that stands for lost events, and after a compacted segment, new events go to a new
        // segment.
        if let Some(last) = segments.last_mut() {
            last.sealed = last.meta.end != item.next_offset || last.meta.id.generation > 0;
        }
        let state = TopicState {
            next_offset: item.next_offset - reuse,
            earliest: item.earliest,
            last_stamp: item.last_stamp,
            segments,
            ..TopicState::default()
        };
        catalog.insert(Topic::new(item.id, item.name.clone(), true, state));
    }
    catalog
}

impl LogCore {
    /// Tells the observer of topics whose stamps the clock has not reached.
    fn tell_of_stamps_ahead(&self) {
        let now = self.times.read().stamp;
        let ahead =
            |topic: &Topic| Some(topic.state().last_stamp.saturating_sub(now)).filter(|by| *by > NEAR_MS);
        let ahead: Vec<i64> = self.read_catalog(|catalog| catalog.by_id.values().filter_map(ahead).collect());
        if let Some(by_ms) = ahead.iter().max() {
            self.observer.notice(LogNotice::StampsAhead { topics: ahead.len(), by_ms: *by_ms });
        }
    }

    /// Removes files that the manifest does not name: a crash interrupted the work that wrote them, and the
    /// journal repeats it.
    fn remove_leftovers(&self, snapshot: &ManifestSnapshot) -> Result<(), LogOpenError> {
        let kept: HashSet<SegmentId> = snapshot.segments.values().map(|meta| meta.id).collect();
        let names = self.disk.list(segment::DIR).map_err(open_io("list", segment::DIR))?;
        if let Some(lost) = outdated(snapshot, &kept, &names) {
            return Err(LogOpenError::CorruptRange(lost));
        }
        for name in names {
            if SegmentId::from_name(&name).is_some_and(|id| !kept.contains(&id)) {
                let path = format!("{}/{name}", segment::DIR);
                self.disk.remove(&path).map_err(open_io("remove", &path))?;
            }
        }
        for name in self.disk.list(index::DIR).map_err(open_io("list", index::DIR))? {
            if index::run_number(&name).is_some_and(|number| !snapshot.runs.contains_key(&number)) {
                let path = format!("{}/{name}", index::DIR);
                self.disk.remove(&path).map_err(open_io("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Cuts each topic's last segment to the length in the manifest.
    fn cut_segments(&self, snapshot: &ManifestSnapshot) -> Result<(), LogOpenError> {
        let mut last = HashMap::new();
        for meta in snapshot.segments.values() {
            last.insert(meta.id.topic, *meta);
        }
        for meta in last.into_values() {
            let Some(topic) = snapshot.topics.get(&meta.id.topic) else { continue };
            let whole = self.cut_segment(meta.id, meta.bytes).map_err(open_io("cut", &meta.id.path()))?;
            if !whole {
                self.note_damage(&LogDamage {
                    topic: Some(topic.name.to_string()),
                    file: meta.id.path(),
                    from_byte: 0,
                    to_byte: meta.bytes,
                    from_offset: meta.id.base,
                    to_offset: meta.end,
                    what: "the file is missing or shorter than it was",
                });
            }
        }
        Ok(())
    }

    /// Removes what the journal will repeat, once. It is called as late as possible: if the journal is
    /// damaged, the records that were written to segments before the crash are still there.
    fn clear_once(&self, snapshot: &ManifestSnapshot, cleared: &mut bool) -> Result<(), LogOpenError> {
        if !std::mem::replace(cleared, true) {
            self.remove_leftovers(snapshot)?;
            self.cut_segments(snapshot)?;
        }
        Ok(())
    }

    fn replay(&self, snapshot: &ManifestSnapshot, report: &mut RecoveryReport) -> Result<(), LogOpenError> {
        let applied = self.state.applied_lsn().map_err(|error| LogOpenError::State(error.to_string()))?;
        if applied < snapshot.state_lsn {
            return Err(LogOpenError::StateBehind { applied, needed: snapshot.state_lsn });
        }
        let start = JournalStart {
            checkpoint_lsn: snapshot.checkpoint_lsn,
            first_sequence: snapshot.journal_sequence,
            file_bytes: self.options.journal_file_bytes,
        };
        let mut redo_lsn = applied;
        let mut cleared = false;
        let mut redone_bytes = 0;
        let end = read_journal(&*self.disk, start, &mut |frame| {
            report.frames += 1;
            report.events += u64::from(frame.events);
            redone_bytes += frame.len as u64;
            self.redo_frame(frame)?;
            if self.tail_bytes.load(Ordering::Relaxed) >= self.options.tail_bytes {
                self.clear_once(snapshot, &mut cleared)?;
                self.write_tails()?;
            }
            if !frame.redo.is_empty() && frame.lsn > applied {
                let redo = [Redo { lsn: frame.lsn, bytes: frame.redo }];
                self.state.apply(&redo).map_err(|error| LogOpenError::State(error.to_string()))?;
                redo_lsn = frame.lsn;
            }
            Ok(())
        })?;
        if applied > end.last_lsn {
            return Err(LogOpenError::StateAhead { applied, end: end.last_lsn });
        }
        self.clear_once(snapshot, &mut cleared)?;
        report.torn_bytes = end.torn_bytes;
        self.start_writing(end.last_lsn, redo_lsn, end.found, redone_bytes)
    }

    /// Starts a new journal file for new frames, so that the bytes of a torn group are never read again.
    fn start_writing(
        &self,
        last_lsn: u64,
        redo_lsn: u64,
        found: JournalFiles,
        redone_bytes: u64,
    ) -> Result<(), LogOpenError> {
        let live = Arc::clone(&self.counters.journal_live);
        let file_bytes = self.options.journal_file_bytes;
        let mut writer = JournalWriter::new(Arc::clone(&self.disk), file_bytes, found, live);
        writer.roll(last_lsn + 1).and_then(|()| writer.sync()).map_err(open_io("start", journal::DIR))?;
        *lock(&self.committer) = JournalCommitter::new(writer, last_lsn);
        let journal_room = lock(&self.committer).journal.room();
        let mut sequencer = lock(&self.sequencer);
        sequencer.journal_room = journal_room;
        sequencer.next_lsn = last_lsn + 1;
        sequencer.redo_lsn = redo_lsn;
        drop(sequencer);
        *lock(&self.progress) = LogProgress { durable_lsn: last_lsn, state_lsn: redo_lsn };
        // Redone bytes count like new ones. Otherwise the journal, and the memory of the index for it, would
        // grow with every process that dies before its first checkpoint.
        self.journal_bytes.store(redone_bytes, Ordering::Relaxed);
        self.index_bytes.store(self.index.active_size().1 as u64, Ordering::Relaxed);
        self.raise(|flags| flags.upkeep = true);
        let mut manifest = lock(&self.manifest);
        if manifest.journal_sequence == 0 {
            manifest.journal_sequence =
                lock(&self.committer).journal.first_sequence_above(manifest.checkpoint_lsn);
            let appended = manifest.append_edit(|_| {}).map_err(|failed| failed.error);
            appended.map_err(open_io("write", "manifest"))?;
        }
        Ok(())
    }
}
