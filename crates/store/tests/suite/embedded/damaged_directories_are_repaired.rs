//! Random damage anywhere in a directory with events and state: every run serves only right bytes or refuses with the
//! command that repairs; after the repair the directory is clean, takes new events, and lacks only what was named.
//!
//! `STORE_DAMAGE_SEEDS=n` runs n seeds, `STORE_DAMAGE_SEED=s` one, `STORE_DAMAGE_FRESH=n` n fresh ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use promethean_store::embedded::{EmbeddedStore, StoreRepairReport};
use promethean_store::port::{
    Batch, CursorReads, DocReads, EventReads, Keeping, PageLimit, ReadError, RowReads, Store, Table,
};
use promethean_testkit::{SeededRng, seeds};
use tempfile::TempDir;

use crate::suite::support::{
    Embedded, clock, commit, copy_dir, cursor, declare, doc, event, row, small, topic, try_open,
};

const TOPICS: [&str; 3] = ["a", "b.c", "d"];
const ROWS: u64 = 40;

const DOCS: u64 = 7;
/// The longest history.
const EVENTS: u64 = 120;

/// Seeds that found a bug: the engine's journal lost changes that redo after them builds on.
const FOUND: [u64; 2] = [12_249_191_894_905_882_570, 12_249_191_894_905_882_604];

type Events = BTreeMap<(&'static str, u64), Vec<u8>>;
/// Offsets of a topic that cannot be read.
type DamagedRanges = Vec<(&'static str, u64, u64)>;

/// The files that are damaged, each with what was done.
type Damages = [(String, String)];

/// The state that a reader finds: values by their place. A value that cannot be read is an error.
type Entries = BTreeMap<(Kept, String), Result<String, String>>;

/// The parts of the state that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Rows,
    Cursors,
    Durable,
    Derived,
}

impl Kept {
    /// The words by which a report names the loss of an entry.
    fn words(self) -> &'static [&'static str] {
        match self {
            Kept::Rows => &["rows of groups"],
            Kept::Cursors => &["cursors of groups", "the cursor of group `g`"],
            Kept::Durable => &["documents of a durable collection", "declarations of collections"],
            Kept::Derived => &["collection `derived`", "declarations of collections"],
        }
    }
}

struct Subject {
    dir: TempDir,
    events: Events,
    state: Entries,
    ends: BTreeMap<&'static str, u64>,
    killed: bool,
}

async fn make(rng: &mut SeededRng) -> Subject {
    let subject = Embedded::open(fast_dir(), clock()).await;
    let store = &*subject.store;
    commit(store, Batch::new().with(declare("kept", Keeping::Durable))).await;
    commit(store, Batch::derived().with(declare("derived", Keeping::Derived))).await;
    for n in 0..rng.range(20..EVENTS) {
        let to = rng.choose(&TOPICS).unwrap();
        let mut batch = Batch::new().event(event(to, &n.to_string()));
        if rng.chance(30) {
            batch = batch.with(row(Table::Groups, &format!("row {}", n % ROWS), &n.to_string()));
        }
        if rng.chance(20) {
            batch = batch.with(doc("kept", &format!("k{}", n % DOCS), n));
        }
        commit(store, batch).await;
        if rng.chance(10) {
            commit(store, Batch::derived().with(doc("derived", &format!("k{n}"), n))).await;
        }
        if rng.chance(4) {
            store.checkpoint().await.unwrap();
        }
    }
    commit(store, Batch::new().with(cursor("g", "a", 0))).await;
    let killed = rng.chance(50);
    if !killed {
        store.close().await;
    }
    let dir = copied(subject.dir.path());
    subject.store.close().await;
    let copy = copied(dir.path());
    let store = try_open(copy.path(), &clock()).await.unwrap();
    let (events, damage) = read_all(&store).await;
    assert!(damage.is_empty());
    let state = read_state(&store).await;
    assert!(state.values().all(Result::is_ok), "{state:?}");
    let mut ends = BTreeMap::new();
    for name in TOPICS {
        ends.insert(name, store.topic_info(&topic(name)).await.unwrap().map_or(0, |info| info.end.get()));
    }
    store.close().await;
    Subject { dir, events, state, ends, killed }
}

