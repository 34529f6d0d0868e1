//! Findings and the rules they break.

use serde::Serialize;

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Severity {
    Error,
    Warning,
}

/// The rules of `lint`. Their names are stable; docs/schema-tools.md has a row for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Rule {
    ConfigInvalid,
    SettingsContradict,
    Exposure,
    ExposurePlain,
    FileMissing,
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
    TopicUnused,
    NotAllSeen,
}

impl Rule {
    pub(super) fn severity(self) -> Severity {
        match self {
            Self::SettingsContradict
            | Self::ExposurePlain
            | Self::TopicLong
            | Self::TopicSingleWord
            | Self::SchemaUndecidable
            | Self::SchemaMissing
            | Self::SchemaIgnored
            | Self::SchemaUnregistered
            | Self::UpcasterMissing
            | Self::HeaderName
            | Self::TopicUnused
            | Self::NotAllSeen => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// The stable name.
    pub(super) fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
    }
}

/// One mistake or warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) rule: Rule,
    /// The file, section, topic or server it is about.
    #[serde(rename = "where")]
    pub(super) place: String,
    pub(super) what: String,
    pub(super) fix: String,
}

/// All findings of a run.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn add(
        &mut self,
        rule: Rule,
        place: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let (place, what, fix) = (place.into(), what.into(), fix.into());
        self.0.push(Finding { severity: rule.severity(), rule, place, what, fix });
    }

    /// The findings without repetitions, errors first, then by place.
    pub(super) fn sorted(mut self) -> Vec<Finding> {
        self.0.sort_by(|one, other| {
            (one.severity, &one.place, one.rule).cmp(&(other.severity, &other.place, other.rule))
        });
        self.0.dedup();
        self.0
    }

    pub(super) fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.severity == Severity::Error)
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(out, "{severity}[{}] {}: {}; {}", self.rule.name(), self.place, self.what, self.fix)
    }
}
