//! The repair of the state: all entries that can be read go to a new engine; the old folder is set aside.
//!
//! Index entries and counts are computed from the documents, and again once redo is repeated.
//!
//! A projector's documents, cursor and row are of one moment, or they are worth nothing: with a lost document and a later
//! cursor it would count some events never. Which projector writes which collection is not known here. So derived
//! collections and rows of projectors are kept if all of them are whole, and all cursors and declarations with them;
//! otherwise all are left out: the log has the events, and the projectors compute their documents again. A change of state
//! that is lost from the engine's journal may be of any of them.

use std::fs;
use std::io;
use std::path::Path;

use super::engine::Engine;
use super::error::OpenError;
use super::options::EmbeddedOptions;
use super::readable::EntryVisit;
use super::sync_mark::SyncMark;
use super::{STATE_DIR, state_folder, state_journal, state_versions};
use crate::port::{Keeping, Table};
use crate::state::keys::collection::{self, DeclaredCollection};
use crate::state::keys::counter::{self, StateCounter};
use crate::state::keys::{self, doc, outbox, row};
use crate::state::plan::docs::entries;
use crate::state::{StateFault, StateSpace, Writes, check, mend, read};

/// The folder in which the new state is made.
const REPAIRED_DIR: &str = "state.repaired";
/// The folder for what is damaged.
const QUARANTINE_DIR: &str = "quarantine";
/// Entries written to the new engine at once.
const WRITES_MAX: usize = 1000;
/// The most faults that a report lists.
const FAULTS_MAX: usize = 20;

/// What a repair of the state finds, does and loses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateRepairReport {
    /// The damage, in words.
    pub faults: Vec<String>,
    /// What the repair does, in words.
    pub steps: Vec<String>,
    /// What is lost, in words.
    pub lost: Vec<String>,
    /// Where the damaged folder is set aside.
    pub set_aside: Option<String>,
}

