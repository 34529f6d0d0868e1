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
        self.0.push(LintFinding { severity: rule.severity(), rule, place, what, fix });
    }

    /// The findings without repetitions, errors first, then by place.
    pub(super) fn sorted(mut self) -> Vec<LintFinding> {
        self.0.sort_by(|one, other| {
            (one.severity, &one.place, one.rule).cmp(&(other.severity, &other.place, other.rule))
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
        write!(out, "{severity}[{}] {}: {}; {}", self.rule.name(), self.place, self.what, self.fix)
    }
}
