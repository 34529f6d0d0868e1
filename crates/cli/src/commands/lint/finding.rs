//! Findings and the rules they break.

use serde::Serialize;

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LintSeverity {
    Error,
    Warning,
}

/// The rules of `lint`. Their names are stable; docs/schema-tools.md has a row for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LintRule {
    ConfigInvalid,
    SettingsContradict,
    Exposure,
    ExposurePlain,
    FileMissing,
    SecretReadable,
    TopicName,
    TopicSystem,
    TopicVersion,
    TopicLong,
    TopicSingleWord,
    SchemaFile,
    SchemaInvalid,
    SchemaIncompatible,
    SchemaUndecidable,
    SchemaRequired,
    SchemaMissing,
    SchemaIgnored,
    SchemaDiffers,
    SchemaUnregistered,
    UpcasterInvalid,
    UpcasterDangling,
    UpcasterMissing,
    FolderRefused,
    HeaderName,
    HeaderCredential,
    TopicUnused,
    NotAllSeen,
}

impl LintRule {
    pub(super) fn severity(self) -> LintSeverity {
        match self {
            Self::SettingsContradict
            | Self::ExposurePlain
            | Self::SecretReadable
            | Self::TopicLong
            | Self::TopicSingleWord
            | Self::SchemaUndecidable
            | Self::SchemaMissing
            | Self::SchemaIgnored
            | Self::SchemaUnregistered
            | Self::UpcasterMissing
            | Self::HeaderName
            | Self::HeaderCredential
            | Self::TopicUnused
            | Self::NotAllSeen => LintSeverity::Warning,
            Self::ConfigInvalid
            | Self::Exposure
            | Self::FileMissing
            | Self::TopicName
            | Self::TopicSystem
            | Self::TopicVersion
            | Self::SchemaFile
            | Self::SchemaInvalid
            | Self::SchemaIncompatible
            | Self::SchemaRequired
            | Self::SchemaDiffers
            | Self::UpcasterInvalid
            | Self::UpcasterDangling
            | Self::FolderRefused => LintSeverity::Error,
        }
    }

    /// The stable name.
    pub(super) fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
    }
}

/// One mistake or warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LintFinding {
    pub(super) severity: LintSeverity,
    pub(super) rule: LintRule,
    /// The file, section, topic or server it is about.
    #[serde(rename = "where")]
    pub(super) place: String,
    /// The line of the configuration file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<usize>,
    pub(super) what: String,
    pub(super) fix: String,
}

/// All findings of a run.
#[derive(Debug, Default)]
pub(super) struct LintFindings(Vec<LintFinding>);

impl LintFindings {
    pub(super) fn add(
        &mut self,
        rule: LintRule,
        place: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let (place, what, fix) = (place.into(), what.into(), fix.into());
        self.0.push(LintFinding { severity: rule.severity(), rule, place, line: None, what, fix });
    }

    /// Gives the findings of a file that have no line yet the line that `find` knows.
    pub(super) fn locate(&mut self, file: &str, find: impl Fn(&LintFinding) -> Option<usize>) {
        for finding in self.0.iter_mut().filter(|finding| finding.line.is_none()) {
            let rest = finding.place.strip_prefix(file);
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" [")) {
                finding.line = find(finding);
            }
        }
    }

    /// Adds a finding in a line.
    pub(super) fn add_at(&mut self, line: Option<usize>, rule: LintRule, place: &str, what: &str, fix: &str) {
        self.add(rule, place, what, fix);
        if let Some(last) = self.0.last_mut() {
            last.line = line;
        }
    }

    /// The findings without repetitions, errors first, then by place.
    pub(super) fn sorted(mut self) -> Vec<LintFinding> {
        self.0.sort_by(|one, other| {
            (one.severity, &one.place, one.line, one.rule).cmp(&(
                other.severity,
                &other.place,
                other.line,
                other.rule,
            ))
        });
        self.0.dedup();
        self.0
    }

    pub(super) fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.severity == LintSeverity::Error)
    }
}

impl std::fmt::Display for LintFinding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let severity = match self.severity {
            LintSeverity::Error => "error",
            LintSeverity::Warning => "warning",
        };
        let place = match (self.line, self.place.split_once(" [")) {
            (None, _) => self.place.clone(),
            (Some(line), None) => format!("{}:{line}", self.place),
            (Some(line), Some((file, section))) => format!("{file}:{line} [{section}"),
        };
        write!(out, "{severity}[{}] {place}: {}; {}", self.rule.name(), self.what, self.fix)
    }
}