impl StateRepairReport {
    /// Whether nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Gives the repaired state its name, if an earlier repair ended just before it did.
pub(super) fn finish_interrupted(dir: &Path) -> io::Result<()> {
    let (folder, new) = (dir.join(STATE_DIR), dir.join(REPAIRED_DIR));
    if !folder.try_exists()? && new.try_exists()? {
        fs::rename(new, folder)?;
        fs::File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// Repairs the state of a directory. Returns the report and the last LSN that the state has applied.
pub(super) fn run(
    dir: &Path,
    options: &EmbeddedOptions,
    dry_run: bool,
) -> Result<(StateRepairReport, u64), OpenError> {
    let folder = dir.join(STATE_DIR);
    let mut report = StateRepairReport::default();
    if !folder.try_exists()? {
        return Ok((report, 0));
    }
    match Engine::open(&folder, options) {
        Ok(engine) => {
            let mut faults = 0_u64;
            let checked = check(&engine.image(), &mut |fault| {
                faults += 1;
                if report.faults.len() < FAULTS_MAX {
                    report.faults.push(format!("state: {fault}"));
                }
            });
            if let Err(fault) = &checked {
                report.faults.push(format!("state: {fault}"));
            }
            if checked.is_ok() && faults == 0 {
                let applied = read::counter(&engine, StateCounter::AppliedLsn).map_err(corrupt)?;
                return Ok((report, applied.unwrap_or(0)));
            }
        }
        Err(OpenError::StateCorrupt { reason }) => report.faults.push(format!("state: {reason}")),
        Err(other) => return Err(other),
    }
    StateSalvage { dir, options, dry_run, report: &mut report, has_all_changes: false }.run()?;
    // Redo is repeated as far as the log has it. It names values, so that a second time changes nothing where nothing is
    // lost; otherwise `agree` mends what it says of changes that are lost.
    Ok((report, 0))
}

/// Makes the entries of state agree with each other, once redo is repeated: it says how index entries and counts were with
/// changes that may be lost.
pub(super) fn agree(engine: &Engine, report: &mut StateRepairReport) -> Result<(), OpenError> {
    let mut is_changed = false;
    let mut out = EntryWriter { engine, writes: Writes::default() };
    let undeclared = mend(&engine.image(), &mut |space, key, value| {
        is_changed = true;
        out.set(space, key, value)
    });
    let undeclared = undeclared.map_err(corrupt)?;
    if undeclared > 0 {
        report.lost.push(format!("{undeclared} declarations of collections, with the documents of these"));
    }
    if is_changed {
        report.steps.push("compute index entries and counts again".to_owned());
        out.flush().map_err(corrupt)?;
    }
    Ok(())
}

fn corrupt(fault: StateFault) -> OpenError {
    OpenError::StateCorrupt { reason: fault.to_string() }
}

struct StateSalvage<'a> {
    dir: &'a Path,
    options: &'a EmbeddedOptions,
    dry_run: bool,
    report: &'a mut StateRepairReport,
    /// Whether the engine's journal lost nothing.
    has_all_changes: bool,
}

impl StateSalvage<'_> {
    fn run(&mut self) -> Result<(), OpenError> {
        let (folder, copy, new) =
            (self.dir.join(STATE_DIR), self.dir.join("state.copy"), self.dir.join(REPAIRED_DIR));
        remove_folder(&copy)?;
        remove_folder(&new)?;
        copy_folder(&folder, &copy)?;
        let old = self.open_old(&copy);
        state_folder::create_once(&new, |made| -> Result<(), OpenError> {
            let engine = Engine::open_whole(made, self.options)?;
            match &old {
                Some(old) => self.copy_entries(old, &engine)?,
                None => self.report.lost.push(
                    "all state: settings of topics, groups with their cursors and attempts, rows of dead letters, \
                     schemas, dedupe marks, outbox rows (what the configuration declares is set again at the start)"
                        .to_owned(),
                ),
            }
            engine.sync().map_err(corrupt)
        })?;
        drop(old);
        remove_folder(&copy)?;
        let name = self.aside()?;
        self.report.set_aside = Some(format!("{QUARANTINE_DIR}/{name}"));
        if self.dry_run {
            return Ok(remove_folder(&new)?);
        }
        let quarantine = self.dir.join(QUARANTINE_DIR);
        fs::create_dir_all(&quarantine)?;
        let aside = quarantine.join(name);
        fs::rename(&folder, &aside)?;
        fs::rename(&new, &folder)?;
        fs::File::open(self.dir)?.sync_all()?;
        Ok(())
    }

    /// Opens what can be opened of a copy of the state.
    fn open_old(&mut self, copy: &Path) -> Option<Engine> {
        match state_journal::drop_damage(copy) {
            Ok(0) => {
                let mark = SyncMark::read(copy).ok().flatten();
                self.has_all_changes = state_journal::has_mark(copy, mark).unwrap_or(false);
            }
            Ok(bytes) => self.report.lost.push(format!(
                "changes of state in {bytes} damaged bytes of the engine's journal, unless the log repeats them"
            )),
            Err(error) => {
                self.report.faults.push(format!("state: {error}"));
                return None;
            }
        }
        if let Err(error) = state_versions::mend(copy) {
            self.report.faults.push(format!("state: {error}"));
        }
        let opened = Engine::open_whole(copy, self.options).or_else(|_| {
            self.renew_lists(copy)?;
            Engine::open_whole(copy, self.options)
        });
        match opened {
            Ok(engine) => Some(engine),
            Err(error) => {
                self.report.faults.push(error.to_string());
                None
            }
        }
    }

    /// Replaces files of the engine that are the same in every new engine: its version, its list of keyspaces, and the
    /// folders of keyspaces that never had tables: all of their entries are in the engine's journal.
    fn renew_lists(&self, copy: &Path) -> Result<(), OpenError> {
        /// The keyspace in which the engine lists the others.
        const LISTING: &str = "0";
        let fresh = self.dir.join("state.fresh");
        remove_folder(&fresh)?;
        Engine::open_whole(&fresh, self.options)?.sync().map_err(corrupt)?;
        fs::copy(fresh.join("version"), copy.join("version"))?;
        for entry in fs::read_dir(fresh.join("keyspaces"))? {
            let entry = entry?;
            let old = copy.join("keyspaces").join(entry.file_name());
            if entry.file_name() == LISTING || has_no_tables(&old)? {
                remove_folder(&old)?;
                copy_folder(&entry.path(), &old)?;
            }
        }
        Ok(remove_folder(&fresh)?)
    }

    /// A name that is free in the quarantine.
    fn aside(&self) -> io::Result<String> {
        let mut number = 1;
        loop {
            let name = format!("state-{number}");
            if !self.dir.join(QUARANTINE_DIR).join(&name).try_exists()? {
                return Ok(name);
            }
            number += 1;
        }
    }

    fn copy_entries(&mut self, old: &Engine, new: &Engine) -> Result<(), OpenError> {
        let mut out = EntryWriter { engine: new, writes: Writes::default() };
        let mut declared: Vec<DeclaredCollection> = Vec::new();
        let mut next_outbox = 0;
        let mut left_out: Vec<String> = Vec::new();
        let keeps_derived = self.has_all_changes && is_derived_whole(old);
        self.report.steps.push(format!(
            "write the entries of state that can be read to a new folder{}",
            if keeps_derived { "" } else { ", and let projectors compute theirs again from the log" }
        ));
        let tags =
            (0..=row::TAG).filter(|tag| ![collection::TAG_DROPPED, collection::TAG_COUNT].contains(tag));
        for tag in tags {
            self.copy_family(old, StateSpace::Meta, &[tag], &mut |key, value| {
                if let Some(derived) = derived(key, value).filter(|_| !keeps_derived) {
                    left_out.push(derived);
                    return Ok(());
                }
                if is_volatile(key) {
                    return Ok(());
                }
                if key.first() == Some(&collection::TAG)
                    && let Ok(found) = collection::decode(key, value)
                {
                    declared.push(found);
                }
                if let Ok(found) = outbox::sequence_of(key) {
                    next_outbox = next_outbox.max(found + 1);
                }
                out.put(StateSpace::Meta, key, value)
            })?;
        }
        self.report.lost.append(&mut left_out);
        for prefix in [0, 1] {
            self.copy_family(old, StateSpace::Dedupe, &[prefix], &mut |key, value| {
                out.put(StateSpace::Dedupe, key, value)
            })?;
        }
        for collection in &declared {
            self.copy_docs(old, collection, &mut out)?;
        }
        let next_collection =
            declared.iter().map(|declared| u64::from(declared.number) + 1).max().unwrap_or(0);
        out.raise(old, StateCounter::NextCollection, next_collection)?;
        out.raise(old, StateCounter::NextOutbox, next_outbox)?;
        out.flush().map_err(corrupt)
    }

    fn copy_docs(
        &mut self,
        old: &Engine,
        declared: &DeclaredCollection,
        out: &mut EntryWriter<'_>,
    ) -> Result<(), OpenError> {
        let mut count = 0;
        self.copy_family(old, StateSpace::Docs, &doc::prefix(declared.number), &mut |key, value| {
            let found = doc::decode(key, value).ok().and_then(|doc| entries(declared, &doc).ok());
            for entry in found.into_iter().flatten() {
                out.put(StateSpace::Index, &entry, &[])?;
            }
            count += 1;
            out.put(StateSpace::Docs, key, value)
        })?;
        out.put(StateSpace::Meta, &collection::count_key(declared.number), &counter::value(count))
    }

    /// Copies the readable entries under a prefix.
    fn copy_family(
        &mut self,
        old: &Engine,
        space: StateSpace,
        prefix: &[u8],
        put: &mut EntryVisit<'_, OpenError>,
    ) -> Result<(), OpenError> {
        let mut left_out = 0_u64;
        let mut put_good = |key: &[u8], value: &[u8]| match keys::check(space, key, value) {
            Ok(()) => put(key, value),
            Err(_) => {
                left_out += 1;
                Ok(())
            }
        };
        for (before, after) in old.visit_readable(space, prefix, &mut put_good)? {
            let name = |key: Option<Vec<u8>>, end: &str| {
                key.map_or_else(|| end.to_owned(), |key| format!("`{}`", readable_key(space, &key)))
            };
            self.report.lost.push(format!(
                "{} between {} and {}",
                family(space, prefix),
                name(before, "the first"),
                name(after, "the last")
            ));
        }
        if left_out > 0 {
            self.report.lost.push(format!("{left_out} malformed entries of {}", family(space, prefix)));
        }
        Ok(())
    }
}

/// The writes to the new engine.
struct EntryWriter<'a> {
    engine: &'a Engine,
    writes: Writes,
}

