//! Calls whose results were lost: with the process that ran them, or with the turn that they belonged to. A write that may
//! have taken effect is never run again.

use std::time::Duration;

use super::{Left, Owner, tools};
use crate::{
    react::{Call, End},
    review::Proposal,
    session::{ProposalFilter, Record, StoreError},
    tool::{Class, Outcome},
    worker::StopReason,
};

/// Most proposals of one turn that are looked through: far more than its calls are limited to.
const PROPOSALS_MAX: usize = 10_000;

/// The end of a worker that was taken over with a call open that may have changed something: it is not run again.
pub(super) fn end(owner: &Owner<'_>) -> Option<(Vec<Record>, End)> {
    let unknown = owner.state().calls_of_unknown_outcome();
    let first = unknown.first()?;
    let end = owner.state().early(
        StopReason::Lost,
        format!("its executor died while `{}` ran; whether the call took effect is unknown", first.call.tool),
    );
    Some((unknown_outcomes(owner, "its executor died"), end))
}

/// What is told of calls that were begun, may have changed something, and have no outcome: `why`.
pub fn unknown_outcomes(owner: &Owner<'_>, why: &str) -> Vec<Record> {
    let unknown = owner.state().calls_of_unknown_outcome();
    unknown.iter().flat_map(|call| tools::unknown(call, why)).collect()
}

/// A coordinator that was taken over goes on: calls that may have changed something are answered, and not run again.
pub(super) async fn taken_over(owner: &Owner<'_>) -> Result<Vec<Record>, Left> {
    let open = owner.state().calls_of_unknown_outcome();
    Ok(answers(owner, open, "its executor died").await?)
}

/// The answers to all calls of a turn that ended without them.
///
/// # Errors
///
/// Where the proposals cannot be read.
pub async fn left_open(owner: &Owner<'_>) -> Result<Vec<Record>, StoreError> {
    answers(owner, owner.state().open_calls(), "the turn ended").await
}

async fn answers(owner: &Owner<'_>, calls: Vec<Call>, why: &str) -> Result<Vec<Record>, StoreError> {
    if calls.is_empty() {
        return Ok(Vec::new());
    }
    let (worker, kernel) = (owner.worker(), owner.kernel());
    let filter = ProposalFilter {
        session: Some(worker.id.clone()),
        limit: PROPOSALS_MAX,
        ..ProposalFilter::default()
    };
    let mut proposals = kernel.proposals.proposals(filter).await?;
    proposals.retain(|proposal| proposal.create_time >= worker.create_time);
    let records = calls.iter().flat_map(|call| answer(call, &proposals, why));
    Ok(records.collect())
}

/// What is known of one call.
fn answer(call: &Call, proposals: &[Proposal], why: &str) -> Vec<Record> {
    match call.started {
        None => {
            let text = format!("not executed: {why} before this call was begun");
            tools::answered(call, &tools::Answer::error(text), Duration::ZERO)
                .into_iter()
                .filter(|record| matches!(record, Record::Message { .. }))
                .collect()
        }
        Some(Class::Read) => {
            let text = format!("not executed to its end: {why}, and the result is lost");
            tools::answered(call, &tools::Answer::error(text), Duration::ZERO).into()
        }
        Some(Class::Write | Class::Destructive) => {
            let has_run = proposals.iter().any(|proposal| {
                proposal.execute_time.is_some()
                    && proposal.tool == call.call.tool
                    && is_same(&proposal.arguments, &call.call.arguments)
            });
            let (outcome, text) = match has_run {
                true => (
                    Outcome::Unknown,
                    format!(
                        "outcome unknown: {why} while this call ran, and it may have taken effect; look before you call it again"
                    ),
                ),
                false => (Outcome::Rejected, format!("not executed: {why} before this call was let through")),
            };
            tools::answered(call, &tools::Answer { outcome, text }, Duration::ZERO).into()
        }
    }
}

/// The gate records the arguments as the model wrote them; none are an empty object.
fn is_same(recorded: &str, called: &str) -> bool {
    recorded == called || (called.trim().is_empty() && recorded == "{}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        review::{Decision, POLICY},
        transcript::{Message, ToolCall},
        worker::{SessionId, Time},
    };

    fn call(started: Option<Class>) -> Call {
        let call = ToolCall {
            id: "a".to_owned(),
            tool: "write".to_owned(),
            arguments: r#"{"path":"a"}"#.to_owned(),
        };
        Call { call, started, is_answered: false }
    }

    fn proposal(arguments: &str, executed: bool) -> Proposal {
        Proposal {
            id: "proposal-1".to_owned(),
            session: SessionId::new_root(),
            root: SessionId::new_root(),
            workspace: "default".to_owned(),
            operator: "somebody".to_owned(),
            tool: "write".to_owned(),
            class: Class::Write,
            arguments: arguments.to_owned(),
            digest: String::new(),
            said: String::new(),
            blast_radius: String::new(),
            decision: Decision::Approved,
            decision_reason: String::new(),
            reviewer: POLICY.to_owned(),
            create_time: Time(0),
            decide_time: Some(Time(0)),
            execute_time: executed.then_some(Time(1)),
            awaits_person: false,
        }
    }

    #[test]
    fn a_lost_call_is_unknown_only_where_it_may_have_run() {
        let own = r#"{"path":"a"}"#;
        for (started, proposals, told) in [
            (None, vec![], "not executed: it died before this call was begun"),
            (Some(Class::Read), vec![], "not executed to its end"),
            (Some(Class::Write), vec![], "not executed: it died before this call was let through"),
            (Some(Class::Write), vec![proposal(own, false)], "not executed"),
            (Some(Class::Write), vec![proposal(r#"{"path":"b"}"#, true)], "not executed"),
            (Some(Class::Write), vec![proposal(own, true)], "outcome unknown"),
        ] {
            let records = answer(&call(started), &proposals, "it died");
            let Some(Record::Message { message: Message::Tool { text, is_error: true, .. } }) =
                records.last()
            else {
                panic!("{records:?}");
            };
            assert!(text.starts_with(told), "{started:?} {proposals:?}: {text}");
            assert_eq!(records.len(), if started.is_none() { 1 } else { 2 });
        }
    }
}
