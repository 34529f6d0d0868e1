//! Compiling a program, and running it on JSON text.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use jaq_core::load::lex::Lexer;
use jaq_core::load::parse::{Def, Parser};
use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Filter, Vars, unwrap_valr};
use thiserror::Error;

use super::guard::{Budget, JqTypes, RunData, StopReason, TOO_LARGE};
use super::pool::{Lane, Pool, PoolError, STACK_BYTES};
use super::watch::{JobWatch, ThreadRecord};
use super::{Caps, RunError, names, rewrite, text};

/// Calls of one job, at most, so that other jobs get their turn.
const CHUNK: usize = 64;
/// Bytes of a program, at most.
const PROGRAM_BYTES_MAX: usize = 64 << 10;
/// The name that the program is compiled under.
const MAIN: &str = "promethean_main";

/// A compiled program. Cheap to clone; a clone is stuck when the program is.
#[derive(Clone)]
pub struct Program {
    filter: Arc<Filter<JqTypes>>,
    text: Arc<str>,
    record: Arc<ThreadRecord>,
}

/// The refusal of a text that is no program.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message} at line {line}, column {column}")]
pub struct BadProgram {
    /// What is wrong.
    pub message: String,
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
}

impl Program {
    /// Compiles a text.
    pub fn compile(text: &str) -> Result<Self, BadProgram> {
        if text.len() > PROGRAM_BYTES_MAX {
            let message = format!("the program has {} bytes, more than {PROGRAM_BYTES_MAX}", text.len());
            return Err(BadProgram { message, line: 1, column: 1 });
        }
        // The compiler recurses as deep as the text is nested; a thread with a large stack has room for it.
        let compiled = std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("jq-compile".to_owned()).stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, || compile(text)).ok().and_then(|thread| thread.join().ok())
        });
        let none = || BadProgram { message: "the compiler failed".to_owned(), line: 1, column: 1 };
        let filter = Arc::new(compiled.ok_or_else(none)??);
        Ok(Self { filter, text: text.into(), record: Arc::default() })
    }

    /// The text it was compiled from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is stuck: it keeps four threads, in calls that took too long and have not ended. A stuck
    /// program is not run until one of them ends.
    pub fn is_stuck(&self) -> bool {
        self.record.is_stuck()
    }

    /// Runs it on JSON text. Returns the values it gives, each as JSON text.
    pub async fn run(&self, pool: &Pool, input: &str, caps: Caps) -> Result<Vec<String>, RunError> {
        let (program, input) = (self.clone(), input.to_owned());
        let done = pool.work(Lane::Publish, caps.time, move |watch| program.call(watch, &input, &caps)).await;
        done.unwrap_or_else(|error| Err(error.into()))
    }

    /// Like [`Program::run`], for a thread that may block. Not to be called from an async one.
    pub fn run_blocking(&self, pool: &Pool, input: &str, caps: Caps) -> Result<Vec<String>, RunError> {
        let (program, input) = (self.clone(), input.to_owned());
        let done =
            pool.work(Lane::Publish, caps.time, move |watch| program.call(watch, &input, &caps)).wait();
        done.unwrap_or_else(|error| Err(error.into()))
    }

    /// Runs it on each input by itself. A few dozen inputs share one job.
    pub async fn run_each(&self, pool: &Pool, inputs: Vec<String>, caps: Caps) -> Vec<Outputs> {
        self.run_many(pool, inputs, caps, false).await
    }

    /// Like [`Program::run_each`], but stops at the first failure, which is then the last result.
    pub async fn run_until_failure(&self, pool: &Pool, inputs: Vec<String>, caps: Caps) -> Vec<Outputs> {
        self.run_many(pool, inputs, caps, true).await
    }

    async fn run_many(&self, pool: &Pool, inputs: Vec<String>, caps: Caps, stops: bool) -> Vec<Outputs> {
        let failed = move |done: &[Outputs]| stops && done.last().is_some_and(Result::is_err);
        let mut results: Vec<Outputs> = Vec::with_capacity(inputs.len());
        let inputs: Arc<[String]> = inputs.into();
        while results.len() < inputs.len() && !failed(&results) {
            let at = results.len();
            let part = at..inputs.len().min(at + CHUNK);
            match self.run_chunk(pool, &inputs, part.clone(), caps, stops).await {
                Ok(done) => results.extend(done),
                Err(PoolError::Time { call }) => {
                    // The calls before the slow one had ended, but their outputs are on its thread.
                    let slow = at + (call.max(1) as usize - 1).min(part.len() - 1);
                    for at in at..slow {
                        let again = self.run_chunk(pool, &inputs, at..at + 1, caps, stops).await;
                        results.extend(again.unwrap_or_else(|error| vec![Err(error.into())]));
                        if failed(&results) {
                            break;
                        }
                    }
                    if !failed(&results) {
                        results.push(Err(RunError::Time));
                    }
                }
                Err(error) => results.extend(vec![Err(error.into()); if stops { 1 } else { part.len() }]),
            }
        }
        results
    }

    /// Runs it on a part of these inputs, in one job.
    async fn run_chunk(
        &self,
        pool: &Pool,
        inputs: &Arc<[String]>,
        part: Range<usize>,
        caps: Caps,
        stops: bool,
    ) -> Result<Vec<Outputs>, PoolError> {
        let (program, inputs) = (self.clone(), Arc::clone(inputs));
        let job = move |watch: &JobWatch| {
            let mut done = Vec::with_capacity(part.len());
            for input in inputs.get(part).unwrap_or_default() {
                done.push(program.call(watch, input, &caps));
                if stops && done.last().is_some_and(Result::is_err) {
                    break;
                }
            }
            done
        };
        pool.work(Lane::Read, caps.time, job).await
    }

    /// Folds events into a state. Each call's input is `{"state": ..., "event": ...}`, and its one output is
    /// the next state. Returns the last state.
    pub async fn fold(
        &self,
        pool: &Pool,
        state: String,
        events: Vec<String>,
        caps: Caps,
    ) -> Result<String, RunError> {
        let mut state = state;
        let mut events = events.into_iter().peekable();
        while events.peek().is_some() {
            let chunk: Vec<String> = events.by_ref().take(CHUNK).collect();
            let (program, before) = (self.clone(), state);
            let job = move |watch: &JobWatch| {
                chunk.iter().try_fold(before, |state, event| {
                    program.call_one(watch, &format!(r#"{{"state":{state},"event":{event}}}"#))
                })
            };
            let done = pool.work(Lane::Read, caps.time, job).await;
            state = done.unwrap_or_else(|error| Err(error.into()))?;
        }
        Ok(state)
    }

    /// Makes one call; runs on a thread of the pool.
    pub(super) fn call(&self, watch: &JobWatch, input: &str, caps: &Caps) -> Outputs {
        if self.is_stuck() {
            return Err(RunError::Stuck);
        }
        if !watch.begin_call(&self.record) {
            return Err(RunError::Time);
        }
        let steps = caps.steps.min(Caps::STEPS_MAX);
        // Values are dropped inside too, so no value is seen after a panic.
        let run = AssertUnwindSafe(|| self.evaluate(watch, input, steps, caps));
        match catch_unwind(run) {
            Ok(outputs) => outputs,
            Err(thrown) => Err(match thrown.downcast_ref::<StopReason>() {
                Some(StopReason::Steps) => RunError::Steps { max: steps },
                Some(StopReason::Depth) => RunError::Depth,
                Some(StopReason::Time) => RunError::Time,
                None => RunError::Broken,
            }),
        }
    }

    /// Makes one call that must give exactly one value; runs on a thread of the pool.
    pub fn call_one(&self, watch: &JobWatch, input: &str) -> Result<String, RunError> {
        let caps = Caps { outputs: 1, ..Caps::default() };
        let outputs = match self.call(watch, input, &caps) {
            Err(RunError::Outputs { what: "values", .. }) => {
                return Err(RunError::Outputs { what: "values", max: 1 });
            }
            outputs => outputs?,
        };
        outputs.into_iter().next().ok_or(RunError::Nothing)
    }

    fn evaluate(&self, watch: &JobWatch, input: &str, steps: u64, caps: &Caps) -> Outputs {
        let input = text::read(input)?;
        let budget = Budget::new(steps, watch);
        let context = Ctx::<JqTypes>::new(RunData { lut: &self.filter.lut, budget: &budget }, Vars::new([]));
        let mut outputs = Vec::new();
        let mut left = caps.output_bytes;
        for output in self.filter.id.run((context, input)).map(unwrap_valr) {
            if outputs.len() == caps.outputs {
                return Err(RunError::Outputs { what: "values", max: caps.outputs });
            }
            let output = output.map_err(|error| failed(text::message(&error)))?;
            let output = text::write(&output, left).map_err(|error| match error {
                RunError::Outputs { what, .. } => RunError::Outputs { what, max: caps.output_bytes },
                error => error,
            })?;
            left -= output.len();
            outputs.push(output);
        }
        Ok(outputs)
    }
}

/// What one call gave: each value as JSON text.
pub type Outputs = Result<Vec<String>, RunError>;

impl From<PoolError> for RunError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Time { .. } => Self::Time,
            PoolError::Busy => Self::Busy,
            PoolError::NoThread => Self::NoThread,
        }
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("text", &self.text).field("stuck", &self.is_stuck()).finish()
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

