//! Owns every running worker: takes claims only with a free slot, awaits each run, and closes the record on every path.

use std::{collections::HashMap, sync::Arc, time::Duration};

use service_kit::status::chain;
use tokio::{
    task::{Id, JoinError, JoinSet},
    time::{Instant, MissedTickBehavior, sleep, sleep_until},
};
use tracing::{error, info, warn};

use crate::{
    kernel::Kernel,
    meter,
    open::{Cause, OpenWorker},
    run::{self, Owner, Patience},
    session::{Claim, StoreError, Sweep, Swept, WorkerFilter},
    worker::{SessionId, Status, StopReason, Worker},
};

/// How often a claim is touched: a third of the time after which a queue delivers it to another replica.
const TOUCH_INTERVAL: Duration = Duration::from_secs(5);

/// How long a worker rests after the store failed it, before it is delivered again.
const STORE_REST: Duration = Duration::from_secs(1);

/// How long stopped workers get to close their records. They only have to write one row each.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(10);

/// How often the gauges are set: more often than anybody scrapes them.
const GAUGE_INTERVAL: Duration = Duration::from_secs(5);

/// How often sessions are cleared away: retention is counted in days, idleness in hours.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Most trees deleted at once, so that a sweep does not hold others up.
const SWEEP_MAX: usize = 100;

/// How long the last events of spawns may take to be sent.
const STREAM_TIME_MAX: Duration = Duration::from_secs(2);

/// How many open workers are read at once when the store is opened.
const PAGE: usize = 500;

