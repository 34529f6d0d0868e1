//! The report of a verification of the whole store.

use promethean_log::LogVerifyReport;

use super::engine::Engine;
use crate::state::check;

/// The most faults that a report lists; further faults are only counted.
const FAULTS_MAX: usize = 100;

/// What a verification found.
#[derive(Debug, Clone, Default)]
pub struct VerifyReport {
    /// Events and their indexes.
    pub log: LogVerifyReport,
    /// Entries of state read.
    pub state_entries: u64,
    /// Entries of state that do not decode or do not match each other.
    pub state_faults: u64,
    /// The first of these faults, as text.
    pub state_details: Vec<String>,
}

impl VerifyReport {
    /// Whether no fault was found.
    pub fn is_clean(&self) -> bool {
        self.log.is_clean() && self.state_faults == 0
    }

    pub(super) fn of(log: LogVerifyReport, engine: &Engine) -> Self {
        let mut report = Self { log, ..Self::default() };
        let checked = check(&engine.image(), &mut |detail| report.fault(detail));
        match checked {
            Ok(entries) => report.state_entries = entries,
            Err(fault) => report.fault(fault.to_string()),
        }
        report
    }

    fn fault(&mut self, detail: String) {
        self.state_faults += 1;
        if self.state_details.len() < FAULTS_MAX {
            self.state_details.push(detail);
        }
    }
}