fn failed(message: String) -> RunError {
    if message.contains(TOO_LARGE) { RunError::Size } else { RunError::Failed { message } }
}

fn compile(code: &str) -> Result<Filter<JqTypes>, BadProgram> {
    let tokens = Lexer::new(code).lex().map_err(|errors| {
        let first = errors.into_iter().next();
        let (expected, at) = first.map_or(("a program", code), |(expected, at)| (expected.as_str(), at));
        bad(code, format!("expected {expected}"), at)
    })?;
    let body = Parser::new(&tokens).parse(|parser| parser.term()).map_err(|errors| {
        let Some((expected, found)) = errors.into_iter().next() else {
            return bad(code, "not a program".to_owned(), code);
        };
        let at = found.map_or(code.get(code.len()..).unwrap_or_default(), |token| token.as_str());
        bad(code, format!("expected {}", expected.as_str()), at)
    })?;
    let mut definitions: Vec<Def<&str>> = names::definitions();
    definitions.push(Def { name: MAIN, args: Vec::new(), body });
    let definitions = definitions.into_iter().map(rewrite::definition);
    let arena = Arena::default();
    let none = || bad(code, "not a program".to_owned(), code);
    let file = File { code: MAIN, path: () };
    let modules = Loader::new(definitions).load(&arena, file).map_err(|_| none())?;
    Compiler::default().with_funs(names::functions()).compile(modules).map_err(|errors| {
        let first = errors.into_iter().flat_map(|(_, errors)| errors).next();
        first.map_or_else(none, |(name, undefined)| {
            bad(code, format!("unknown {} `{name}`", undefined.as_str()), name)
        })
    })
}

/// Makes the error for a place. `at` is a part of the text, or of one of our own definitions.
fn bad(code: &str, message: String, at: &str) -> BadProgram {
    let start = at.as_ptr().addr().checked_sub(code.as_ptr().addr()).filter(|start| *start <= code.len());
    let before = code.get(..start.unwrap_or(0)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    BadProgram { message, line, column }
}
