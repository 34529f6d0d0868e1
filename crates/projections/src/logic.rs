//! The logic of a projector: a function from an event to changes, in Rust or jq.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use promethean_bus::StoredEvent;
use promethean_bus::user_event;
use promethean_jq::{Caps, Pool, Program, RunError};
use promethean_model::Event;

use crate::change::Change;
use crate::error::ProjectFailure;

/// The most changes that one event may make.
pub const CHANGES_MAX: usize = 1_000;

/// A projector written in Rust: a pure function from an event to changes. It must return the same changes
/// whenever it is called with the same event.
pub trait Project: Send + Sync + 'static {
    /// Returns the changes that an event makes, or why the event cannot be projected.
    fn project(&self, event: &Event) -> Result<Vec<Change>, String>;
}

impl<F: Fn(&Event) -> Result<Vec<Change>, String> + Send + Sync + 'static> Project for F {
    fn project(&self, event: &Event) -> Result<Vec<Change>, String> {
        self(event)
    }
}

/// The function that turns events into changes.
#[derive(Clone)]
pub enum Logic {
    /// A function in Rust.
    Rust(Arc<dyn Project>),
    /// A jq program: its input is the event, each of its outputs a change.
    Jq(Program),
}

/// The changes of an event, or why there are none.
pub(crate) type Projected = Result<Vec<Change>, ProjectFailure>;

impl Logic {
    /// A projector in Rust.
    pub fn rust(project: impl Project) -> Self {
        Self::Rust(Arc::new(project))
    }

    /// The text of the program, by which a changed program is recognised. The same for all functions in Rust.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Rust(_) => "rust",
            Self::Jq(program) => program.text(),
        }
    }

    /// The changes of each event, up to the first that fails.
    pub(crate) async fn project(&self, pool: &Pool, events: &[StoredEvent]) -> Vec<Projected> {
        match self {
            Self::Rust(project) => rust(project, events).await,
            Self::Jq(program) => jq(pool, program, events).await,
        }
    }
}

async fn rust(project: &Arc<dyn Project>, events: &[StoredEvent]) -> Vec<Projected> {
    let (project, events) = (Arc::clone(project), events.to_vec());
    let run = move || {
        let mut done: Vec<Projected> = Vec::with_capacity(events.len());
        for event in &events {
            done.push(rust_one(&*project, event));
            if done.last().is_some_and(Result::is_err) {
                break;
            }
        }
        done
    };
    let done = tokio::task::spawn_blocking(run).await;
    // Panics are caught in `rust_one`, so that an error means that the runtime shuts down.
    done.unwrap_or_else(|error| vec![Err(ProjectFailure::Later(error.to_string()))])
}

fn rust_one(project: &dyn Project, event: &StoredEvent) -> Projected {
    let event = user_event(event).map_err(|error| ProjectFailure::Event(error.to_string()))?;
    // A projector that panics has no state of its own that could be left half changed.
    let changes = catch_unwind(AssertUnwindSafe(|| project.project(&event)));
    let changes =
        changes.unwrap_or_else(|thrown| Err(format!("the projector panicked: {}", text_of(&*thrown))));
    changes.and_then(bounded).map_err(ProjectFailure::Event)
}

fn bounded(changes: Vec<Change>) -> Result<Vec<Change>, String> {
    if changes.len() <= CHANGES_MAX {
        return Ok(changes);
    }
    Err(format!("{} changes of one event; make at most {CHANGES_MAX}", changes.len()))
}

fn text_of(thrown: &(dyn std::any::Any + Send)) -> &str {
    let text = thrown.downcast_ref::<&str>().copied();
    text.or_else(|| thrown.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

async fn jq(pool: &Pool, program: &Program, events: &[StoredEvent]) -> Vec<Projected> {
    let mut inputs = Vec::with_capacity(events.len());
    for event in events {
        let read = user_event(event).map_err(|error| error.to_string());
        let json = read.and_then(|event| serde_json::to_string(&event).map_err(|error| error.to_string()));
        match json {
            Ok(json) => inputs.push(json),
            // The events before it are projected first.
            Err(error) => {
                let mut done = jq_all(pool, program, inputs).await;
                if done.iter().all(Result::is_ok) {
                    done.push(Err(ProjectFailure::Event(error)));
                }
                return done;
            }
        }
    }
    jq_all(pool, program, inputs).await
}

async fn jq_all(pool: &Pool, program: &Program, inputs: Vec<String>) -> Vec<Projected> {
    let caps = Caps { outputs: CHANGES_MAX, ..Caps::default() };
    let outputs = program.run_until_failure(pool, inputs, caps).await;
    outputs.into_iter().map(jq_changes).collect()
}

fn jq_changes(outputs: Result<Vec<String>, RunError>) -> Projected {
    let outputs = outputs.map_err(|error| match error {
        RunError::NoThread | RunError::Busy => ProjectFailure::Later(error.to_string()),
        RunError::Stuck => ProjectFailure::Stuck(error.to_string()),
        RunError::Time => ProjectFailure::TooSlow(error.to_string()),
        _ => ProjectFailure::Event(error.to_string()),
    })?;
    outputs.iter().map(|output| read_change(output).map_err(ProjectFailure::Event)).collect()
}

/// Parses a change that a program gives.
pub(crate) fn read_change(json: &str) -> Result<Change, String> {
    serde_json::from_str(json).map_err(|error| {
        let shown: String = json.chars().take(200).collect();
        format!("`{shown}` is no change ({error}); give {{upsert: ...}}, {{delete: ...}} or {{publish: ...}}")
    })
}

impl std::fmt::Debug for Logic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Logic").field(&self.text()).finish()
    }
}
