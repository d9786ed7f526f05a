//! Delivery within one process: what was accepted, in that order, to whoever asks next. What is not done when its claim
//! is dropped is delivered again.

use std::{collections::VecDeque, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{Claim, StoreError};
use crate::worker::SessionId;

/// A queue of workers. Its length is bounded by the workers that may be open.
#[derive(Clone, Debug)]
pub(super) struct LocalQueue {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    waiting: Mutex<VecDeque<Delivery>>,
    /// As many permits as workers wait; closed with the queue.
    ready: Semaphore,
}

#[derive(Clone, Debug)]
struct Delivery {
    worker: SessionId,
    redelivered: bool,
}

/// Gives its worker back unless it was done.
struct LocalClaim {
    delivery: Delivery,
    is_done: bool,
    state: Arc<State>,
}

impl LocalQueue {
    /// A queue with workers that an earlier process left open.
    pub(super) fn new(left_open: Vec<SessionId>) -> Self {
        let ready = Semaphore::new(left_open.len());
        let waiting = left_open.into_iter().map(|worker| Delivery { worker, redelivered: true }).collect();
        Self { state: Arc::new(State { waiting: Mutex::new(waiting), ready }) }
    }

    pub(super) fn push(&self, worker: SessionId) {
        self.state.waiting.lock().push_back(Delivery { worker, redelivered: false });
        self.state.ready.add_permits(1);
    }

    /// The next worker; nothing once the queue is closed. A dropped call takes none.
    pub(super) async fn claim(&self) -> Option<Box<dyn Claim>> {
        self.state.ready.acquire().await.ok()?.forget();
        let delivery =
            self.state.waiting.lock().pop_front().expect("a permit stands for a worker that waits");
        Some(Box::new(LocalClaim { delivery, is_done: false, state: Arc::clone(&self.state) }))
    }

    pub(super) fn depth(&self) -> usize {
        self.state.waiting.lock().len()
    }

    /// Ends every wait for a worker. The log keeps what is open for the next process.
    pub(super) fn close(&self) {
        self.state.ready.close();
    }
}

#[async_trait]
impl Claim for LocalClaim {
    fn worker(&self) -> &SessionId {
        &self.delivery.worker
    }

    fn redelivered(&self) -> bool {
        self.delivery.redelivered
    }

    /// Nobody else delivers, so a claim holds until it is dropped.
    async fn touch(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn done(mut self: Box<Self>) -> Result<(), StoreError> {
        self.is_done = true;
        Ok(())
    }
}

impl Drop for LocalClaim {
    fn drop(&mut self) {
        if !self.is_done {
            let delivery = Delivery { worker: self.delivery.worker.clone(), redelivered: true };
            self.state.waiting.lock().push_front(delivery);
            self.state.ready.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn workers_are_delivered_in_the_order_of_their_acceptance() {
        let [left, first, second] = [(); 3].map(|()| SessionId::new_worker());
        let queue = LocalQueue::new(vec![left.clone()]);
        queue.push(first.clone());
        queue.push(second.clone());
        assert_eq!(queue.depth(), 3);

        for (worker, redelivered) in [(left, true), (first, false), (second, false)] {
            let claim = queue.claim().await.unwrap();
            assert_eq!((claim.worker(), claim.redelivered()), (&worker, redelivered));
            claim.done().await.unwrap();
        }

        assert_eq!(queue.depth(), 0);
        assert!(queue.claim().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_claim_that_was_dropped_undone_is_delivered_again_before_the_others() {
        let queue = LocalQueue::new(Vec::new());
        let [first, second] = [(); 2].map(|()| SessionId::new_worker());
        queue.push(first.clone());
        queue.push(second);

        drop(queue.claim().await);
        let claim = queue.claim().await.unwrap();

        assert_eq!((claim.worker(), claim.redelivered()), (&first, true));
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_while_it_waits_takes_no_worker() {
        let queue = LocalQueue::new(Vec::new());
        let mut waiting = Box::pin(queue.claim());
        assert!(waiting.as_mut().now_or_never().is_none());

        queue.push(SessionId::new_worker());
        drop(waiting);

        assert!(queue.claim().now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn a_closed_queue_ends_the_wait() {
        let queue = LocalQueue::new(Vec::new());
        let (claim, ()) = tokio::join!(queue.claim(), async { queue.close() });

        assert!(claim.is_none());
    }
}
