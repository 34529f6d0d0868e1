//! The repair of a damaged directory: what verifies is kept at its offsets, the original files are set aside
//! in `quarantine/`, and the rest is named.
//!
//! | file | holds |
//! | --- | --- |
//! | `report` | what a repair does and what is lost |
//! | `salvage` | records found by their checksums |
//! | `topics` | the records of each topic, from segments and journal, and new segments for them |
//! | `journal_fold` | what the journal says about topics, and which offsets it lost |
//! | `files` | reading, writing and setting aside files |
//!
//! Every step can be repeated: new files are written first, then the originals are renamed, and the manifest,
//! which names the new files, comes last. A directory in between is refused and can be repaired again.

mod files;
mod journal_fold;
mod report;
mod salvage;
mod topics;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::report::{LogRepairReport, LostEvents};

use self::files::RepairFiles;
use self::journal_fold::JournalFold;
use self::topics::TopicRepair;
use crate::disk::Disk;
use crate::error::{LogOpenError, open_io};
use crate::index::{self, EntryKind, IndexRun};
use crate::journal::survey::{JournalSurvey, SurveyStart};
use crate::journal::{self, FRAMES_AT, FileHeader, UNFINISHED, frame};
use crate::manifest::{self, Edit, Manifest, ManifestSalvage, ManifestSnapshot, RunItem, TopicItem};
use crate::recovery;
use crate::segment::{self, SegmentId};

/// Repaired journals begin so many sequences after the last one: files whose headers are damaged may have any
/// of the next few.
const SEQUENCES_SKIPPED: u64 = 1000;

/// A repair of a directory that no process uses. The directory stays locked until it is dropped.
pub struct LogRepair {
    disk: Arc<dyn Disk>,
    _lock: Box<dyn Send + Sync>,
}

/// What a repair must know beside the directory.
#[derive(Debug, Clone, Copy)]
pub struct RepairSettings {
    /// The last LSN that the state has applied; 0 if the state is new.
    pub applied_lsn: u64,
    /// Whether to write nothing and only say what a repair would do.
    pub dry_run: bool,
    /// The present, for events whose time of append is lost.
    pub now_ms: i64,
}

impl LogRepair {
    /// Locks the directory.
    pub fn begin(disk: Arc<dyn Disk>) -> Result<LogRepair, LogOpenError> {
        let lock = crate::log::lock_directory(&*disk)?;
        Ok(LogRepair { disk, _lock: lock })
    }

    /// The LSN up to which the state was durable at the last checkpoint, as far as the manifest can be read; 0 if the log
    /// has no state.
    pub fn state_lsn(&self) -> Result<u64, LogOpenError> {
        let files = RepairFiles::new(Arc::clone(&self.disk), true)?;
        let bytes = files.read_if_there(manifest::PATH)?;
        Ok(ManifestSalvage::read(bytes.as_deref().unwrap_or_default()).snapshot.state_lsn)
    }

    /// Looks for damage and, unless this is a dry run, repairs it.
    pub fn run(&self, settings: RepairSettings) -> Result<LogRepairReport, LogOpenError> {
        recovery::check_format(&self.disk)?;
        let mut run = RepairRun {
            files: RepairFiles::new(Arc::clone(&self.disk), settings.dry_run)?,
            settings,
            report: LogRepairReport::default(),
        };
        run.repair()?;
        Ok(run.report)
    }
}

struct RepairRun {
    files: RepairFiles,
    settings: RepairSettings,
    report: LogRepairReport,
}

/// The manifest as far as it can be trusted.
struct KnownManifest {
    snapshot: ManifestSnapshot,
    sequence: u64,
    /// Whether segments may be missing in it, so that the files decide.
    is_doubtful: bool,
    /// The topics in bytes after the last valid edit, if there are such bytes.
    torn: Option<Vec<TopicItem>>,
}

