//! What a process has cost so far, as Linux counts it.

use std::{
    fs,
    time::{Duration, Instant},
};

/// Linux tells processor time in ticks of this many a second, on every machine that we run on.
const TICKS_PER_SECOND: u64 = 100;

/// Processor time and wall time of one process from one moment on.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    process: u32,
    processor: Duration,
    began: Instant,
}

impl Cost {
    /// Begins to count for a process.
    pub fn of(process: u32) -> Self {
        Self { process, processor: processor_time(process), began: Instant::now() }
    }

    /// Processor time since then, to 10 ms: count over a second or more.
    pub fn processor(&self) -> Duration {
        processor_time(self.process) - self.processor
    }

    /// Wall time since then.
    pub fn wall(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Processor time of all threads of a process, those that ended included, in user and system mode.
pub fn processor_time(process: u32) -> Duration {
    let text = read(process, "stat");
    // The name of the program comes first, in parentheses, and may have blanks.
    let (_, rest) = text.rsplit_once(')').expect("`stat` has the program's name in parentheses");
    let ticks: u64 = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().expect("a count of ticks"))
        .sum();
    Duration::from_millis(ticks * (1_000 / TICKS_PER_SECOND))
}

/// Resident memory of a process, bytes.
pub fn resident_bytes(process: u32) -> u64 {
    let text = read(process, "status");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("`status` has `VmRSS`");
    let kibibytes: u64 =
        line.split_whitespace().nth(1).and_then(|field| field.parse().ok()).expect("a count of KiB");
    kibibytes * 1024
}

/// The one in the middle; of two, the lower one.
///
/// # Panics
///
/// Of nothing there is none.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[(figures.len() - 1) / 2]
}

fn read(process: u32, file: &str) -> String {
    let path = format!("/proc/{process}/{file}");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("failed to read `{path}`: {error}"))
}
