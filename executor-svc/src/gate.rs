//! The review gate: no call of a write or destructive tool runs without a recorded decision on exactly its bytes. Whatever
//! is not an approval is a rejection.

mod approval;
mod person;

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use serde_json::Value;
use service_kit::status::chain;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tracing::{error, info};

pub use self::approval::Approved;
use crate::{
    config::Review,
    definition::PermissionMode,
    event::cut,
    kernel::Kernel,
    limits::Bound,
    open::{Cause, OpenWorker},
    review::{self, Brief, Decision, POLICY, Proposal, Subject, Verdict},
    run::{self, Left},
    session::{ProposalFilter, StoreError},
    slots::Slots,
    tool::{self, Class, Context, Target, Tool, name},
    toolbag::Pattern,
    worker::{SessionId, StopReason, Worker},
};

/// Most proposals of one session that its waiting time is summed over: far more than its calls are limited to.
const PROPOSALS_MAX: usize = 10_000;

/// What the gate shares between workers.
pub struct Gate {
    /// Of reviewers alone: they never wait for the workers that wait for them.
    slots: Slots,
    /// Counts decisions of people, so that whoever waits for one looks again.
    decided: watch::Sender<u64>,
    /// Held from the last look at a target file until it is changed: one change at a time.
    changes: Semaphore,
}

/// A call that needs a decision.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub worker: &'a Worker,
    /// What the worker was asked to do.
    pub task: &'a str,
    /// What it said before the call.
    pub said: &'a str,
    pub tool: &'a dyn Tool,
    pub class: Class,
    /// The exact bytes, and what they say.
    pub text: &'a str,
    pub arguments: &'a Value,
    pub context: &'a Context,
}

/// What came of putting a call before the gate.
pub enum Proposed {
    /// Recorded: pending, or decided by policy. With what its reviewer is told.
    Recorded(Box<Proposal>, String),
    /// Nobody is asked, for this reason.
    Unfit(String),
    /// The tool itself says that the call cannot work.
    Failed(tool::Error),
}

impl Gate {
    pub fn new(review: &Review) -> Self {
        Self {
            slots: Slots::new(Bound::Of(u64::from(review.slots))),
            decided: watch::Sender::new(0),
            changes: Semaphore::new(1),
        }
    }

    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// For tools that change one file: waits until no other is between its last look at a file and the change.
    pub async fn turn_of(&self, proposal: &Proposal) -> Option<SemaphorePermit<'_>> {
        match proposal.tool.as_str() {
            name::WRITE | name::EDIT => {
                Some(self.changes.acquire().await.expect("the semaphore is never closed"))
            }
            _ => None,
        }
    }
}

impl Kernel {
    /// Records what a worker wants to do.
    pub async fn propose(&self, request: &Request<'_>) -> Result<Proposed, StoreError> {
        let Request { worker, task, said, tool, class, text, arguments: _, context: _ } = *request;
        if text.len() > review::ARGUMENTS_BYTES_MAX {
            let most = review::ARGUMENTS_BYTES_MAX;
            return Ok(Proposed::Unfit(format!(
                "the arguments have more than {most} bytes, too many to review"
            )));
        }
        if let Err(why) = review::unambiguous(text) {
            return Ok(Proposed::Unfit(why));
        }
        let target = match tool.target(request.context, request.arguments).await {
            Ok(target) => target,
            Err(failure) => return Ok(Proposed::Failed(failure)),
        };
        let name = tool.spec().name.as_str();
        let pending = Proposal {
            id: service_kit::id::new("proposal"),
            session: worker.id.clone(),
            root: worker.root.clone(),
            workspace: worker.workspace.clone(),
            operator: worker.operator.clone(),
            tool: name.to_owned(),
            class,
            arguments: text.to_owned(),
            digest: request.digest(target.as_ref()),
            said: cut(said, review::SAID_BYTES_MAX),
            blast_radius: self.config.tools.blast_radius(name).unwrap_or_default().to_owned(),
            decision: Decision::Pending,
            decision_reason: String::new(),
            reviewer: String::new(),
            create_time: self.clock.now(),
            decide_time: None,
            execute_time: None,
            awaits_person: false,
        };
        let is_exempt = self.config.review.exempt.iter().any(|pattern| Pattern(pattern).matches(name));
        let proposal = match is_exempt {
            true => {
                let reason = "the operator exempted the tool (`review.exempt`)";
                pending.decided(Decision::Approved, POLICY, reason, self.clock.now())
            }
            false => pending,
        };
        self.proposals.propose(proposal.clone()).await?;
        let description = tool.spec().description.as_str();
        let brief = review::compose(&Brief {
            proposal: &proposal,
            agent: &worker.agent,
            task,
            description,
            target: target.as_ref(),
        });
        Ok(Proposed::Recorded(Box::new(proposal), brief))
    }