/// A directory in memory, if the system has one: nothing here depends on syncs, which take most of the time on a disk.
fn fast_dir() -> TempDir {
    const MEMORY: &str = "/dev/shm";
    if Path::new(MEMORY).is_dir() { tempfile::tempdir_in(MEMORY) } else { tempfile::tempdir() }.unwrap()
}

fn copied(dir: &Path) -> TempDir {
    let copy = fast_dir();
    copy_dir(dir, copy.path());
    copy
}

/// Reads the state entry by entry. What is not there has no entry.
async fn read_state(store: &EmbeddedStore) -> Entries {
    let mut found = Entries::new();
    let mut add = |kept, key: String, value: Result<Option<String>, ReadError>| match value {
        Ok(value) => found.extend(value.map(|value| ((kept, key), Ok(value)))),
        Err(error) => _ = found.insert((kept, key), Err(error.to_string())),
    };
    for n in 0..ROWS {
        let key = format!("row {n}");
        let value = store.row(Table::Groups, key.as_bytes()).await;
        add(Kept::Rows, key, value.map(|value| value.map(|value| String::from_utf8(value).unwrap())));
    }
    let cursor = store.cursor(&"g".parse().unwrap(), &topic("a")).await;
    add(Kept::Cursors, "g".to_owned(), cursor.map(|cursor| cursor.map(|cursor| cursor.floor.to_string())));
    for (kept, collection, keys) in [(Kept::Durable, "kept", DOCS), (Kept::Derived, "derived", EVENTS)] {
        for n in 0..keys {
            let key = format!("k{n}");
            let doc = store.doc(&collection.parse().unwrap(), &key).await;
            add(kept, key, doc.map(|doc| doc.map(|doc| doc.body)));
        }
    }
    found
}