impl RepairRun {
    fn repair(&mut self) -> Result<(), LogOpenError> {
        let names = self.files.list(segment::DIR)?;
        let mut known = self.read_manifest(&names)?;
        let survey = self.survey_journal(&mut known)?;
        let fold = known.is_doubtful || !survey.is_whole();
        let mut snapshot = known.snapshot.clone();
        let journal =
            if fold { JournalFold::of(&survey, &known.snapshot) } else { JournalFold::copies(&survey) };
        if fold {
            journal.add_topics(&mut snapshot, &mut self.report);
        }
        let mut per_topic: BTreeMap<u32, Vec<SegmentId>> = BTreeMap::new();
        let ids =
            names.iter().filter(|name| name.ends_with(".seg")).filter_map(|name| SegmentId::from_name(name));
        ids.for_each(|id| per_topic.entry(id.topic).or_default().push(id));
        if fold {
            // An unnamed topic of a manifest that is whole was deleted; its files are leftovers.
            let lost = |id: &u32| known.is_doubtful || *id >= known.snapshot.next_topic;
            let ids = per_topic.keys().copied().filter(lost).filter(|id| !journal.has_deleted(*id));
            topics::name_unknown(&mut snapshot, ids, &mut self.report);
            let has_events = |id: u32| per_topic.contains_key(&id) || journal.of_topic(id).next().is_some();
            topics::separate_names(&mut snapshot, has_events, &mut self.report);
        }
        let mut set_aside = Vec::new();
        for item in snapshot.topics.clone().into_values() {
            let there = per_topic.remove(&item.id).unwrap_or_default();
            let repair = TopicRepair { item, there, fold, now_ms: self.settings.now_ms };
            let done = repair.run(&self.files, &journal, &mut snapshot, &mut self.report)?;
            set_aside.extend(done);
        }
        let damaged_runs = self.check_runs(&mut snapshot, fold, known.is_doubtful)?;
        if !survey.is_whole() {
            self.rewrite_journal(&survey, &mut snapshot)?;
        } else if fold {
            snapshot.journal_sequence = survey.first_sequence().unwrap_or(snapshot.journal_sequence);
        }
        if self.settings.applied_lsn < snapshot.state_lsn {
            // A state that was repaired itself says what it lost.
            if self.settings.applied_lsn > 0 {
                self.report.notes.push(format!(
                    "changes of state in frames {}..{} are lost (settings, cursors, schemas, dead letters)",
                    self.settings.applied_lsn + 1,
                    snapshot.state_lsn + 1
                ));
            }
            snapshot.state_lsn = self.settings.applied_lsn;
            self.report.steps.push("let the state go on from where it is".to_owned());
        }
        for path in set_aside.into_iter().chain(damaged_runs) {
            self.report.set_aside.push(self.files.set_aside(&path)?);
        }
        if !self.report.is_clean() {
            self.write_manifest(&snapshot, known.sequence)?;
        }
        Ok(())
    }

    fn read_manifest(&mut self, names: &[String]) -> Result<KnownManifest, LogOpenError> {
        let bytes = self.files.read_if_there(manifest::PATH)?;
        let has_data = !names.is_empty() || !self.files.list(journal::DIR)?.is_empty();
        let mut salvage = ManifestSalvage::read(bytes.as_deref().unwrap_or_default());
        let snapshot = std::mem::take(&mut salvage.snapshot);
        let named: Vec<SegmentId> = snapshot.segments.values().map(|meta| meta.id).collect();
        let there: Vec<SegmentId> = names
            .iter()
            .filter(|name| name.ends_with(".seg"))
            .filter_map(|name| SegmentId::from_name(name))
            .collect();
        let unnamed = |topic: u32| there.iter().any(|id| id.topic == topic && !named.contains(id));
        let outdated = named.iter().any(|id| !there.contains(id) && unnamed(id.topic));
        let mut is_doubtful = outdated;
        if let Some(at) = salvage.damaged_at.filter(|_| has_data || bytes.is_some()) {
            is_doubtful = true;
            let what =
                if bytes.is_none() { "is missing".to_owned() } else { format!("is damaged at byte {at}") };
            self.report.faults.push(format!("the manifest {what}"));
            self.report.steps.push(format!(
                "write a new manifest from what verifies of the old one ({} topics), the segments and the journal",
                snapshot.topics.len()
            ));
        } else if outdated {
            self.report.faults.push("the manifest lost its last edits".to_owned());
            self.report.steps.push("write a new manifest from the old one and the segments".to_owned());
        }
        Ok(KnownManifest { snapshot, sequence: salvage.sequence, is_doubtful, torn: salvage.torn_topics })
    }