    /// Has a reviewer decide. Afterwards the proposal is decided, or it awaits a person.
    pub async fn review(
        self: &Arc<Self>,
        proposal: Proposal,
        brief: String,
        worker: &Worker,
        open: Arc<OpenWorker>,
    ) -> Result<Proposal, StoreError> {
        let (reviewer, verdict) = self.ask_reviewer(worker, brief, open).await?;
        let now = self.clock.now();
        let after = match verdict {
            Verdict::Approve(reason) if needs_person(worker, &proposal) => {
                proposal.before_person(&reviewer, &reason)
            }
            Verdict::Approve(reason) => proposal.decided(Decision::Approved, &reviewer, &reason, now),
            Verdict::Reject(reason) => proposal.decided(Decision::Rejected, &reviewer, &reason, now),
        };
        info!(proposal = %proposal.id, tool = %proposal.tool, decision = ?after.decision, "reviewed");
        self.settle(proposal, after).await
    }

    /// How long a worker has waited for decisions: that time is not its own.
    pub async fn waited(&self, id: &SessionId) -> Result<std::time::Duration, StoreError> {
        let filter =
            ProposalFilter { session: Some(id.clone()), limit: PROPOSALS_MAX, ..ProposalFilter::default() };
        Ok(review::waited(&self.proposals.proposals(filter).await?))
    }

    /// The reviewer's session, empty where there is none, and what it decided.
    async fn ask_reviewer(
        self: &Arc<Self>,
        worker: &Worker,
        brief: String,
        open: Arc<OpenWorker>,
    ) -> Result<(String, Verdict), StoreError> {
        let dispatched = match self.dispatch_reviewer(worker, brief, open).await {
            Ok(dispatched) => dispatched,
            Err(reason) => return Ok((String::new(), Verdict::Reject(reason))),
        };
        let id = &dispatched.worker.id;
        let ran = self.tasks.spawn(Arc::clone(self).run_reviewer(id.clone())).await;
        let verdict = match (ran, self.log.worker(id).await?) {
            (Ok(()), Some(reviewer)) => review::verdict(&reviewer),
            (Ok(()), None) | (Err(_), _) => Verdict::Reject("the reviewer failed".to_owned()),
        };
        Ok((id.to_string(), verdict))
    }

    /// Runs a reviewer to a closed record, on every path. Boxed: a run asks the gate, and the gate runs reviewers.
    fn run_reviewer(self: Arc<Self>, id: SessionId) -> BoxFuture<'static, ()> {
        async move {
            let (reason, error) = match AssertUnwindSafe(run::perform(&self, &id, false)).catch_unwind().await
            {
                Ok(Ok(()) | Err(Left::Closed | Left::Moved)) => return,
                Ok(Err(Left::Store(failure))) => (StopReason::Lost, chain(&failure)),
                Err(_) => (StopReason::Panic, "a defect in the executor ended the reviewer".to_owned()),
            };
            error!(reviewer = %id, error, "a review died");
            if let Err(failure) = self.close_unowned(&id, &Cause { reason, error }).await {
                error!(reviewer = %id, error = %chain(&failure), "failed to close a review");
            }
        }
        .boxed()
    }

    /// Exchanges one state for the next; where somebody was faster, theirs counts.
    async fn settle(&self, before: Proposal, after: Proposal) -> Result<Proposal, StoreError> {
        if self.proposals.exchange(before.clone(), after.clone()).await? {
            return Ok(after);
        }
        let now = self.proposals.proposal(&before.id).await?;
        Ok(now
            .filter(|now| now.decision != Decision::Pending)
            .unwrap_or_else(|| before.decided(Decision::Rejected, "", review::ENDED, self.clock.now())))
    }
}

impl Request<'_> {
    fn digest(&self, target: Option<&Target>) -> String {
        let spec = self.tool.spec();
        review::digest(&Subject {
            session: &self.worker.id,
            tool: &spec.name,
            schema: &spec.input_schema,
            arguments: self.text,
            target,
        })
    }
}

/// Under `dual-sign` a person has the last word over what cannot be undone.
fn needs_person(worker: &Worker, proposal: &Proposal) -> bool {
    match (worker.permission_mode, proposal.class) {
        (PermissionMode::DualSign, Class::Destructive) => true,
        (PermissionMode::DualSign, Class::Read | Class::Write)
        | (PermissionMode::ReadOnly | PermissionMode::MutatingWithReview, _) => false,
    }
}

#[cfg(test)]
mod tests;