impl Kernel {
    /// Runs accepted workers until the drain has ended them all. Resolves when no worker is open any more, or when what
    /// is left could not be closed in time.
    pub async fn supervise(self: Arc<Self>) {
        if let Err(failure) = self.reopen().await {
            error!(error = %chain(&failure), "failed to read the open workers");
        }
        self.open.set_restored();
        self.tasks.spawn(Arc::clone(&self).keep_clear());
        let mut runs = JoinSet::new();
        let mut ids = HashMap::new();
        let mut next = Box::pin(self.next_claim());
        let mut drain = Box::pin(self.drained());
        let mut gauges = tokio::time::interval(GAUGE_INTERVAL);
        gauges.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // A run that died is closed before its worker, delivered again, is looked at.
                biased;
                Some(joined) = runs.join_next_with_id() => self.reap(joined, &mut ids),
                claimed = &mut next => {
                    next.set(self.next_claim());
                    let Ok(claim) = claimed.inspect_err(|failure| {
                        error!(error = %chain(failure), "failed to take a worker from the queue");
                    }) else { continue };
                    let id = claim.worker().clone();
                    let task = runs.spawn(Arc::clone(&self).run_claim(claim));
                    ids.insert(task.id(), id);
                }
                () = &mut drain => break,
                _ = gauges.tick() => {
                    meter::standing(self.open.len(), self.slots.taken(), self.open.queued());
                }
            }
        }
        while let Some(joined) = runs.try_join_next_with_id() {
            self.reap(joined, &mut ids);
        }
        runs.shutdown().await;
        // Whatever was let in at the last moment waits for a run that does not come.
        self.open.stop_all(&drained());
        self.tasks.close();
        if tokio::time::timeout(CLOSE_TIME_MAX, self.tasks.wait()).await.is_err() {
            warn!(
                open = self.open.len(),
                "workers could not be closed in time; the next start goes on with them"
            );
        }
        // Whoever follows its worker is told the end; one who does not read is not waited for.
        self.streams.close();
        let _ = tokio::time::timeout(STREAM_TIME_MAX, self.streams.wait()).await;
    }

    /// Closes a worker that no run has begun: it waits too long, or is told to stop.
    pub async fn watch_pending(self: &Arc<Self>, open: &OpenWorker, wait: Option<Duration>) {
        let too_long = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        let cause = tokio::select! {
            biased;
            _ = open.closed() => return,
            () = open.started() => return,
            cause = open.stopped() => cause,
            () = too_long => Cause {
                reason: StopReason::Overloaded,
                error: format!("it waited longer than `limits.queue_wait` ({}) for a slot", self.config.limits.queue_wait),
            },
        };
        if open.give_up()
            && let Err(failure) = self.close_unowned(open.id(), &cause).await
        {
            error!(worker = %open.id(), error = %chain(&failure), "failed to close a waiting worker");
        }
    }

    /// Closes the record of a worker that nobody runs. A record that is closed already stays as it is. While the store is
    /// away, it is asked again.
    ///
    /// # Errors
    ///
    /// Where asking the store again is of no use.
    pub async fn close_unowned(self: &Arc<Self>, id: &SessionId, cause: &Cause) -> Result<(), StoreError> {
        let mut patience = Patience::default();
        loop {
            let mut owner = match Owner::load(self, id).await {
                Ok(Some(owner)) => owner,
                Ok(None) => return Ok(()),
                Err(failure) => {
                    patience.after(id, failure).await?;
                    continue;
                }
            };
            let end = owner.state().early(cause.reason, cause.error.clone());
            let unknown = run::unknown_outcomes(&owner, "its run ended");
            match owner.close(unknown, end).await {
                Ok(()) | Err(run::Left::Closed) => return Ok(()),
                // Somebody appended in between; their step is in the next load.
                Err(run::Left::Moved) => {}
                Err(run::Left::Store(failure)) => return Err(failure),
            }
        }
    }

    /// Opens what was open when the process before this one ended. Nobody waits for these workers, and they run on.
    async fn reopen(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let filter = WorkerFilter {
                statuses: vec![Status::Pending, Status::Running],
                after,
                oldest_first: true,
                turns: true,
                limit: PAGE,
                ..WorkerFilter::default()
            };
            let page = self.log.workers(filter).await?;
            for worker in &page {
                let open = self.open.open(&worker.id);
                if worker.status == Status::Pending
                    && let Some(place) = self.open.queue(None)
                {
                    open.keep(place);
                }
                if worker.is_turn() || !self.has_parent(worker).await? {
                    open.detach();
                }
                // One that ran already waits as long as it has to.
                let wait = match worker.status {
                    Status::Pending => self.config.limits.queue_wait.duration(),
                    Status::Running | Status::Completed | Status::Failed | Status::Killed => None,
                };
                let kernel = Arc::clone(self);
                self.tasks.spawn(async move { kernel.watch_pending(&open, wait).await });
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.id.clone()),
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// True for a worker whose parent waits for it: another worker, or a coordinator.
    async fn has_parent(&self, worker: &Worker) -> Result<bool, StoreError> {
        Ok(worker.parent.is_worker() || self.log.worker(&worker.parent).await?.is_some())
    }

    /// Closes roots that nobody uses and deletes trees that were kept long enough, until the process ends.
    async fn keep_clear(self: Arc<Self>) {
        let mut interval = tokio::time::interval(SWEEP_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.shutdown.begun() => return,
                _ = interval.tick() => {}
            }
            let sweep = Sweep {
                idle: self.config.sessions.idle.0,
                retention: self.config.retention.closed.0,
                limit: SWEEP_MAX,
            };
            match self.log.sweep(sweep).await {
                Ok(Swept { closed: 0, deleted: 0 }) => {}
                Ok(Swept { closed, deleted }) => info!(closed, deleted, "sessions were cleared away"),
                Err(failure) => warn!(error = %chain(&failure), "failed to clear sessions away"),
            }
        }
    }

    async fn next_claim(&self) -> Result<Box<dyn Claim>, StoreError> {
        self.slots.vacancy().await;
        match self.queue.claim().await {
            Ok(claim) => Ok(claim),
            Err(failure) => {
                sleep(STORE_REST).await;
                Err(failure)
            }
        }
    }

    /// Resolves when a drain is over: all workers have ended, or were stopped and got their time to close.
    async fn drained(&self) {
        self.shutdown.begun().await;
        let until = Instant::now() + self.config.drain.timeout.0;
        info!(open = self.open.len(), "waiting for workers to end");
        tokio::select! {
            () = self.open.emptied() => return,
            () = sleep_until(until) => {}
            () = self.shutdown.hurried() => {}
        }
        warn!(open = self.open.len(), "stopping the workers that have not ended");
        self.open.stop_all(&drained());
        let _ = tokio::time::timeout(CLOSE_TIME_MAX, self.open.emptied()).await;
    }

    async fn run_claim(self: Arc<Self>, claim: Box<dyn Claim>) {
        let id = claim.worker().clone();
        let touching = async {
            let mut interval = tokio::time::interval(TOUCH_INTERVAL);
            loop {
                interval.tick().await;
                if let Err(failure) = claim.touch().await {
                    warn!(worker = %id, error = %chain(&failure), "failed to touch a claim");
                }
            }
        };
        let left = tokio::select! {
            left = run::perform(&self, &id, claim.redelivered()) => left,
            () = touching => return,
        };
        let is_done = match left {
            Ok(()) | Err(run::Left::Closed) => true,
            Err(run::Left::Moved) => self.is_closed(&id).await,
            Err(run::Left::Store(failure)) if failure.transient => {
                warn!(worker = %id, error = %chain(&failure), "the store failed a worker; it is delivered again");
                false
            }
            Err(run::Left::Store(failure)) => {
                error!(worker = %id, error = %chain(&failure), "the store cannot keep what a worker does");
                self.close_unowned(&id, &defect()).await.is_ok()
            }
        };
        match is_done {
            true => {
                if let Err(failure) = claim.done().await {
                    warn!(worker = %id, error = %chain(&failure), "failed to take a worker off the queue");
                }
            }
            false => sleep(STORE_REST).await,
        }
    }

    /// True where whoever appended in a run's place closed the worker; then those who wait for it are told.
    async fn is_closed(&self, id: &SessionId) -> bool {
        match self.log.worker(id).await {
            Ok(Some(worker)) if worker.status.is_final() => {
                self.open.close(id, Some(worker));
                true
            }
            Ok(None) => true,
            Ok(Some(_)) | Err(_) => false,
        }
    }

    /// A run that ended by itself has closed its record. One that panicked or was aborted is closed here, before it could
    /// run again.
    fn reap(self: &Arc<Self>, joined: Result<(Id, ()), JoinError>, ids: &mut HashMap<Id, SessionId>) {
        let failure = match joined {
            Ok((task, ())) => {
                ids.remove(&task);
                return;
            }
            Err(failure) => failure,
        };
        let Some(id) = ids.remove(&failure.id()) else { return };
        error!(worker = %id, failure = %failure, "a run died");
        if let Some(open) = self.open.get(&id) {
            open.stop(defect());
        }
        let kernel = Arc::clone(self);
        self.tasks.spawn(async move {
            if let Err(failure) = kernel.close_unowned(&id, &defect()).await {
                error!(worker = %id, error = %chain(&failure), "failed to close a worker whose run died");
            }
        });
    }
}

fn defect() -> Cause {
    Cause {
        reason: StopReason::Panic,
        error: "a defect in the executor ended the worker; the log of the executor says more".to_owned(),
    }
}

fn drained() -> Cause {
    Cause { reason: StopReason::Drained, error: "its executor was shut down before it could end".to_owned() }
}

#[cfg(test)]
mod tests;
