//! Verification: reads all segments and runs, and compares them with their checksums and with each other.

use crate::core::LogCore;
use crate::error::{LogDamage, LogReadError};
use crate::files::SegmentPart;
use crate::index::IndexRunError;
use crate::read::ReadLimit;
use crate::runs::run_error;
use crate::segment::{HEADER_BYTES, SegmentMeta};
use crate::topic::Topic;

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogVerifyReport {
    /// The number of topics.
    pub topics: u64,
    /// The number of segments read.
    pub segments: u64,
    /// The number of records whose checksums, topics and offsets fit.
    pub records: u64,
    /// The number of bytes read.
    pub bytes: u64,
    /// The number of index runs read.
    pub runs: u64,
    /// The damage.
    pub damage: Vec<LogDamage>,
    /// The errors of files that could not be read.
    pub errors: Vec<String>,
}

impl LogVerifyReport {
    /// Whether there is neither damage nor an error.
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.errors.is_empty()
    }
}

/// Checks all segments and runs. Journal and manifest were checked when the log was opened.
///
/// Holds no lock while it reads: written bytes do not change, and findings in files that were removed or
/// replaced meanwhile are dropped.
pub(crate) fn verify(core: &LogCore, progress: &mut dyn FnMut(u64, u64)) -> LogVerifyReport {
    let mut report = LogVerifyReport::default();
    let mut topics: Vec<Topic> = core.read_catalog(|catalog| catalog.by_id.values().cloned().collect());
    topics.sort_by_key(Topic::id);
    let total = topics.iter().map(|topic| topic.info().bytes).sum();
    for topic in &topics {
        report.topics += 1;
        let segments = topic.state().on_disk();
        for meta in &segments {
            let before = (report.damage.len(), report.errors.len());
            verify_segment(core, topic, meta, &mut report, &mut |bytes| progress(bytes, total));
            if topic.state().segment_by_id(meta.id).is_some() && !topic.is_deleted() {
                report.segments += 1;
            } else {
                report.damage.truncate(before.0);
                report.errors.truncate(before.1);
            }
        }
    }
    report.runs = core.index.runs().all().count() as u64;
    for (number, error) in core.index.verify() {
        if !core.index.runs().all().any(|run| run.meta().number == number) {
            continue;
        }
        match error {
            IndexRunError::Io { .. } => report.errors.push(error.to_string()),
            damaged => {
                if let LogReadError::CorruptRange(damage) = run_error(damaged) {
                    report.damage.push(damage);
                }
            }
        }
    }
    report
}

/// Whether the file of a segment starts as it must. A missing file is met when its records are read.
fn has_header(core: &LogCore, meta: &SegmentMeta) -> bool {
    let Ok(file) = core.files.get(meta.id, SegmentPart::Records) else { return true };
    file.read_vec_at(0, HEADER_BYTES as usize).is_ok_and(|found| found == meta.id.encode_header())
}

fn verify_segment(
    core: &LogCore,
    topic: &Topic,
    meta: &SegmentMeta,
    report: &mut LogVerifyReport,
    progress: &mut dyn FnMut(u64),
) {
    let limit = ReadLimit { events: usize::MAX, bytes: 1024 * 1024 };
    let mut next = meta.id.base;
    let before = report.records;
    let mut lost = false;
    if !has_header(core, meta) {
        report.damage.push(LogDamage {
            topic: Some(topic.name().to_string()),
            file: meta.id.path(),
            from_byte: 0,
            to_byte: HEADER_BYTES,
            from_offset: meta.id.base,
            to_offset: meta.id.base,
            what: "the segment's header does not verify",
        });
    }
    while next < meta.end {
        match core.read_segment(topic, meta, next, limit) {
            Ok(page) => {
                report.records += page.len() as u64;
                report.bytes += page.iter().map(|view| view.len as u64).sum::<u64>();
                progress(report.bytes);
                if page.next == next {
                    break;
                }
                next = page.next;
            }
            Err(LogReadError::CorruptRange(damage)) => {
                lost = true;
                next = damage.to_offset.max(next + 1);
                report.damage.push(damage);
            }
            Err(error) => {
                report.errors.push(error.to_string());
                return;
            }
        }
    }
    if next >= meta.end && !lost && report.records - before != meta.records {
        report.errors.push(format!(
            "{} has {} records, the manifest says {}",
            meta.id.path(),
            report.records - before,
            meta.records
        ));
    }
}