    /// Reads the journal. Where the manifest is doubtful and the journal has a gap before its last files, the
    /// manifest is wrong: files are freed only after a checkpoint.
    fn survey_journal(&mut self, known: &mut KnownManifest) -> Result<JournalSurvey, LogOpenError> {
        let read = |snapshot: &ManifestSnapshot| {
            let start = SurveyStart {
                checkpoint_lsn: snapshot.checkpoint_lsn,
                first_sequence: snapshot.journal_sequence,
                applied_lsn: self.settings.applied_lsn,
            };
            JournalSurvey::read(&*self.files.disk, start).map_err(open_io("read", journal::DIR))
        };
        let mut survey = read(&known.snapshot)?;
        // A torn end of the manifest is what a crash leaves, and means nothing if the journal is whole.
        let lost_edit = known.torn.is_some() && !survey.is_whole();
        if lost_edit && !known.is_doubtful {
            known.is_doubtful = true;
            self.report.faults.push("the last edit of the manifest does not verify".to_owned());
            self.report.steps.push("write a new manifest from the old one and the segments".to_owned());
        }
        if known.is_doubtful {
            let topics = known.torn.take().unwrap_or_default();
            known.snapshot.topics.extend(topics.into_iter().map(|item| (item.id, item)));
            let id_max = known.snapshot.topics.keys().next_back().copied();
            known.snapshot.next_topic = known.snapshot.next_topic.max(id_max.map_or(0, |id| id + 1));
            if let Some(base) = survey.last_stretch_base() {
                known.snapshot.checkpoint_lsn = known.snapshot.checkpoint_lsn.max(base - 1);
            }
            if survey.has_no_gap() {
                known.snapshot.journal_sequence = survey.first_sequence().unwrap_or(0);
            }
            survey = read(&known.snapshot)?;
        }
        self.note_journal(&survey);
        Ok(survey)
    }

    fn note_journal(&mut self, survey: &JournalSurvey) {
        self.report.faults.extend(survey.faults.iter().map(|fault| format!("journal: {fault}")));
        if !survey.is_whole() {
            let frames = survey.frames.len();
            self.report
                .steps
                .push(format!("write the {frames} frames of the journal that verify to a new file"));
        }
    }

    /// Checks the index runs. Returns the files of damaged ones. After a fold the runs lack events, so that
    /// all of them are rebuilt.
    fn check_runs(
        &mut self,
        snapshot: &mut ManifestSnapshot,
        fold: bool,
        manifest_is_doubtful: bool,
    ) -> Result<Vec<String>, LogOpenError> {
        let mut damaged = Vec::new();
        let mut there = Vec::new();
        for name in self.files.list(index::DIR)? {
            let Some(number) = index::run_number(&name) else { continue };
            let level = snapshot.runs.get(&number).map_or(0, |run| run.level);
            let opened = IndexRun::open(&*self.files.disk, number, level).map(Arc::new);
            match opened.and_then(|run| run.verify().map(|()| run)) {
                Ok(run) => there.push((number, run.meta().kind, level)),
                Err(error) if snapshot.runs.contains_key(&number) => {
                    self.report.faults.push(error.to_string());
                    damaged.push((number, index::run_path(number)));
                }
                Err(_) => {}
            }
        }
        snapshot.next_run = there.iter().map(|(number, ..)| number + 1).fold(snapshot.next_run, u64::max);
        let is_ghost =
            |number: &u64| snapshot.runs.get(number).map(|run| run.kind) == Some(EntryKind::Ghost as u8);
        let ghosts_lost = damaged.iter().any(|(number, _)| is_ghost(number));
        if ghosts_lost {
            self.report.notes.push(
                "ids of some removed events are forgotten: one that is published again counts as new"
                    .to_owned(),
            );
        }
        if fold {
            let ghosts = there.iter().filter(|(number, kind, _)| {
                *kind == EntryKind::Ghost && (manifest_is_doubtful || snapshot.runs.contains_key(number))
            });
            snapshot.runs = ghosts.map(|(number, kind, level)| run_item(*number, *kind, *level)).collect();
            // A run that is named and not there makes the next open rebuild all runs.
            let (number, run) = run_item(snapshot.next_run, EntryKind::Id, 0);
            snapshot.runs.insert(number, run);
            snapshot.next_run += 1;
        }
        if fold || !damaged.is_empty() {
            self.report.steps.push("rebuild the index from the segments".to_owned());
        }
        Ok(damaged.into_iter().map(|(_, path)| path).collect())
    }

