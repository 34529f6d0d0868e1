//! The check of a payload against a compiled schema, in bounded time.
//!
//! A small payload is checked where it arrives. A large one, or one that takes many steps, is checked on a thread that
//! may block, and refused if it takes too many.

use std::sync::Arc;

use promethean_schema::SchemaRejected;
use promethean_schema::validator::OutOfSteps;
use serde_json::Value;

use super::cache::CompiledSchema;
use super::{Schemas, compiler};
use crate::error::BusError;

/// Bytes of a payload that is checked on the thread of its publisher.
const AT_ONCE_BYTES_MAX: usize = 32 << 10;
/// Steps that such a check may take, and collecting what is wrong as many.
const AT_ONCE_STEPS_MAX: u64 = 5_000;
/// Steps that a check on another thread may take, whatever the size of the payload.
const STEPS_MIN: u64 = 200_000;
/// Further steps for each byte of the payload.
const STEPS_PER_BYTE: u64 = 8;
/// Steps for collecting what is wrong, on another thread.
const REJECTION_STEPS_MAX: u64 = 200_000;

impl Schemas {
    /// Refuses a payload that does not fit, or whose check takes too long. The payload was checked to be JSON
    /// before.
    pub(super) async fn fit(&self, compiled: &Arc<CompiledSchema>, payload: &str) -> Result<(), BusError> {
        if compiled.check_at_once(payload)? {
            return Ok(());
        }
        compiler::check_off_thread(self, compiled, payload.to_owned()).await
    }
}

impl CompiledSchema {
    /// Checks a small payload. Returns `false` if it is large, or if the check takes long.
    pub(super) fn check_at_once(&self, payload: &str) -> Result<bool, BusError> {
        if payload.len() > AT_ONCE_BYTES_MAX {
            return Ok(false);
        }
        match self.check_within(payload, AT_ONCE_STEPS_MAX, AT_ONCE_STEPS_MAX) {
            Ok(checked) => checked.map(|()| true),
            Err(OutOfSteps) => Ok(false),
        }
    }

    /// Checks a payload, on a thread that no publisher waits for.
    pub(super) fn check(&self, payload: &str) -> Result<(), BusError> {
        let steps = STEPS_MIN + STEPS_PER_BYTE * payload.len() as u64;
        self.check_within(payload, steps, REJECTION_STEPS_MAX).map_err(|OutOfSteps| self.too_costly())?
    }

    /// The refusal of a payload whose check takes too long.
    pub(super) fn too_costly(&self) -> BusError {
        BusError::SchemaTooCostly { topic: self.topic.clone(), version: self.version }
    }

    fn check_within(
        &self,
        payload: &str,
        steps: u64,
        rejection_steps: u64,
    ) -> Result<Result<(), BusError>, OutOfSteps> {
        let not_json = |error| BusError::StorageFailed { reason: format!("a payload is not JSON: {error}") };
        let value: Value = match serde_json::from_str(payload).map_err(not_json) {
            Ok(value) => value,
            Err(error) => return Ok(Err(error)),
        };
        if self.validator.fits(&value, steps)? {
            return Ok(Ok(()));
        }
        let rejected =
            SchemaRejected::new(&self.topic, self.version, &self.validator, &value, rejection_steps);
        Ok(Err(BusError::SchemaRejected(Box::new(rejected))))
    }
}
