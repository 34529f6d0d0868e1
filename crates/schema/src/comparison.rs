//! The comparison of a new version with the versions before it, and the refusal of one that does not fit.

use promethean_model::{Compat, TopicName};
use serde::Serialize;

use crate::compat::{CompatDirection, CompatReport, Verdict};

/// The comparison with one version, in one direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The version it was compared with.
    pub version: u32,
    /// The direction.
    pub direction: CompatDirection,
    /// The verdict and its findings.
    #[serde(flatten)]
    pub report: CompatReport,
}

/// The refusal of a new version that does not fit, or of which the check could not decide that.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Incompatible {
    /// The topic.
    pub topic: TopicName,
    /// The rule of the topic.
    pub compat: Compat,
    /// The worst verdict: `incompatible`, else `undecidable`.
    pub verdict: Verdict,
    /// Every comparison whose verdict is not `compatible`.
    pub compared: Vec<Compared>,
}

// Numbers in findings come from JSON, which has no NaN.
impl Eq for Incompatible {}

impl std::fmt::Display for Incompatible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { topic, verdict, compared, .. } = self;
        let first = compared.first();
        let version = first.map_or(0, |compared| compared.version);
        let finding = first.and_then(|compared| compared.report.findings.first());
        let what = match verdict {
            Verdict::Undecidable => "cannot be compared",
            _ => "is not compatible",
        };
        write!(f, "the schema {what} with version {version} of topic `{topic}`")?;
        if let Some(finding) = finding {
            write!(
                f,
                ": {} at `{}`: {}",
                finding.rule.word(),
                finding.path,
                finding.fix.trim_end_matches('.')
            )?;
        }
        let way = match verdict {
            Verdict::Undecidable => "register it with `force` if you know that it is",
            _ => "change it, or set the topic's `compat` to none",
        };
        write!(f, "; {way}")
    }
}

impl std::error::Error for Incompatible {}

/// Refuses a version if a comparison is not `compatible`. With `force`, an undecidable comparison is let through, and the
/// answer is true.
pub fn judge(
    topic: &TopicName,
    compat: Compat,
    compared: &[Compared],
    force: bool,
) -> Result<bool, Box<Incompatible>> {
    let verdict = match Verdict::worst(compared.iter().map(|compared| compared.report.verdict)) {
        Verdict::Compatible => return Ok(false),
        Verdict::Undecidable if force => return Ok(true),
        bad => bad,
    };
    let mut bad: Vec<Compared> =
        compared.iter().filter(|compared| compared.report.verdict != Verdict::Compatible).cloned().collect();
    // The worst come first.
    bad.sort_by_key(|compared| compared.report.verdict != verdict);
    Err(Box::new(Incompatible { topic: topic.clone(), compat, verdict, compared: bad }))
}