    /// Writes the valid frames to a new file, with empty frames for the missing ones, and sets the old files
    /// aside.
    fn rewrite_journal(
        &mut self,
        survey: &JournalSurvey,
        snapshot: &mut ManifestSnapshot,
    ) -> Result<(), LogOpenError> {
        let sequence = survey.sequence_max + SEQUENCES_SKIPPED;
        let salt = frame::salt(sequence);
        let mut bytes = vec![0; FRAMES_AT as usize];
        for lsn in snapshot.checkpoint_lsn + 1..=survey.last_lsn {
            let at = bytes.len();
            let spot = survey.frames.get(&lsn);
            match spot.and_then(|spot| survey.view(spot).map(|view| (view, survey.bytes(spot)))) {
                Some((view, whole)) => {
                    bytes.extend_from_slice(whole);
                    let frame = bytes.get_mut(at..).unwrap_or_default();
                    frame::finish(
                        frame,
                        frame::FrameParts {
                            lsn,
                            events: view.events,
                            control_bytes: view.control.len() as u32,
                            redo_bytes: view.redo.len() as u32,
                        },
                    );
                    frame::seal(frame, lsn - 1, salt);
                }
                None => {
                    bytes.resize(at + frame::HEADER_BYTES, 0);
                    let frame = bytes.get_mut(at..).unwrap_or_default();
                    frame::finish(frame, frame::FrameParts { lsn, ..frame::FrameParts::default() });
                    frame::seal(frame, lsn - 1, salt);
                }
            }
        }
        let base_lsn = snapshot.checkpoint_lsn + 1;
        let header = FileHeader { sequence, base_lsn, file_bytes: bytes.len() as u64 };
        crate::bytes::put(&mut bytes, 0, &header.encode());
        let path = journal::file_name(survey.next_number);
        self.files.write_new(&path, &format!("{path}{UNFINISHED}"), &bytes)?;
        for file in &survey.files {
            self.report.set_aside.push(self.files.set_aside(&file.path)?);
        }
        snapshot.journal_sequence = sequence;
        let state_lost =
            survey.missing.iter().filter(|missing| missing.lsns.end > self.settings.applied_lsn + 1);
        for missing in state_lost.filter(|missing| !missing.lsns.is_empty()) {
            self.report.notes.push(format!(
                "changes of state in frames {}..{} are lost (settings, cursors, schemas, dead letters)",
                missing.lsns.start.max(self.settings.applied_lsn + 1),
                missing.lsns.end
            ));
        }
        Ok(())
    }

    fn write_manifest(&self, snapshot: &ManifestSnapshot, sequence: u64) -> Result<(), LogOpenError> {
        if self.settings.dry_run {
            return Ok(());
        }
        self.files.copy_aside(manifest::PATH)?;
        let edit = Edit {
            checkpoint_lsn: snapshot.checkpoint_lsn,
            journal_sequence: snapshot.journal_sequence,
            state_lsn: snapshot.state_lsn,
            next_topic: snapshot.next_topic,
            next_run: snapshot.next_run,
            topics: snapshot.topics.values().cloned().collect(),
            segments: snapshot.segments.values().copied().collect(),
            runs: snapshot.runs.values().copied().collect(),
            ..Edit::default()
        };
        let written = Manifest::write_new(&self.files.disk, sequence + 1, &edit);
        written.map(|_| ()).map_err(|failed| open_io("write", manifest::PATH)(failed.error))
    }
}

fn run_item(number: u64, kind: EntryKind, level: u8) -> (u64, RunItem) {
    (number, RunItem { number, kind: kind as u8, level })
}
