//! The workers that are open on this replica: who waits for each, and how each is told to stop.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::worker::{SessionId, StopReason, Time, Worker};

/// Every open worker, from before it is recorded until after its record is closed.
#[derive(Debug, Default)]
pub struct OpenWorkers {
    workers: Mutex<HashMap<SessionId, Arc<OpenWorker>>>,
    count: watch::Sender<usize>,
    queued: Arc<AtomicUsize>,
    /// Fires when those that an earlier process left open are open again.
    restored: CancellationToken,
}

/// A place among those who wait for their first slot. Given back when dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

/// One open worker.
#[derive(Debug)]
pub struct OpenWorker {
    id: SessionId,
    /// Fires with `cause`: whoever owns the worker closes it.
    stop: CancellationToken,
    cause: OnceLock<Cause>,
    /// Fires when the worker has a slot: from then on its run answers for it.
    started: CancellationToken,
    presence: Mutex<Presence>,
    /// When the topmost worker above it that still ran, or itself, began to run.
    tree_began: OnceLock<Time>,
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
struct Presence {
    waiters: usize,
    /// It runs on without anybody: a background worker, or one taken over from a replica that is gone.
    detached: bool,
    phase: Phase,
    place: Option<Place>,
}

/// Who closes a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nobody yet: whoever is first, a slot or the end of the wait.
    #[default]
    Waiting,
    /// Its run.
    Running,
    /// Whoever gave up waiting for a slot.
    GivenUp,
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

    /// The worker, unless it is open already.
    pub fn open_new(&self, id: &SessionId) -> Option<Arc<OpenWorker>> {
        let mut workers = self.workers.lock();
        let Entry::Vacant(place) = workers.entry(id.clone()) else { return None };
        let worker = Arc::clone(place.insert(Arc::new(OpenWorker::new(id.clone()))));
        self.count.send_replace(workers.len());
        Some(worker)
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

    /// A place among those who wait for their first slot; none where `room` are taken already.
    pub fn queue(&self, room: Option<u64>) -> Option<Place> {
        let has_room = |queued: usize| room.is_none_or(|room| (queued as u64) < room);
        let taken = self.queued.fetch_update(Ordering::AcqRel, Ordering::Acquire, |queued| {
            has_room(queued).then_some(queued + 1)
        });
        taken.ok().map(|_| Place(Arc::clone(&self.queued)))
    }

    /// How many wait for their first slot.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Acquire)
    }

    pub fn len(&self) -> usize {
        self.workers.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that an earlier process left open are open again: whatever is opened from now on is new.
    pub fn set_restored(&self) {
        self.restored.cancel();
    }

    /// Resolves when nobody takes a new worker for one that an earlier process left.
    pub async fn restored(&self) {
        self.restored.cancelled().await;
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
            presence: Mutex::default(),
            tree_began: OnceLock::new(),
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

    /// Keeps a place in the queue until the worker has a slot or is closed.
    pub fn keep(&self, place: Place) {
        self.presence.lock().place = Some(place);
    }

    /// The worker runs now, and its run closes it. False where somebody gave it up before.
    pub fn start(&self) -> bool {
        let has_started = {
            let mut presence = self.presence.lock();
            presence.place = None;
            if presence.phase == Phase::Waiting {
                presence.phase = Phase::Running;
            }
            presence.phase == Phase::Running
        };
        if has_started {
            self.started.cancel();
        }
        has_started
    }

    /// Nobody waits for a slot any more: the caller closes the worker. False where it has one already.
    pub fn give_up(&self) -> bool {
        let mut presence = self.presence.lock();
        if presence.phase == Phase::Waiting {
            presence.phase = Phase::GivenUp;
        }
        presence.phase == Phase::GivenUp
    }

    pub async fn started(&self) {
        self.started.cancelled().await;
    }

    /// Records once when the topmost worker above it that still ran, or itself, began to run.
    pub fn set_tree_began(&self, time: Time) {
        let _ = self.tree_began.set(time);
    }

    /// Absent before it runs.
    pub fn tree_began(&self) -> Option<Time> {
        self.tree_began.get().copied()
    }

    /// Lets the worker run on without anybody who waits.
    pub fn detach(&self) {
        self.presence.lock().detached = true;
    }

    /// Waits in the foreground, on behalf of a parent where a worker waits for its child.
    pub fn wait(self: &Arc<Self>, parent: Option<Arc<OpenWorker>>) -> Waiter {
        self.presence.lock().waiters += 1;
        Waiter { worker: Arc::clone(self), parent }
    }

    /// Waits as well as others do; not where the worker is told to end already.
    pub fn join(self: &Arc<Self>, parent: Option<Arc<OpenWorker>>) -> Option<Waiter> {
        let mut presence = self.presence.lock();
        if self.stop.is_cancelled() {
            return None;
        }
        presence.waiters += 1;
        Some(Waiter { worker: Arc::clone(self), parent })
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

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut presence = self.worker.presence.lock();
        presence.waiters -= 1;
        let is_alone = presence.waiters == 0 && !presence.detached;
        if is_alone && self.worker.closed.borrow().is_none() {
            let inherited = self.parent.as_ref().and_then(|parent| parent.cause.get());
            // With the lock: whoever joins now either kept it running or finds it told to end.
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
    async fn a_worker_that_is_told_to_end_is_not_joined() {
        let workers = OpenWorkers::default();
        let worker = workers.open(&SessionId::new_worker());
        let first = worker.join(None).expect("it runs");
        let second = worker.join(None).expect("it runs");
        drop(first);
        assert!(worker.join(None).is_some(), "one still waits");

        drop(second);

        assert!(worker.join(None).is_none());
    }

    #[test]
    fn a_worker_is_started_or_given_up_and_never_both() {
        for starts_first in [true, false] {
            let worker = OpenWorker::new(SessionId::new_worker());
            let (started, given_up) = match starts_first {
                true => (worker.start(), worker.give_up()),
                false => {
                    let given_up = worker.give_up();
                    (worker.start(), given_up)
                }
            };
            assert_eq!((started, given_up), (starts_first, !starts_first));
        }
    }

    #[test]
    fn a_place_in_the_queue_is_free_again_once_its_worker_starts_or_is_forgotten() {
        let workers = OpenWorkers::default();
        let [first, second] = [(); 2].map(|()| workers.open(&SessionId::new_worker()));
        first.keep(workers.queue(Some(2)).expect("there is room"));
        second.keep(workers.queue(Some(2)).expect("there is room"));
        assert!(workers.queue(Some(2)).is_none());

        first.start();
        workers.close(second.id(), None);
        drop(second);

        assert_eq!(workers.queued(), 0);
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