async fn read_all(store: &EmbeddedStore) -> (Events, DamagedRanges) {
    let (mut events, mut damaged) = (Events::new(), Vec::new());
    for name in TOPICS {
        let Some(info) = store.topic_info(&topic(name)).await.unwrap() else { continue };
        let mut at = info.earliest;
        while at < info.end {
            match store.read(&topic(name), at, PageLimit::default()).await {
                Ok(page) => {
                    events.extend(
                        page.events
                            .iter()
                            .map(|event| ((name, event.offset.get()), event.payload().to_owned())),
                    );
                    assert!(page.next > at);
                    at = page.next;
                }
                Err(ReadError::CorruptRange(damage)) => {
                    damaged.push((name, damage.range.start.get(), damage.range.end.get()));
                    assert!(damage.range.end > at, "{damage}");
                    at = damage.range.end;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    (events, damaged)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if !["LOCK", "FORMAT", "lock"].contains(&path.file_name().unwrap().to_str().unwrap()) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Damages one file. Returns its name and what was done.
fn damage(dir: &Path, rng: &mut SeededRng) -> (String, String) {
    let folders = ["state", "state", "segments", "journal", "index", ""];
    let folder = dir.join(rng.choose(&folders).unwrap());
    let mut all = files(&folder);
    all.retain(|file| std::fs::metadata(file).unwrap().len() > 0);
    let Some(file) = rng.choose(&all).cloned() else { return (String::new(), "nothing".to_owned()) };
    let mut bytes = std::fs::read(&file).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1) as u64;
    let at = rng.range(0..used) as usize;
    let to = (at + rng.range(1..200) as usize).min(bytes.len());
    let what = match rng.range(0..5) {
        0 | 1 => {
            bytes[at] ^= 1 << rng.range(0..8);
            format!("flip {at}")
        }
        2 => {
            bytes[at..to].fill(0);
            format!("zero {at}..{to}")
        }
        3 => {
            bytes.truncate(at);
            format!("cut at {at}")
        }
        _ => {
            let copy = bytes[at..to].to_vec();
            let target = rng.range(0..used) as usize;
            bytes.splice(target..target, copy);
            format!("insert {at}..{to} at {target}")
        }
    };
    std::fs::write(&file, bytes).unwrap();
    (file.strip_prefix(dir).unwrap().display().to_string(), what)
}

/// Whether a file of this folder is damaged.
fn hits(done: &Damages, folder: &str) -> bool {
    done.iter().any(|(file, _)| file.starts_with(folder))
}

fn check_right(events: &Events, subject: &Subject) -> Result<(), String> {
    match events.iter().find(|(place, payload)| subject.events.get(*place) != Some(*payload)) {
        Some(wrong) => Err(format!("{wrong:?} was never published")),
        None => Ok(()),
    }
}

/// Without a repair only right bytes are served, and events that are missing lie in damage that is named. An end of
/// the journal that does not verify cannot be told from one that a crash has torn.
async fn check_served(subject: &Subject, damaged: &Path, done: &Damages) -> Result<(), String> {
    let copy = copied(damaged);
    let store = match try_open(copy.path(), &clock()).await {
        Err(error) if error.to_string().contains("promethean verify --repair") => return Ok(()),
        Err(error) => return Err(format!("the refusal names no way out: {error}")),
        Ok(store) => store,
    };
    let (events, ranges) = read_all(&store).await;
    let state = read_state(&store).await;
    store.close().await;
    check_right(&events, subject)?;
    let torn = subject.killed && hits(done, "journal");
    for place in subject.events.keys().filter(|place| !events.contains_key(*place)) {
        let named = ranges.iter().any(|(of, from, to)| *of == place.0 && (*from..*to).contains(&place.1));
        if !(named || torn && is_last(&events, place)) {
            return Err(format!("{place:?} is missing and not named: {ranges:?}"));
        }
    }
    // Derived documents are written without the log's journal: a torn end of the engine's journal takes them back.
    let undone = |kept| kept == Kept::Derived && subject.killed && hits(done, "state");
    match changed_state(subject, &state).find(|((kept, _), found)| !(torn || undone(*kept)) && found.is_ok())
    {
        Some((place, found)) => Err(format!("{place:?} is served as {found:?}")),
        None => Ok(()),
    }
}

/// Whether no later event of the topic is there.
fn is_last(events: &Events, place: &(&'static str, u64)) -> bool {
    !events.keys().any(|(of, offset)| *of == place.0 && *offset > place.1)
}

/// The entries that are not as they were, with what was found instead.
fn changed_state<'a>(
    subject: &'a Subject,
    state: &'a Entries,
) -> impl Iterator<Item = (&'a (Kept, String), Result<Option<&'a str>, &'a str>)> {
    let places = subject.state.keys().chain(state.keys().filter(|place| !subject.state.contains_key(*place)));
    places.filter(|place| subject.state.get(*place) != state.get(*place)).map(|place| {
        let found = state.get(place).map(|found| found.as_deref().map_err(String::as_str));
        (place, found.transpose())
    })
}

/// Whether a report names the loss of an entry: its family, and the keys between which entries are lost.
fn is_lost(report: &StoreRepairReport, (kept, key): &(Kept, String)) -> bool {
    let texts = report.state.lost.iter().chain(&report.log.notes);
    let named = |text: &String| kept.words().iter().any(|words| text.contains(words));
    texts.filter(|text| named(text)).any(|text| {
        let Some((_, range)) = text.split_once(" between ") else { return true };
        let (from, to) = range.split_once(" and ").unwrap();
        let is_after = |end: &str| end.trim_matches('`') <= key.as_str();
        // The rows of a table are one family with those of others.
        let (from, to) = (from.strip_prefix('`').map(|_| from), to.strip_prefix('`').map(|_| to));
        from.is_none_or(is_after) && to.is_none_or(|to| to.trim_matches('`') > key.as_str())
    })
}

fn is_named(report: &StoreRepairReport, place: &(&str, u64)) -> bool {
    let lost = |lost: &promethean_log::LostEvents| {
        lost.topic == place.0 && (lost.from_offset..lost.to_offset).contains(&place.1)
    };
    report.log.lost.iter().any(lost) || report.log.notes.iter().any(|note| note.contains("name of topic"))
}

/// Returns whether the repair kept nothing of the state.
async fn check_repaired(subject: &Subject, damaged: &Path, done: &Damages) -> Result<bool, String> {
    let copy = copied(damaged);
    let dir = copy.path();
    let planned = EmbeddedStore::repair(dir, clock(), small(), true)
        .await
        .map_err(|error| format!("dry run: {error}"))?;
    let report = EmbeddedStore::repair(dir, clock(), small(), false)
        .await
        .map_err(|error| format!("repair: {error}"))?;
    if planned.is_clean() != report.is_clean() || planned.log.lost != report.log.lost {
        return Err(format!("planned {planned:?}, done {report:?}"));
    }
    let store = try_open(dir, &clock()).await.map_err(|error| format!("after the repair: {error}"))?;
    let verified = store.verify(|_, _| {}).await.unwrap();
    if !verified.is_clean() {
        return Err(format!("not clean after the repair: {verified:?}, after {report:?}"));
    }
    let (events, unreadable) = read_all(&store).await;
    if !unreadable.is_empty() {
        return Err(format!("unreadable after the repair: {unreadable:?}"));
    }
    check_right(&events, subject)?;
    let mut torn = false;
    for place in subject.events.keys().filter(|place| !events.contains_key(*place)) {
        if !is_named(&report, place) {
            torn = subject.killed && hits(done, "journal") && is_last(&events, place);
            if !torn {
                return Err(format!("{place:?} is lost and not named: {report:?}"));
            }
        }
    }
    check_state(&store, subject, &report, done).await?;
    check_kept_events(subject, &events, done)?;
    for name in TOPICS {
        commit(&store, Batch::new().event(event(name, "after the repair"))).await;
        let end = store.topic_info(&topic(name)).await.unwrap().unwrap().end.get();
        let renamed = report.log.notes.iter().any(|note| note.contains("name of topic"));
        if end <= subject.ends[name] && !torn && !renamed {
            return Err(format!("offset {} of {name} is used again", end - 1));
        }
    }
    store.close().await;
    Ok(report.state.lost.iter().any(|text| text.starts_with("all state")))
}

/// Damage to the state or to an index loses no event, and one flipped bit of a segment at most two.
fn check_kept_events(subject: &Subject, events: &Events, done: &Damages) -> Result<(), String> {
    let lost = subject.events.keys().filter(|place| !events.contains_key(*place)).count();
    let costs_none = |file: &str| file.starts_with("state") || file.starts_with("index");
    let is_flip = |(file, what): &(String, String)| file.starts_with("segments") && what.starts_with("flip");
    let most =
        done.iter().filter(|one| !costs_none(&one.0)).map(|one| if is_flip(one) { 2 } else { usize::MAX });
    let most = most.fold(0_usize, usize::saturating_add);
    if lost > most {
        Err(format!("{lost} events are lost, where the damage can cost {most}"))
    } else {
        Ok(())
    }
}

/// Rows, cursors and documents are as they were, unless the report names what is lost of them.
async fn check_state(
    store: &EmbeddedStore,
    subject: &Subject,
    report: &StoreRepairReport,
    done: &Damages,
) -> Result<(), String> {
    let state = read_state(store).await;
    let said = |words: &[&str]| {
        let texts = || report.state.lost.iter().chain(&report.log.notes);
        texts().any(|text| words.iter().any(|word| text.contains(word)))
    };
    let all = ["all state", "changes of state"];
    let torn = subject.killed && hits(done, "journal");
    // As while it is served: the end of the engine's journal may be torn.
    let undone = |kept| kept == Kept::Derived && subject.killed && hits(done, "state");
    for (place, found) in changed_state(subject, &state) {
        if found.is_err() {
            return Err(format!("{place:?} cannot be read after the repair: {found:?}"));
        }
        let lost = is_lost(report, place) || said(&all) || torn || undone(place.0);
        if !lost {
            return Err(format!("{place:?} is {found:?}, which is not named: {report:?}"));
        }
        // What is there was written once.
        let written = |text: &str| match place.0 {
            Kept::Rows => text.parse().is_ok_and(|number: u64| place.1 == format!("row {}", number % ROWS)),
            Kept::Cursors => text == "0",
            Kept::Durable | Kept::Derived => {
                let modulus = if place.0 == Kept::Durable { DOCS } else { EVENTS };
                let of_key = (0..EVENTS).filter(|n| place.1 == format!("k{}", n % modulus));
                of_key.map(|n| format!("\"n\":{n}")).any(|field| text.contains(&field))
            }
        };
        if let Ok(Some(text)) = found
            && !written(text)
        {
            return Err(format!("{place:?} is {text}, which was never written"));
        }
    }
    Ok(())
}

/// What a run is counted for.
struct RunOutcome {
    /// Whether the repair kept nothing of the state.
    lost_all: bool,
    hit_state: bool,
}

async fn run(seed: u64) -> Result<RunOutcome, String> {
    let mut rng = SeededRng::new(seed);
    let subject = make(&mut rng).await;
    let damaged = copied(subject.dir.path());
    let mut done = vec![damage(damaged.path(), &mut rng)];
    if rng.chance(25) {
        done.push(damage(damaged.path(), &mut rng));
    }
    let failed =
        |what: String| format!("STORE_DAMAGE_SEED={seed} killed={} {done:?}: {what}", subject.killed);
    check_served(&subject, damaged.path(), &done).await.map_err(failed)?;
    let lost_all = check_repaired(&subject, damaged.path(), &done).await.map_err(failed)?;
    Ok(RunOutcome { lost_all, hit_state: done.iter().any(|(file, _)| file.starts_with("state")) })
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "joined at once; a task turns a panic into an error")]
async fn whatever_is_damaged() {
    let mut failures = Vec::new();
    let (mut hit_state, mut lost_all) = (0, 0);
    for seed in seeds("STORE_DAMAGE", 60, &FOUND, 60) {
        // A panic is told with its seed.
        let outcome = tokio::spawn(run(seed)).await;
        let outcome =
            outcome.unwrap_or_else(|_| Err(format!("STORE_DAMAGE_SEED={seed}: a panic, see above")));
        match outcome {
            Ok(outcome) => {
                hit_state += u32::from(outcome.hit_state);
                lost_all += u32::from(outcome.lost_all);
            }
            Err(failure) => failures.push(failure),
        }
    }
    let first: Vec<&str> = failures.iter().take(6).map(String::as_str).collect();
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), first.join("\n\n"));
    // Files without which nothing can be read are a small part of the state.
    assert!(lost_all * 4 <= hit_state.max(8), "{lost_all} of {hit_state} runs kept nothing of the state");
}

/// A journal of the engine that ends after a whole batch looks whole.
#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_journal_of_the_engine_ends() {
    const BATCH_END: &[u8] = b"FJL\x03";
    const FILE: &str = "state/0.jnl";
    let mut rng = SeededRng::new(FOUND[0]);
    let subject = make(&mut rng).await;
    assert!(subject.killed);
    let journal = std::fs::read(subject.dir.path().join(FILE)).unwrap();
    let ends = journal.windows(BATCH_END.len()).enumerate().filter(|(_, bytes)| *bytes == BATCH_END);
    let mut cuts = 0;
    for (at, _) in ends {
        let damaged = copied(subject.dir.path());
        let end = at + BATCH_END.len();
        std::fs::write(damaged.path().join(FILE), &journal[..end]).unwrap();
        let done = [(FILE.to_owned(), format!("cut at {end}"))];
        let served = check_served(&subject, damaged.path(), &done).await;
        let repaired = check_repaired(&subject, damaged.path(), &done).await;
        assert_eq!((served, repaired.map(drop)), (Ok(()), Ok(())), "cut at {end}");
        cuts += 1;
    }
    assert!(cuts > 20, "{cuts} batches");
}
