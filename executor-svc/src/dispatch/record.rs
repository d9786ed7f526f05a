//! Row 11: the one transaction, and joining a worker that is there already.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::Dispatched;
use crate::{
    error::Error,
    kernel::Kernel,
    meter,
    open::OpenWorker,
    session::{AcceptError, Acceptance, Accepted, Dedupe},
    worker::{Status, Worker},
};

/// How soon an overloaded executor is worth another try.
const OVERLOAD_RETRY: Duration = Duration::from_secs(1);

impl Kernel {
    /// The worker that answers in place of a new one, with a place among those who wait for it.
    pub(super) async fn join(
        &self,
        worker: Worker,
        background: bool,
        deduplicated: bool,
        parent: Option<Arc<OpenWorker>>,
    ) -> Result<Dispatched, Error> {
        if worker.status.is_final() {
            return Ok(Dispatched { worker, deduplicated, waiter: None });
        }
        if let Some(open) = self.open.get(&worker.id) {
            if background {
                open.detach();
            }
            let waiter = (!background).then(|| open.wait(parent));
            return Ok(Dispatched { worker, deduplicated, waiter });
        }
        // It was closed a moment ago: the record is final now.
        let closed = self.log.worker(&worker.id).await?;
        match closed {
            Some(worker) => Ok(Dispatched { worker, deduplicated, waiter: None }),
            None => Err(Error::SessionNotFound(worker.id.to_string())),
        }
    }

    /// Records the worker. The task outlives the call, so that a caller who goes away in the middle leaves a worker that
    /// is recorded and told to stop, or none.
    pub(super) async fn accept(
        self: &Arc<Self>,
        acceptance: Acceptance,
        background: bool,
        parent: Option<Arc<OpenWorker>>,
    ) -> Result<Dispatched, Error> {
        let (sender, receiver) = oneshot::channel();
        let kernel = Arc::clone(self);
        self.tasks.spawn(async move {
            let _ = sender.send(kernel.record(acceptance, background, parent).await);
        });
        receiver.await.map_err(|_| Error::Defect("the task that records a worker died".to_owned()))?
    }

    async fn record(
        self: &Arc<Self>,
        acceptance: Acceptance,
        background: bool,
        parent: Option<Arc<OpenWorker>>,
    ) -> Result<Dispatched, Error> {
        let again = acceptance.dedupe.is_some().then(|| acceptance.clone());
        let answered = match self.try_accept(acceptance, background, parent.clone()).await? {
            Answered::New(dispatched) => return Ok(dispatched),
            Answered::Repeated(worker) => return self.join(worker, background, false, parent).await,
            Answered::Identical(worker) => worker,
        };
        if let Some(dispatched) = self.join_identical(answered, background, parent.clone()).await? {
            return Ok(dispatched);
        }
        // The one that ran is about to end without a result: this call runs by itself, and takes its place.
        let mut again = again.expect("only a call with a key finds an identical one");
        again.dedupe = again.dedupe.map(|dedupe| Dedupe { bypass: true, ..dedupe });
        match self.try_accept(again, background, parent.clone()).await? {
            Answered::New(dispatched) => Ok(dispatched),
            Answered::Repeated(worker) | Answered::Identical(worker) => {
                self.join(worker, background, false, parent).await
            }
        }
    }

    async fn try_accept(
        self: &Arc<Self>,
        mut acceptance: Acceptance,
        background: bool,
        parent: Option<Arc<OpenWorker>>,
    ) -> Result<Answered, Error> {
        // Before that it would be taken for one that nobody waits for.
        self.open.restored().await;
        let id = acceptance.worker.id.clone();
        // Open before it is recorded: the queue may deliver it before this task goes on.
        let Some(open) = self.open.open_new(&id) else {
            // Only a turn of a coordinator has the id of another: of the one before.
            return Err(Error::TurnInProgress(id));
        };
        if !acceptance.is_review {
            match self.open.queue(self.queue_room()) {
                Some(place) => open.keep(place),
                // What answers without a new worker still answers.
                None => acceptance.open_max = 0,
            }
        }
        if background {
            open.detach();
        }
        let waiter = (!background).then(|| open.wait(parent));
        let answered = match self.log.accept(acceptance).await {
            Ok(Accepted::New { worker, position: _, events }) => {
                self.hub.publish(&events);
                meter::accepted();
                let kernel = Arc::clone(self);
                let wait = self.config.limits.queue_wait.duration();
                self.tasks.spawn(async move { kernel.watch_pending(&open, wait).await });
                return Ok(Answered::New(Dispatched { worker, deduplicated: false, waiter }));
            }
            Ok(Accepted::Deduplicated(worker)) => Ok(Answered::Identical(worker)),
            Ok(Accepted::Repeated(worker)) => Ok(Answered::Repeated(worker)),
            Err(error) => Err(accept_error(error)),
        };
        self.open.close(&id, None);
        answered
    }

    /// A place beside those who wait for an identical call; none where that one is told to end already.
    async fn join_identical(
        &self,
        worker: Worker,
        background: bool,
        parent: Option<Arc<OpenWorker>>,
    ) -> Result<Option<Dispatched>, Error> {
        let open = match worker.status.is_final() {
            true => None,
            false => self.open.get(&worker.id),
        };
        let Some(open) = open else {
            let answered = self.join(worker, background, true, parent).await?;
            return Ok((answered.worker.status == Status::Completed).then_some(answered));
        };
        let Some(waiter) = open.join(parent) else { return Ok(None) };
        if background {
            open.detach();
        }
        Ok(Some(Dispatched { worker, deduplicated: true, waiter: (!background).then_some(waiter) }))
    }

    /// How many may wait for a first slot: the length of the queue, and those who get one at once.
    fn queue_room(&self) -> Option<u64> {
        let limits = &self.config.limits;
        let length = limits.queue_length.get()?;
        let free = limits.max_running.get()?.saturating_sub(self.slots.taken());
        Some(length.saturating_add(free))
    }
}

/// What the store answered.
enum Answered {
    New(Dispatched),
    Repeated(Worker),
    Identical(Worker),
}

pub(super) fn accept_error(error: AcceptError) -> Error {
    match error {
        AcceptError::SessionNotFound(id) => Error::SessionNotFound(id),
        AcceptError::SessionClosed(id) => Error::SessionClosed(id),
        AcceptError::TurnInProgress(id) => Error::TurnInProgress(id),
        AcceptError::RequestIdReused(id) => Error::RequestIdReused(id),
        AcceptError::BudgetExhausted { limit, origin } => {
            Error::BudgetExhausted { limit: limit.to_owned(), origin }
        }
        AcceptError::Overloaded => Error::Overloaded { retry_after: OVERLOAD_RETRY },
        AcceptError::Store(error) => Error::Store(error),
    }
}
