//! The workers that are open on this replica: who waits for each, and how each is told to stop.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::worker::{SessionId, StopReason, Worker};

/// Every open worker, from before it is recorded until after its record is closed.
#[derive(Debug, Default)]
pub struct OpenWorkers {
    workers: Mutex<HashMap<SessionId, Arc<OpenWorker>>>,
    count: watch::Sender<usize>,
}

/// One open worker.
#[derive(Debug)]
pub struct OpenWorker {
    id: SessionId,
    /// Fires with `cause`: whoever owns the worker closes it.
    stop: CancellationToken,
    cause: OnceLock<Cause>,
    /// Fires when the worker has a slot: from then on its run answers for it.
    started: CancellationToken,
    waiters: Mutex<Waiters>,
    closed: watch::Sender<Option<Worker>>,
}

/// Why a worker is stopped from outside. The first one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: StopReason,
    pub error: String,
}

/// Somebody who waits for a worker in the foreground. The last one who goes away stops it.
#[derive(Debug)]
pub struct Waiter {
    worker: Arc<OpenWorker>,
    /// The worker that waits, for a child: its stop is the child's.
    parent: Option<Arc<OpenWorker>>,
}

#[derive(Debug, Default)]
struct Waiters {
    count: usize,
    /// It runs on without anybody: a background worker, or one taken over from a replica that is gone.
    detached: bool,
}

impl OpenWorkers {
    /// The worker, opened if it is not.
    pub fn open(&self, id: &SessionId) -> Arc<OpenWorker> {
        let mut workers = self.workers.lock();
        let worker = workers.entry(id.clone()).or_insert_with(|| Arc::new(OpenWorker::new(id.clone())));
        let worker = Arc::clone(worker);
        self.count.send_replace(workers.len());
        worker
    }

    pub fn get(&self, id: &SessionId) -> Option<Arc<OpenWorker>> {
        self.workers.lock().get(id).cloned()
    }

    /// Forgets a worker. With its closed record, everybody who waits for it gets that.
    pub fn close(&self, id: &SessionId, record: Option<Worker>) {
        let removed = {
            let mut workers = self.workers.lock();
            let removed = workers.remove(id);
            self.count.send_replace(workers.len());
            removed
        };
        if let (Some(worker), Some(record)) = (removed, record) {
            worker.closed.send_replace(Some(record));
        }
    }

    pub fn len(&self) -> usize {
        self.workers.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Resolves when no worker is open.
    pub async fn emptied(&self) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Stops every open worker.
    pub fn stop_all(&self, cause: &Cause) {
        let workers: Vec<_> = self.workers.lock().values().cloned().collect();
        for worker in workers {
            worker.stop(cause.clone());
        }
    }
}

impl OpenWorker {
    fn new(id: SessionId) -> Self {
        Self {
            id,
            stop: CancellationToken::new(),
            cause: OnceLock::new(),
            started: CancellationToken::new(),
            waiters: Mutex::default(),
            closed: watch::channel(None).0,
        }
    }

    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Tells the worker to end. The first cause counts.
    pub fn stop(&self, cause: Cause) {
        let _ = self.cause.set(cause);
        self.stop.cancel();
    }

    /// Resolves with the cause when the worker is to end.
    pub async fn stopped(&self) -> Cause {
        self.stop.cancelled().await;
        self.cause.get().cloned().expect("the cause is set before the token is cancelled")
    }

    /// The token that is cancelled when the worker is to end.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The worker runs now, and its run closes it.
    pub fn start(&self) {
        self.started.cancel();
    }

    pub async fn started(&self) {
        self.started.cancelled().await;
    }

    /// Lets the worker run on without anybody who waits.
    pub fn detach(&self) {
        self.waiters.lock().detached = true;
    }

    /// Waits in the foreground, on behalf of a parent where a worker waits for its child.
    pub fn wait(self: &Arc<Self>, parent: Option<Arc<OpenWorker>>) -> Waiter {
        self.waiters.lock().count += 1;
        Waiter { worker: Arc::clone(self), parent }
    }

    /// The closed record, once it is closed.
    pub async fn closed(&self) -> Worker {
        let mut closed = self.closed.subscribe();
        let record = closed.wait_for(Option::is_some).await.expect("the sender is in `self`");
        record.clone().expect("just seen to be there")
    }
}

impl Waiter {
    pub fn id(&self) -> &SessionId {
        &self.worker.id
    }

    /// The closed record.
    pub async fn closed(&self) -> Worker {
        self.worker.closed().await
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let is_alone = {
            let mut waiters = self.worker.waiters.lock();
            waiters.count -= 1;
            waiters.count == 0 && !waiters.detached
        };
        if is_alone && self.worker.closed.borrow().is_none() {
            let inherited = self.parent.as_ref().and_then(|parent| parent.cause.get());
            self.worker.stop(inherited.cloned().unwrap_or_else(|| Cause {
                reason: StopReason::CallerGone,
                error: "the caller went away".to_owned(),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn the_last_waiter_who_leaves_stops_the_worker() {
        let workers = OpenWorkers::default();
        let worker = workers.open(&SessionId::new_worker());
        let (first, second) = (worker.wait(None), worker.wait(None));

        drop(first);
        assert!(worker.stopped().now_or_never().is_none());
        drop(second);

        assert_eq!(worker.stopped().await.reason, StopReason::CallerGone);
    }

    #[tokio::test]
    async fn a_detached_worker_runs_on_alone() {
        let workers = OpenWorkers::default();
        let worker = workers.open(&SessionId::new_worker());
        worker.detach();

        drop(worker.wait(None));

        assert!(worker.stopped().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_child_that_its_parent_leaves_ends_for_the_parents_cause() {
        let workers = OpenWorkers::default();
        let parent = workers.open(&SessionId::new_worker());
        let child = workers.open(&SessionId::new_worker());
        let waiter = child.wait(Some(Arc::clone(&parent)));

        parent.stop(Cause { reason: StopReason::Stopped, error: "enough".to_owned() });
        parent.stop(Cause { reason: StopReason::Drained, error: "later".to_owned() });
        drop(waiter);

        assert_eq!(child.stopped().await.reason, StopReason::Stopped);
    }
}
