//! Stopping workers from outside: the wish is recorded, then everything below is told, children before parents.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;

use crate::{
    error::Error,
    kernel::{Kernel, TREE_SIZE_MAX},
    open::Cause,
    session::{Root, StopWish, StoreError},
    worker::{SessionId, Status, StopReason, Worker},
};

/// Sessions named in a receipt; more are only counted.
const ENTRIES_MAX: usize = 1_000;

/// What a stop reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub entries: Vec<Entry>,
    /// How many more were reached.
    pub omitted: usize,
}

/// One session that a stop reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub worker: SessionId,
    /// When the stop arrived.
    pub before: Status,
    /// When the receipt was made.
    pub after: Status,
}

impl Kernel {
    /// Stops a worker, or what runs below a root, and everything below. A final state is left as it is.
    pub async fn stop(
        self: &Arc<Self>,
        id: &SessionId,
        wish: StopWish,
        wait: Option<Duration>,
    ) -> Result<Receipt, Error> {
        self.log.wish_stop(id, wish.clone()).await?;
        let own = self.log.worker(id).await?;
        // A root session is reached where its coordinator's turn runs.
        let own = own.filter(|own| !(own.is_turn() && own.status.is_final()));
        let mut reached: Vec<Worker> = own.into_iter().collect();
        reached.extend(self.log.descendants(id, TREE_SIZE_MAX).await?);
        let open: Vec<&Worker> = reached.iter().filter(|worker| !worker.status.is_final()).collect();
        let cause = cause_of(&wish);
        let mut ends = Vec::new();
        for worker in open.into_iter().rev() {
            match self.open.get(&worker.id) {
                Some(worker) => {
                    worker.stop(cause.clone());
                    ends.push(async move { worker.closed().await });
                }
                // Nobody holds it: it was left over, or is just ending.
                None => self.close_unowned(&worker.id, &cause).await?,
            }
        }
        if let Some(wait) = wait {
            // The receipt says what has ended by then.
            let _ = tokio::time::timeout(wait, join_all(ends)).await;
        }
        Ok(self.receipt(reached).await?)
    }

    /// Closes a root session and stops what runs below it.
    pub async fn close_session(self: &Arc<Self>, id: &SessionId, by: &str) -> Result<Receipt, Error> {
        let closed: Option<Root> = self.log.close_root(id).await?;
        if closed.is_none() {
            return Err(Error::SessionNotFound(id.to_string()));
        }
        let wish = StopWish { by: by.to_owned(), reason: "its session was closed".to_owned() };
        let mut receipt = self.stop(id, wish, None).await?;
        receipt.entries.retain(|entry| !entry.before.is_final());
        Ok(receipt)
    }

    async fn receipt(&self, reached: Vec<Worker>) -> Result<Receipt, StoreError> {
        let omitted = reached.len().saturating_sub(ENTRIES_MAX);
        let mut entries = Vec::new();
        for worker in reached.into_iter().take(ENTRIES_MAX) {
            let after = match worker.status.is_final() {
                true => worker.status,
                false => self.log.worker(&worker.id).await?.map_or(worker.status, |worker| worker.status),
            };
            entries.push(Entry { worker: worker.id, before: worker.status, after });
        }
        Ok(Receipt { entries, omitted })
    }
}

/// The cause of a recorded wish.
pub fn cause_of(wish: &StopWish) -> Cause {
    let StopWish { by, reason } = wish;
    let error = match reason.is_empty() {
        true => format!("stopped by `{by}`"),
        false => format!("stopped by `{by}`: {reason}"),
    };
    Cause { reason: StopReason::Stopped, error }
}
