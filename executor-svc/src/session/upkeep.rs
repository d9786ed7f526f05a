//! What nobody asks for and has to be done all the same: idle roots are closed, and old trees are deleted.

use std::{sync::Arc, time::Duration};

use tokio::time::{self, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Log, StoreError, Sweep, Swept};

/// Between two sweeps. What is swept is counted in hours and days.
const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Trees deleted in one transaction: what waits for the store meanwhile waits for that long.
const TREES_MAX: usize = 16;

/// How long what is over is kept.
#[derive(Clone, Copy, Debug)]
pub struct Upkeep {
    /// Open roots without a worker for this long are closed.
    pub idle: Duration,
    /// Closed trees are deleted after this.
    pub retention: Duration,
}

/// Sweeps now and every ten minutes, until `cancel`. A sweep that fails is reported and tried again at the next one.
pub async fn keep(log: Arc<dyn Log>, upkeep: Upkeep, cancel: CancellationToken) {
    let mut due = time::interval(INTERVAL);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while cancel.run_until_cancelled(due.tick()).await.is_some() {
        match sweep(log.as_ref(), upkeep, &cancel).await {
            Ok(Swept { closed: 0, deleted: 0 }) => {}
            Ok(Swept { closed, deleted }) => info!(closed, deleted, "swept sessions"),
            Err(error) => warn!(error = &error as &dyn std::error::Error, "sessions could not be swept"),
        }
    }
}

/// Everything that is due, a few trees at a time.
async fn sweep(log: &dyn Log, upkeep: Upkeep, cancel: &CancellationToken) -> Result<Swept, StoreError> {
    let Upkeep { idle, retention } = upkeep;
    let mut swept = Swept { closed: 0, deleted: 0 };
    while !cancel.is_cancelled() {
        let Swept { closed, deleted } = log.sweep(Sweep { idle, retention, limit: TREES_MAX }).await?;
        swept.closed += closed;
        swept.deleted += deleted;
        if deleted < TREES_MAX {
            break;
        }
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{session::sqlite::tests::Fixture, worker::StopReason};

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn upkeep() -> Upkeep {
        Upkeep { idle: DAY, retention: 30 * DAY }
    }

    #[tokio::test]
    async fn a_sweep_goes_on_until_nothing_is_due() {
        let fixture = Fixture::new();
        let trees = TREES_MAX * 2 + 1;
        for _ in 0..trees {
            let worker = fixture.pending().await;
            fixture.end(&worker, StopReason::Overloaded).await;
        }
        fixture.advance(30 * DAY);

        let swept = sweep(fixture.store.as_ref(), upkeep(), &CancellationToken::new()).await.unwrap();

        assert_eq!(swept, Swept { closed: 0, deleted: trees });
    }

    #[tokio::test(start_paused = true)]
    async fn what_becomes_due_is_swept_within_the_interval() {
        let fixture = Fixture::new();
        let worker = fixture.pending().await;
        fixture.end(&worker, StopReason::Overloaded).await;
        let cancel = CancellationToken::new();
        let keeping = tokio::spawn(keep(fixture.store.clone(), upkeep(), cancel.clone()));
        fixture.advance(30 * DAY);

        time::advance(INTERVAL).await;
        while fixture.store.root(&worker.root).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }

        cancel.cancel();
        keeping.await.unwrap();
    }
}
