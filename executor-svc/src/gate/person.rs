//! The last word of a person, under `dual-sign`.

use crate::{
    dispatch::Caller,
    error::Error,
    kernel::Kernel,
    review::{self, Decision, Proposal},
    session::StoreError,
};

impl Kernel {
    /// Waits until a person has decided, or has had their time.
    pub async fn await_person(&self, proposal: Proposal) -> Result<Proposal, StoreError> {
        let limit = self.config.review.person_timeout;
        match tokio::time::timeout(limit.0, self.decided(&proposal)).await {
            Ok(decided) => decided,
            Err(_) => {
                let reason = format!("no person decided within {limit}");
                let after = proposal.decided(Decision::Rejected, "", &reason, self.clock.now());
                self.settle(proposal, after).await
            }
        }
    }

    /// A person decides.
    ///
    /// # Errors
    ///
    /// Where there is no such proposal, where it awaits nobody, where it is the caller's own, and where the digest is
    /// another one.
    pub async fn decide(
        &self,
        caller: &Caller,
        id: &str,
        decision: Decision,
        reason: &str,
        digest: &str,
    ) -> Result<Proposal, Error> {
        loop {
            let found = self.proposals.proposal(id).await?;
            let proposal = found
                .filter(|proposal| caller.sees_workspace(&proposal.workspace))
                .ok_or_else(|| Error::ProposalNotFound(id.to_owned()))?;
            if !proposal.awaits_person || proposal.decision != Decision::Pending {
                return Err(Error::NotAwaitingPerson(proposal.id));
            }
            if proposal.operator == caller.operator {
                return Err(Error::OwnProposal(proposal.id));
            }
            if proposal.digest != digest {
                let (id, actual) = (proposal.id, proposal.digest);
                return Err(Error::DigestMismatch { id, expected: digest.to_owned(), actual });
            }
            let after = proposal.decided(decision, &caller.operator, reason, self.clock.now());
            // Where it was exchanged in between, what stands now is looked at.
            if self.proposals.exchange(proposal, after.clone()).await? {
                self.gate.decided.send_modify(|count| *count += 1);
                return Ok(after);
            }
        }
    }

    /// The proposal once it is decided.
    async fn decided(&self, proposal: &Proposal) -> Result<Proposal, StoreError> {
        let mut decisions = self.gate.decided.subscribe();
        loop {
            decisions.mark_unchanged();
            match self.proposals.proposal(&proposal.id).await? {
                Some(now) if now.decision == Decision::Pending => {}
                Some(now) => return Ok(now),
                None => {
                    return Ok(proposal.decided(Decision::Rejected, "", review::ENDED, self.clock.now()));
                }
            }
            // The sender is in the gate, so the wait cannot fail.
            let _ = decisions.changed().await;
        }
    }
}
