//! Compiling schemas, and other work on them that may take long, off the threads that publishers wait for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use promethean_model::{IgnorePoison, TopicName};
use promethean_schema::{BadSchema, SchemaText, validator};
use promethean_store::port::Table;
use tokio::sync::{Semaphore, watch};

use super::Schemas;
use super::cache::CompiledSchema;
use super::info::SchemaInfo;
use crate::error::BusError;
use crate::rows::{SchemaKey, SchemaRow};

/// How long compiling or comparing may take.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Schemas compiled or compared at a time.
const WORK_MAX: usize = 2;
/// Payloads that are checked on threads of their own at a time.
const CHECKS_MAX: usize = 2;

/// The topic, the number of the version, and its fingerprint: the number alone does not say which schema, see
/// the cache.
type CompileKey = (TopicName, u32, String);
type Answer = Result<Arc<CompiledSchema>, BusError>;

/// The schemas that are being compiled. Callers that need one of them wait for it instead of compiling it
/// too.
#[derive(Debug)]
pub(super) struct Compiler {
    under_way: Mutex<HashMap<CompileKey, watch::Receiver<Option<Answer>>>>,
    permits: Arc<Semaphore>,
    /// Permits of the payloads that are checked on threads of their own.
    checks: Arc<Semaphore>,
}

/// Whether a caller compiles a schema, or waits for another caller that does.
enum CompileRole<'a> {
    /// It compiles.
    Compile(CompileTurn<'a>),
    /// It waits for this answer.
    Wait(watch::Receiver<Option<Answer>>),
}

/// The right to compile a schema. No other caller compiles it until this is dropped.
struct CompileTurn<'a> {
    compiler: &'a Compiler,
    key: CompileKey,
    answer: watch::Sender<Option<Answer>>,
}

impl Default for Compiler {
    fn default() -> Self {
        let permits = |count| Arc::new(Semaphore::new(count));
        Self { under_way: Mutex::default(), permits: permits(WORK_MAX), checks: permits(CHECKS_MAX) }
    }
}

impl Compiler {
    fn turn(&self, key: CompileKey) -> CompileRole<'_> {
        let mut under_way = self.lock();
        if let Some(answer) = under_way.get(&key) {
            return CompileRole::Wait(answer.clone());
        }
        let (answer, follow) = watch::channel(None);
        under_way.insert(key.clone(), follow);
        CompileRole::Compile(CompileTurn { compiler: self, key, answer })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CompileKey, watch::Receiver<Option<Answer>>>> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.under_way.lock().ignore_poison()
    }
}

impl Drop for CompileTurn<'_> {
    fn drop(&mut self) {
        self.compiler.lock().remove(&self.key);
    }
}

/// A compiled version, from the cache or from the store. However many callers ask, it is compiled once.
pub(super) async fn compiled(
    schemas: &Schemas,
    topic: &TopicName,
    info: &SchemaInfo,
) -> Result<Arc<CompiledSchema>, BusError> {
    let cached = || schemas.catalog.cache.get(topic, &info.fingerprint, info.version);
    loop {
        if let Some(compiled) = cached() {
            return Ok(compiled);
        }
        let key = (topic.clone(), info.version, info.fingerprint.clone());
        let turn = match schemas.catalog.compiler.turn(key) {
            CompileRole::Compile(turn) => turn,
            CompileRole::Wait(mut answer) => {
                match answer.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone()) {
                    Some(answer) => return answer,
                    // The caller that compiled was cancelled.
                    None => continue,
                }
            }
        };
        // Again: the turn before ours may have ended since the cache was asked.
        let answer = match cached() {
            Some(compiled) => Ok(compiled),
            None => read_and_compile(schemas, topic, info.version).await,
        };
        // A failure is shared too: the callers that wait would fail the same way, one after the other.
        turn.answer.send_replace(Some(answer.clone()));
        return answer;
    }
}

async fn read_and_compile(
    schemas: &Schemas,
    topic: &TopicName,
    version: u32,
) -> Result<Arc<CompiledSchema>, BusError> {
    let text = stored(schemas, topic, version).await?;
    let compiled = compile(schemas, topic, version, text).await?;
    schemas.catalog.cache.put(&compiled);
    Ok(compiled)
}

/// Reads the text of a version from the store.
pub(super) async fn stored(
    schemas: &Schemas,
    topic: &TopicName,
    version: u32,
) -> Result<SchemaText, BusError> {
    let row = schemas.base.store.row(Table::Schemas, &SchemaKey::encode(topic, version)).await?;
    let unknown =
        || BusError::UnknownSchema { topic: topic.clone(), version: version.to_string(), latest: None };
    Ok(SchemaText::parse(SchemaRow::decode(&row.ok_or_else(unknown)?)?.schema)?)
}

/// Compiles a text as a version of a topic.
pub(super) async fn compile(
    schemas: &Schemas,
    topic: &TopicName,
    version: u32,
    text: SchemaText,
) -> Result<Arc<CompiledSchema>, BusError> {
    let topic = topic.clone();
    let work = move || {
        let (validator, pattern_bytes) = validator::compile_weighed(text.value())?;
        let (fingerprint, text_bytes) = (text.fingerprint(), text.text().len());
        let validator = Arc::new(validator);
        Ok(Arc::new(CompiledSchema { topic, version, validator, fingerprint, text_bytes, pattern_bytes }))
    };
    off_thread(schemas, work).await?
}

/// Compiles or compares schemas on a thread that may block, a bounded number at once.
pub(super) async fn off_thread<T: Send + 'static>(
    schemas: &Schemas,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BusError> {
    let done = with_permit(&schemas.catalog.compiler.permits, "compiling schemas", work).await?;
    let refused = |why: UnfinishedCompile| match why {
        UnfinishedCompile::Late => "it takes too long; simplify it",
        UnfinishedCompile::Panicked => "it fails inside the validator; simplify it",
    };
    done.map_err(|why| BadSchema::whole(refused(why)).into())
}

/// Checks a payload on a thread that may block, a bounded number at once.
pub(super) async fn check_off_thread(
    schemas: &Schemas,
    compiled: &Arc<CompiledSchema>,
    payload: String,
) -> Result<(), BusError> {
    let checked = Arc::clone(compiled);
    let check = move || checked.check(&payload);
    let done = with_permit(&schemas.catalog.compiler.checks, "checking payloads", check).await?;
    done.unwrap_or_else(|_| Err(compiled.too_costly()))
}

/// Why work on another thread gave nothing.
enum UnfinishedCompile {
    Late,
    Panicked,
}

/// Runs work on a thread that may block, for a bounded time. Work that takes longer is not waited for, and keeps its
/// permit until it ends.
async fn with_permit<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    what: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Result<T, UnfinishedCompile>, BusError> {
    let permit = Arc::clone(permits).acquire_owned();
    let permit = tokio::time::timeout(TIME_MAX, permit).await.map_err(|_| BusError::Busy { what })?.ok();
    let work = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(permit);
        done
    });
    Ok(match tokio::time::timeout(TIME_MAX, work).await {
        Ok(done) => done.map_err(|_| UnfinishedCompile::Panicked),
        Err(_) => Err(UnfinishedCompile::Late),
    })
}
