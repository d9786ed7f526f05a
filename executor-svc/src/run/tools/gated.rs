//! Calls before the review gate: proposed and recorded together, judged without a slot, run with one.

use std::time::Duration;

use futures::{FutureExt as _, future::BoxFuture};
use tokio::time::Instant;

use super::{Answer, Ended, Happened, Step, answered, kit::ToolRun};
use crate::{
    event::{Body, TEXT_BYTES_MAX, cut},
    gate::Proposed,
    meter,
    react::Call,
    review::Proposal,
    run::{Interrupted, Left, Owner, Run},
    session::Record,
    tool::{Context, Outcome},
    transcript::Message,
    worker::Worker,
};

/// A call that is proposed.
pub(super) struct Gated {
    pub(super) call: Call,
    pub(super) proposal: Proposal,
    began: Instant,
    run: ToolRun,
    brief: String,
    worker: Worker,
    context: Context,
}

impl Run<'_> {
    /// Records the proposals of a turn. What cannot be proposed is answered.
    pub(super) async fn propose_all(
        &self,
        owner: &mut Owner<'_>,
        calls: Vec<(Call, ToolRun)>,
    ) -> Result<Result<Vec<Gated>, Interrupted>, Left> {
        let mut gated = Vec::new();
        let mut records = Vec::new();
        for (call, run) in calls {
            let (worker, context) = (owner.worker().clone(), self.context(owner));
            let request = run.request(&worker, &context, (&owner.spec().prompt, said(owner)));
            let proposed = match self.unless_interrupted(self.kernel.propose(&request)).await {
                Ok(proposed) => proposed?,
                Err(interrupted) => return Ok(Err(interrupted)),
            };
            match proposed {
                Proposed::Recorded(proposal, brief) => {
                    records.push(event(&proposal));
                    let (proposal, began) = (*proposal, Instant::now());
                    gated.push(Gated { call, proposal, began, run, brief, worker, context });
                }
                Proposed::Unfit(why) => {
                    meter::called(Outcome::Rejected, Duration::ZERO);
                    records.extend(answered(&call, &rejected(&why), Duration::ZERO));
                }
                Proposed::Failed(failure) => {
                    let answer = Answer::error(failure.to_string());
                    meter::called(answer.outcome, Duration::ZERO);
                    records.extend(answered(&call, &answer, Duration::ZERO));
                }
            }
        }
        owner.append(records).await?;
        Ok(Ok(gated))
    }

    /// Waits for the reviewer.
    pub(super) fn judge(&self, gated: Gated) -> BoxFuture<'_, Step> {
        async move {
            let Gated { proposal, brief, worker, .. } = &gated;
            let open = std::sync::Arc::clone(self.open);
            let judging = self.kernel.review(proposal.clone(), brief.clone(), worker, open);
            match self.unless_interrupted(judging).await {
                Ok(proposal) => Ok(Ok(Happened::Judged(Box::new(Gated { proposal: proposal?, ..gated })))),
                Err(interrupted) => Ok(Err(interrupted)),
            }
        }
        .boxed()
    }

    /// Waits for a person.
    pub(super) fn await_person(&self, gated: Gated) -> BoxFuture<'_, Step> {
        async move {
            let waiting = self.kernel.await_person(gated.proposal.clone());
            match self.unless_interrupted(waiting).await {
                Ok(proposal) => Ok(Ok(Happened::Judged(Box::new(Gated { proposal: proposal?, ..gated })))),
                Err(interrupted) => Ok(Err(interrupted)),
            }
        }
        .boxed()
    }

    /// Runs an approved call, once, if what was reviewed is still so.
    pub(super) fn execute(&self, gated: Gated) -> BoxFuture<'_, Step> {
        async move {
            let Gated { call, proposal, began: _, run, brief: _, worker, context } = gated;
            let began = Instant::now();
            let running = async {
                let _turn = self.kernel.gate.turn_of(&proposal).await;
                let request = run.request(&worker, &context, ("", ""));
                match self.kernel.take_approval(&request, &proposal).await? {
                    Ok(approved) => Ok::<_, Left>(run.run_approved(&context, approved).await),
                    Err(why) => Ok(rejected(&why)),
                }
            };
            match self.unless_interrupted(running).await {
                Ok(answer) => {
                    let (answer, took) = (answer?, began.elapsed());
                    Ok(Ok(Happened::Ended(Ended { call, answer, took, waited_only: false })))
                }
                Err(interrupted) => Ok(Err(interrupted)),
            }
        }
        .boxed()
    }
}

impl Gated {
    /// What the worker is told of a call that must not run.
    pub(super) fn rejection(&self) -> [Record; 2] {
        answered(&self.call, &rejected(&self.proposal.decision_reason), self.took())
    }

    /// Since it was proposed.
    pub(super) fn took(&self) -> Duration {
        self.began.elapsed()
    }
}

/// The gate was asked, or answered.
pub(super) fn event(proposal: &Proposal) -> Record {
    let arguments = cut(&proposal.arguments, TEXT_BYTES_MAX);
    let proposal = Box::new(Proposal { arguments, ..proposal.clone() });
    Record::Event { body: Body::Review { proposal } }
}

pub(super) fn rejected(why: &str) -> Answer {
    Answer { outcome: Outcome::Rejected, text: format!("review rejected: {why}") }
}

/// What the worker said with its calls.
pub(super) fn said<'o>(owner: &'o Owner<'_>) -> &'o str {
    let said = owner.state().messages().iter().rev().find_map(|message| match message {
        Message::Assistant { text, .. } => Some(text.as_str()),
        Message::User { .. } | Message::Tool { .. } => None,
    });
    said.unwrap_or_default()
}
