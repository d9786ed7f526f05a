//! The proposals of the review gate, beside the logs: recorded before anybody is asked, changed only from a known state.

use async_trait::async_trait;

use super::StoreError;
use crate::{
    review::{Decision, Proposal},
    worker::SessionId,
};

/// Which proposals to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct ProposalFilter {
    pub workspace: Option<String>,
    pub operator: Option<String>,
    /// Of a whole tree.
    pub root: Option<SessionId>,
    /// Of one session alone.
    pub session: Option<SessionId>,
    pub decision: Option<Decision>,
    /// Exclusive end of the page before: the id of its last proposal.
    pub after: Option<String>,
    pub limit: usize,
}

/// The gate's memory. What is pending when its session ends is rejected in the same transaction, see [`super::Log::append`].
#[async_trait]
pub trait Proposals: Send + Sync + 'static {
    async fn propose(&self, proposal: Proposal) -> Result<(), StoreError>;
    async fn proposal(&self, id: &str) -> Result<Option<Proposal>, StoreError>;
    async fn proposals(&self, filter: ProposalFilter) -> Result<Vec<Proposal>, StoreError>;
    /// Puts `after` in the place of `before`; false, and nothing is changed, where it no longer stands as `before`.
    async fn exchange(&self, before: Proposal, after: Proposal) -> Result<bool, StoreError>;
}
