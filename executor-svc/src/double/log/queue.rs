//! Delivery and proposals of the log in memory.

use std::sync::Arc;

use async_trait::async_trait;

use super::{MemoryLog, Shared};
use crate::{
    review::Proposal,
    session::{Claim, ProposalFilter, Proposals, Queue, StoreError},
    worker::SessionId,
};

struct Delivery {
    shared: Arc<Shared>,
    worker: SessionId,
    redelivered: bool,
    is_done: bool,
}

#[async_trait]
impl Proposals for MemoryLog {
    async fn propose(&self, proposal: Proposal) -> Result<(), StoreError> {
        self.0.state.lock().proposals.push(proposal);
        Ok(())
    }

    async fn proposal(&self, id: &str) -> Result<Option<Proposal>, StoreError> {
        let state = self.0.state.lock();
        Ok(state.proposals.iter().find(|proposal| proposal.id == id).cloned())
    }

    async fn proposals(&self, filter: ProposalFilter) -> Result<Vec<Proposal>, StoreError> {
        let state = self.0.state.lock();
        let found = state
            .proposals
            .iter()
            .filter(|proposal| filter.session.as_ref().is_none_or(|session| proposal.session == *session));
        Ok(found.rev().take(filter.limit).cloned().collect())
    }

    async fn exchange(&self, before: Proposal, after: Proposal) -> Result<bool, StoreError> {
        let mut state = self.0.state.lock();
        let found = state.proposals.iter_mut().rev().find(|proposal| **proposal == before);
        Ok(found.map(|proposal| *proposal = after).is_some())
    }
}

#[async_trait]
impl Queue for MemoryLog {
    async fn claim(&self) -> Result<Box<dyn Claim>, StoreError> {
        loop {
            let delivered = self.0.delivered.notified();
            if let Some((worker, redelivered)) = self.0.state.lock().queue.pop_front() {
                let shared = Arc::clone(&self.0);
                return Ok(Box::new(Delivery { shared, worker, redelivered, is_done: false }));
            }
            delivered.await;
        }
    }

    async fn depth(&self) -> Result<usize, StoreError> {
        Ok(self.0.state.lock().queue.len())
    }
}

#[async_trait]
impl Claim for Delivery {
    fn worker(&self) -> &SessionId {
        &self.worker
    }

    fn redelivered(&self) -> bool {
        self.redelivered
    }

    async fn touch(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn done(mut self: Box<Self>) -> Result<(), StoreError> {
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if !self.is_done {
            self.shared.state.lock().queue.push_back((self.worker.clone(), true));
            self.shared.delivered.notify_one();
        }
    }
}
