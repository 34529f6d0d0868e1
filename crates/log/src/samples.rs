//! The search for the position in a segment file from which to scan.

use crate::core::LogCore;
use crate::files::SegmentPart;
use crate::read::{FilePlace, segment_start};
use crate::segment::{SAMPLE_BYTES, Sample};

/// Finds position and offset of the last sample for which `before` holds, or of the segment's first record.
/// `before` must hold for a prefix of the samples. A sample that cannot be read only makes the scan longer.
pub(crate) fn start_at(core: &LogCore, place: &FilePlace, before: impl Fn(&Sample) -> bool) -> (u64, u64) {
    let written = |sample: &Sample| u64::from(sample.pos) < place.applied;
    let recent = place.samples.partition_point(|sample| before(sample) && written(sample));
    let sample = match recent.checked_sub(1).and_then(|last| place.samples.get(last)) {
        Some(sample) => Some(*sample),
        None => search_file(core, place, &before).filter(written),
    };
    sample.map_or_else(|| segment_start(&place.meta), |sample| (u64::from(sample.pos), sample.offset))
}

fn search_file(core: &LogCore, place: &FilePlace, before: &impl Fn(&Sample) -> bool) -> Option<Sample> {
    let (mut low, mut high) = (0, place.meta.samples);
    let mut best = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match read_sample(core, place, middle) {
            Some(sample) if before(&sample) => {
                best = Some(sample);
                low = middle + 1;
            }
            Some(_) => high = middle,
            // Unreadable: everything before it is still in order.
            None => high = middle,
        }
    }
    best
}

fn read_sample(core: &LogCore, place: &FilePlace, index: u32) -> Option<Sample> {
    let file = core.files.get(place.meta.id, SegmentPart::Samples).ok()?;
    let mut bytes = [0; SAMPLE_BYTES];
    let count = file.read_at(&mut bytes, u64::from(index) * SAMPLE_BYTES as u64).ok()?;
    if count < SAMPLE_BYTES {
        return None;
    }
    let sample = Sample::decode(&bytes, place.meta.id.topic)?;
    let inside = sample.offset >= place.meta.id.base && sample.offset < place.meta.end;
    inside.then_some(sample)
}
