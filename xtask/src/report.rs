//! The findings of a check.

/// The findings of a check: failures stop the build, warnings are only printed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    failures: Vec<String>,
    warnings: Vec<String>,
}

impl Report {
    pub(crate) fn fail(&mut self, finding: impl Into<String>) {
        self.failures.push(finding.into());
    }

    pub(crate) fn warn(&mut self, finding: impl Into<String>) {
        self.warnings.push(finding.into());
    }

    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