impl EntryWriter<'_> {
    fn put(&mut self, space: StateSpace, key: &[u8], value: &[u8]) -> Result<(), OpenError> {
        self.set(space, key.to_vec(), Some(value.to_vec())).map_err(corrupt)
    }

    fn set(&mut self, space: StateSpace, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), StateFault> {
        self.writes.set(space, key, value);
        if self.writes.len() >= WRITES_MAX { self.flush() } else { Ok(()) }
    }

    /// Sets a counter to at least `least`, and to no less than it was.
    fn raise(&mut self, old: &Engine, which: StateCounter, least: u64) -> Result<(), OpenError> {
        let before = read::counter(old, which).ok().flatten().unwrap_or(0);
        match before.max(least) {
            0 => Ok(()),
            number => self.put(StateSpace::Meta, &counter::key(which), &counter::value(number)),
        }
    }

    fn flush(&mut self) -> Result<(), StateFault> {
        self.engine.write(std::mem::take(&mut self.writes))
    }
}

/// Whether the declarations and cursors, and all documents of derived collections, can be read.
fn is_derived_whole(old: &Engine) -> bool {
    let mut derived: Vec<DeclaredCollection> = Vec::new();
    let is_meta_whole = is_whole(old, StateSpace::Meta, &[], &mut |key, value| {
        if key.first() == Some(&collection::TAG)
            && let Ok(found) = collection::decode(key, value)
            && found.collection.keeping == Keeping::Derived
        {
            derived.push(found);
        }
        true
    });
    is_meta_whole
        && derived.iter().all(|declared| {
            is_whole(old, StateSpace::Docs, &doc::prefix(declared.number), &mut |key, value| {
                doc::decode(key, value).is_ok_and(|doc| entries(declared, &doc).is_ok())
            })
        })
}

