//! The calls of one turn: decided, recorded as intents, run side by side, and answered one by one as they end.

mod child;
mod kit;

use std::time::Duration;

use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::Value;
use tokio::time::Instant;

use self::kit::Decision;
pub(super) use self::kit::Tools;
use super::{Interrupted, Left, Owner, Run};
use crate::{
    event::{Body, PREVIEW_BYTES_MAX, TEXT_BYTES_MAX, cut},
    meter,
    open::Cause,
    react::{Call, End, Rules, Submission, submit},
    session::Record,
    tool::{Class, Outcome, limits, name::SUBMIT_RESULT},
    transcript::Message,
};

/// How a call ended.
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    pub(super) text: String,
}

/// A call that ended, with how long it took.
struct Ended {
    call: Call,
    answer: Result<Answer, Interrupted>,
    took: Duration,
    /// It only waited for another worker, and needed no slot.
    waited_only: bool,
}

impl Answer {
    pub(super) fn ok(text: String) -> Self {
        Self { outcome: Outcome::Ok, text }
    }

    pub(super) fn error(text: impl Into<String>) -> Self {
        Self { outcome: Outcome::Error, text: text.into() }
    }
}

impl Run<'_> {
    /// Runs the open calls of a turn. With an end, its records belong into the same step.
    pub(super) async fn call(
        &self,
        owner: &mut Owner<'_>,
        rules: &Rules<'_>,
        tools: &mut Tools,
        calls: Vec<Call>,
    ) -> Result<Option<(Vec<Record>, End)>, Left> {
        let (submissions, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|call| call.call.tool == SUBMIT_RESULT);
        let mut records = Vec::new();
        let mut due = Vec::new();
        for call in calls {
            let (class, decision) = tools.decide(&call);
            records.extend(intent(&call, class));
            match decision {
                Decision::Answered(answer) => {
                    meter::called(answer.outcome, Duration::ZERO);
                    records.extend(answered(&call, &answer, Duration::ZERO));
                }
                Decision::Run(_) | Decision::Spawn(_) => due.push((call, decision)),
            }
        }
        owner.append(records).await?;
        if let Err(interrupted) = self.perform(owner, tools, due).await? {
            return Ok(Some(ended_early(owner, interrupted.0)));
        }
        self.submit(owner, rules, submissions).await
    }

    /// Runs calls side by side. While only other workers are waited for, the slot is given back.
    async fn perform(
        &self,
        owner: &mut Owner<'_>,
        tools: &mut Tools,
        due: Vec<(Call, Decision)>,
    ) -> Result<Result<(), Interrupted>, Left> {
        let (spawns, runs): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(_, decision)| matches!(decision, Decision::Spawn(_)));
        let children = match self.spawn_all(owner, spawns).await? {
            Ok(children) => children,
            Err(interrupted) => return Ok(Err(interrupted)),
        };
        let mut running = FuturesUnordered::new();
        let mut holding = runs.len();
        for (call, decision) in runs {
            let Decision::Run(run) = decision else { continue };
            let context = self.context(owner);
            running.push(futures::future::Either::Left(async move {
                let began = Instant::now();
                let answer = self.unless_interrupted(run.run(&context)).await;
                Ended { call, answer, took: began.elapsed(), waited_only: false }
            }));
        }
        for child in children {
            running.push(futures::future::Either::Right(async move {
                let began = Instant::now();
                let (call, waiting) = (child.call.clone(), child);
                let answer = self.unless_interrupted(waiting.answer(self.kernel)).await;
                Ended { call, answer, took: began.elapsed(), waited_only: true }
            }));
        }
        if holding == 0 && !running.is_empty() {
            self.seat.leave().await;
        }
        while let Some(Ended { call, answer, took, waited_only }) = running.next().await {
            let answer = match answer {
                Ok(answer) => answer,
                Err(interrupted) => return Ok(Err(interrupted)),
            };
            tools.remember(&call, &answer);
            meter::called(answer.outcome, took);
            owner.append(answered(&call, &answer, took).into()).await?;
            if !waited_only {
                holding -= 1;
                if holding == 0 && !running.is_empty() {
                    self.seat.leave().await;
                }
            }
        }
        drop(running);
        Ok(self.unless_interrupted(self.seat.retake()).await)
    }

    /// Judges submissions in their order. The first that is accepted ends the worker; later ones are not looked at.
    async fn submit(
        &self,
        owner: &mut Owner<'_>,
        rules: &Rules<'_>,
        submissions: Vec<Call>,
    ) -> Result<Option<(Vec<Record>, End)>, Left> {
        for call in submissions {
            let mut records: Vec<Record> = intent(&call, Class::Read).into_iter().collect();
            let arguments: Value = match serde_json::from_str(&call.call.arguments) {
                Ok(arguments) => arguments,
                Err(error) => {
                    let answer = Answer::error(format!("the arguments are not JSON: {error}"));
                    records.extend(answered(&call, &answer, Duration::ZERO));
                    owner.append(records).await?;
                    continue;
                }
            };
            let (answer, rejected, end) = match submit(owner.state(), rules, &arguments) {
                Submission::End(end) => (Answer::ok("The result is submitted.".to_owned()), None, Some(end)),
                Submission::Unreadable(text) => (Answer::error(text), None, None),
                Submission::Rejected { attempt, violations } => {
                    (mismatch(&violations), Some((attempt, violations)), None)
                }
                Submission::RejectedFinally { attempt, violations, end } => {
                    (mismatch(&violations), Some((attempt, violations)), Some(end))
                }
            };
            records.extend(answered(&call, &answer, Duration::ZERO));
            records.extend(rejected.map(|(attempt, violations)| Record::Event {
                body: Body::OutputRejected { attempt, violations: cut(&violations, PREVIEW_BYTES_MAX) },
            }));
            match end {
                Some(end) => return Ok(Some((records, end))),
                None => owner.append(records).await?,
            }
        }
        Ok(None)
    }
}

/// The intent of a call, unless a run before this one recorded it.
fn intent(call: &Call, class: Class) -> Option<Record> {
    call.started.is_none().then(|| Record::Event {
        body: Body::ToolStarted {
            call_id: call.call.id.clone(),
            tool: call.call.tool.clone(),
            class,
            arguments: cut(&call.call.arguments, TEXT_BYTES_MAX),
        },
    })
}

/// The outcome of a call: what the model is told, and what is shown.
fn answered(call: &Call, answer: &Answer, took: Duration) -> [Record; 2] {
    let Answer { outcome, text } = answer;
    let text = limits::cut(text.clone());
    [
        Record::Event {
            body: Body::ToolFinished {
                call_id: call.call.id.clone(),
                outcome: *outcome,
                preview: cut(&text, PREVIEW_BYTES_MAX),
                duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            },
        },
        Record::Message {
            message: Message::Tool {
                call_id: call.call.id.clone(),
                tool: call.call.tool.clone(),
                text,
                is_error: *outcome != Outcome::Ok,
            },
        },
    ]
}

fn mismatch(violations: &str) -> Answer {
    Answer::error(format!("the result does not match its schema:\n{violations}\nSubmit it again, mended."))
}

/// The end of a worker that was stopped in the middle of its calls: those that were begun are told to have ended.
fn ended_early(owner: &Owner<'_>, cause: Cause) -> (Vec<Record>, End) {
    let answer = Answer::error("the worker ended before this call was done");
    let open = owner.state().open_calls();
    let begun = open.iter().filter(|call| call.started.is_some());
    let records = begun.flat_map(|call| answered(call, &answer, Duration::ZERO)).collect();
    (records, owner.state().early(cause.reason, cause.error))
}
