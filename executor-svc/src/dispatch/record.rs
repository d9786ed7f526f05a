//! Row 11: the one transaction, and joining a worker that is there already.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::Dispatched;
use crate::{
    error::Error,
    kernel::Kernel,
    meter,
    open::OpenWorker,
    session::{AcceptError, Acceptance, Accepted},
    worker::Worker,
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
        let id = acceptance.worker.id.clone();
        // Open before it is recorded: the queue may deliver it before this task goes on.
        let open = self.open.open(&id);
        if background {
            open.detach();
        }
        let waiter = (!background).then(|| open.wait(parent.clone()));
        let answered = match self.log.accept(acceptance).await {
            Ok(Accepted::New { worker, position: _, events }) => {
                self.hub.publish(&events);
                meter::accepted();
                let kernel = Arc::clone(self);
                let wait = self.config.limits.queue_wait.duration();
                self.tasks.spawn(async move { kernel.watch_pending(&open, wait).await });
                return Ok(Dispatched { worker, deduplicated: false, waiter });
            }
            Ok(Accepted::Deduplicated(worker)) => Ok((worker, true)),
            Ok(Accepted::Repeated(worker)) => Ok((worker, false)),
            Err(error) => Err(accept_error(error)),
        };
        self.open.close(&id, None);
        let (worker, deduplicated) = answered?;
        self.join(worker, background, deduplicated, parent).await
    }
}

pub(super) fn accept_error(error: AcceptError) -> Error {
    match error {
        AcceptError::SessionNotFound(id) => Error::SessionNotFound(id),
        AcceptError::SessionClosed(id) => Error::SessionClosed(id),
        AcceptError::RequestIdReused(id) => Error::RequestIdReused(id),
        AcceptError::BudgetExhausted { limit, origin } => {
            Error::BudgetExhausted { limit: limit.to_owned(), origin }
        }
        AcceptError::Overloaded => Error::Overloaded { retry_after: OVERLOAD_RETRY },
        AcceptError::Store(error) => Error::Store(error),
    }
}