/// Whether all entries under a prefix can be read, are well formed, and pass `is_good`.
fn is_whole(
    old: &Engine,
    space: StateSpace,
    prefix: &[u8],
    is_good: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> bool {
    let read = old.visit_readable(space, prefix, &mut |key, value| {
        if keys::check(space, key, value).is_ok() && is_good(key, value) { Ok(()) } else { Err(()) }
    });
    read.is_ok_and(|gaps| gaps.is_empty())
}

/// The parts of a key that are text, for people.
fn readable_key(space: StateSpace, key: &[u8]) -> String {
    // A key begins with the number of its family, a document's with that of its collection.
    let numbers = match space {
        StateSpace::Meta if key.first() == Some(&row::TAG) => 2,
        StateSpace::Meta | StateSpace::Dedupe => 1,
        StateSpace::Docs | StateSpace::Index => 4,
    };
    let text = String::from_utf8_lossy(key.get(numbers..).unwrap_or_default()).into_owned();
    let is_text = |c: char| !c.is_control() && c != char::REPLACEMENT_CHARACTER;
    let parts = text.split(|c: char| !is_text(c)).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" ")
}

/// What is lost with an entry that projectors compute again: declarations of derived collections, and rows of
/// projectors. `None` for other entries.
fn derived(key: &[u8], value: &[u8]) -> Option<String> {
    if key.starts_with(&row::key(Table::Projectors, b"")) {
        return Some(format!(
            "the position of the projector in row `{}`: it begins as a new one, where its `from` says, and publishes \
             again what it published longer ago than the `dedupe_window` of its target",
            readable_key(StateSpace::Meta, key)
        ));
    }
    let declared = collection::decode(key, value).ok().filter(|_| key.first() == Some(&collection::TAG))?;
    let is_derived = declared.collection.keeping == Keeping::Derived;
    is_derived.then(|| {
        format!(
            "the documents of collection `{}`, until its projector has made them again",
            declared.collection.name
        )
    })
}

/// Whether the new engine has its own value.
fn is_volatile(key: &[u8]) -> bool {
    [StateCounter::AppliedLsn, StateCounter::SyncMark, StateCounter::Format]
        .map(counter::key)
        .contains(&key.to_vec())
}

/// What the entries under a prefix are, for people.
fn family(space: StateSpace, prefix: &[u8]) -> &'static str {
    match (space, prefix.first()) {
        (StateSpace::Meta, Some(0)) => "counters",
        (StateSpace::Meta, Some(1)) => "settings of topics",
        (StateSpace::Meta, Some(2)) => "cursors of groups",
        (StateSpace::Meta, Some(3)) => "declarations of collections",
        (StateSpace::Meta, Some(6)) => "pending changes of topics",
        (StateSpace::Meta, Some(7..=9)) => "rows of the outbox",
        (StateSpace::Meta, _) => "rows of groups, dead letters, schemas and feeds",
        (StateSpace::Docs, _) => "documents of a durable collection",
        (StateSpace::Index, _) => "index entries",
        (StateSpace::Dedupe, _) => "dedupe marks",
    }
}

/// Whether a keyspace never had tables: it has its first version file only, and no table.
fn has_no_tables(keyspace: &Path) -> io::Result<bool> {
    let mut versions = Vec::new();
    for entry in fs::read_dir(keyspace)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.strip_prefix('v').is_some_and(|number| number.parse::<u64>().is_ok()) {
            versions.push(name.into_owned());
        }
    }
    Ok(versions == ["v0"] && fs::read_dir(keyspace.join("tables"))?.next().is_none())
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
