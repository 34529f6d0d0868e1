//! `raw`: the limits of the machine, without the log.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Result;

use super::LogRun;
use crate::run::measurement;
use crate::timing::{Samples, timed};

const MIB: usize = 1024 * 1024;
const CHUNKS: [usize; 2] = [MIB, 64 * 1024];
const SYNCED_BYTES: [usize; 2] = [256, 64 * 1024];
const PREAD_BYTES: usize = 4096;

pub(crate) fn run(bench: &mut LogRun) -> Result<()> {
    let dir = bench.scratch.fresh("raw")?;
    let file_bytes = if bench.plan.quick { 64 * MIB } else { 1024 * MIB };
    for chunk in CHUNKS {
        // The first pass allocates the page cache and is not measured.
        write_rate(&dir.path().join("write"), chunk, file_bytes)?;
        let mb_per_s = write_rate(&dir.path().join("write"), chunk, file_bytes)?;
        let line = measurement("raw").with("what", "write").with("sync", "none").with("chunk_bytes", chunk);
        line.figure("mb_per_s", mb_per_s).print()?;
    }
    for bytes in SYNCED_BYTES {
        let mut samples = sync_latency(dir.path(), bytes, bench.plan.operations().min(1_000))?;
        let line = measurement("raw").with("what", "fdatasync").with("sync", "fsync").with("bytes", bytes);
        line.figure("p50_us", samples.p50_us()).figure("p99_us", samples.p99_us()).print()?;
    }
    let mut samples = read_latency(&dir.path().join("write"), file_bytes, bench.plan.operations())?;
    let line = measurement("raw").with("what", "pread").with("sync", "none").with("bytes", PREAD_BYTES);
    line.figure("p50_us", samples.p50_us()).figure("p99_us", samples.p99_us()).print()
}

/// Megabytes per second of `write` into a new file, into the page cache.
fn write_rate(path: &Path, chunk: usize, file_bytes: usize) -> Result<f64> {
    let bytes = vec![7; chunk];
    let mut file = File::create(path)?;
    let (written, took) = timed(|| (0..file_bytes / chunk).try_for_each(|_| file.write_all(&bytes)));
    written?;
    Ok(file_bytes as f64 / 1e6 / took.as_secs_f64())
}

/// Times one write and one `fdatasync` in a file that was filled with zeros before, as the files of the
/// journal are.
pub(crate) fn sync_latency(dir: &Path, bytes: usize, count: usize) -> Result<Samples> {
    let path = dir.join("fdatasync");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    let zeros = vec![0; MIB];
    let file_bytes = (bytes * count).div_ceil(MIB) * MIB;
    (0..file_bytes / MIB).try_for_each(|_| file.write_all(&zeros))?;
    file.sync_all()?;
    let data = vec![7; bytes];
    let samples = Samples::take(count, |number| {
        file.write_all_at(&data, (number * bytes) as u64)?;
        Ok(file.sync_data()?)
    });
    std::fs::remove_file(&path)?;
    samples
}

fn read_latency(path: &Path, file_bytes: usize, count: usize) -> Result<Samples> {
    let file = File::open(path)?;
    let mut page = [0; PREAD_BYTES];
    let pages = file_bytes / PREAD_BYTES;
    Samples::take(count, |number| {
        // The step has no common divisor with the number of pages, so it visits each page once, far from the
        // last.
        let at = number * 7919 % pages * PREAD_BYTES;
        Ok(file.read_exact_at(&mut page, at as u64)?)
    })
}
