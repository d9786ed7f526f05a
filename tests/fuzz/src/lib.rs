//! What holds of every input, whatever is fuzzed: an answer in time and in little memory.

use std::time::Duration;

use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};

/// Counts what is allocated. It becomes the allocator of whatever links this crate.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Processor time of one answer in an optimised build.
const TIME_MAX: Duration = Duration::from_millis(50);

/// A build that counts its branches for the fuzzer takes up to this many times as long.
const INSTRUMENTED_FACTOR: u32 = 3;

/// Memory that one answer may take above what is held before it.
const BYTES_MAX: usize = 16 << 20;

/// Runs `work`, which has to be done on this thread, and panics where it takes more than its share.
pub fn bounded<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let held = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let started = processor_time();
    let done = work();
    let taken = processor_time() - started;
    let most = MEMORY.peak_usage().saturating_sub(held);
    assert!(taken <= TIME_MAX * INSTRUMENTED_FACTOR, "{what} took {taken:?}");
    assert!(most <= BYTES_MAX, "{what} took {most} bytes");
    done
}

/// Of this thread: what else the machine does is not counted.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("a thread has run for some time");
    Duration::new(seconds, u32::try_from(time.tv_nsec).expect("below a second"))
}
