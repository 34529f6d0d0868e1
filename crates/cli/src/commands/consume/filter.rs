//! The jq program of `--filter`, which runs in this process.

use anyhow::{Result, anyhow};
use promethean_jq::{Caps, Pool, Program};

use super::format::UntypedEvent;

/// A filter of events; without a program every event passes.
pub(crate) struct JqFilter {
    program: Option<(Program, Pool)>,
}

impl JqFilter {
    pub(crate) fn new(text: Option<&str>) -> Result<Self> {
        let compiled =
            text.map(Program::compile).transpose().map_err(|error| anyhow!("--filter: {error}"))?;
        Ok(Self { program: compiled.map(|program| (program, Pool::new())) })
    }

    /// Whether each event passes: the program gives something other than `false` and `null`. Fails at an event
    /// that the program cannot handle.
    pub(crate) async fn passes(&self, events: &[&UntypedEvent]) -> Result<Vec<bool>> {
        let Some((program, pool)) = &self.program else { return Ok(vec![true; events.len()]) };
        let inputs = events.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        let ran = program.run_each(pool, inputs, Caps::default()).await;
        let passed = ran.into_iter().zip(events).map(|(output, event)| {
            let output = output.map_err(|error| {
                anyhow!(
                    "--filter fails at offset {} of `{}`: {error}; `?` and `//` let jq pass over it",
                    event.offset,
                    event.topic
                )
            })?;
            Ok(output.first().is_some_and(|first| first != "false" && first != "null"))
        });
        passed.collect()
    }
}
