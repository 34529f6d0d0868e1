//! `bench state`: projectors, documents over HTTP, time travel and compaction, over the embedded store.
//!
//! `project` beside what the topic can be read at, `snap` with whole answers beside those that say that nothing changed,
//! `travel` for topics of growing size, `compact` with the memory it takes.

mod compact;
mod ground;
mod project;
mod snap;
mod travel;

use anyhow::{Context, Result};

use self::ground::Ground;
use super::measurement;
use super::scratch::Scratch;
use super::summary::{self, Goal};
use crate::args::{StateArgs, StateMeasurement};

/// One run.
struct Bench {
    events: u64,
    quick: bool,
    scratch: Scratch,
    goals: Vec<Goal>,
}

pub(super) fn run(args: &StateArgs) -> Result<()> {
    let quick = args.common.quick;
    let mut bench = Bench {
        events: args.events.unwrap_or(if quick { 50_000 } else { 1_000_000 }),
        quick,
        scratch: Scratch::new(args.common.data.as_deref())?,
        goals: Vec::new(),
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start a runtime")?;
    let wanted = |one: StateMeasurement| args.common.only.is_empty() || args.common.only.contains(&one);
    runtime.block_on(async {
        if wanted(StateMeasurement::Project) {
            project::run(&mut bench).await?;
        }
        if wanted(StateMeasurement::Snap) {
            snap::run(&mut bench).await?;
        }
        if wanted(StateMeasurement::Travel) {
            travel::run(&mut bench).await?;
        }
        if wanted(StateMeasurement::Compact) {
            compact::run(&mut bench).await?;
        }
        anyhow::Ok(())
    })?;
    summary::line(&bench.goals, bench.quick).print()
}
