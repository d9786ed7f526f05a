//! The time as it is recorded: the wall clock at the start, and from then on the runtime's, so that a paused clock counts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::worker::Time;

/// A clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base_ms: i64,
    started: Instant,
}

impl Clock {
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { base_ms: milliseconds(since_epoch), started: Instant::now() }
    }

    pub fn now(&self) -> Time {
        Time(self.base_ms.saturating_add(milliseconds(self.started.elapsed())))
    }

    /// From `time` to now; nothing where it lies ahead, as after the clock of a stopped machine was set back.
    pub fn since(&self, time: Time) -> Duration {
        Duration::from_millis(u64::try_from(self.now().0.saturating_sub(time.0)).unwrap_or(0))
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
