//! The calls of one turn: decided, recorded as intents, run side by side, and answered one by one as they end.

mod child;
mod gated;
mod kit;
mod order;

use std::{collections::HashSet, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use serde_json::Value;
use tokio::time::Instant;

pub(super) use self::kit::Tools;
use self::{
    child::Child,
    gated::Gated,
    kit::{Decision, ToolRun},
};
use super::{Interrupted, Left, Owner, Run, is_reviewer};
use crate::{
    event::{Body, PREVIEW_BYTES_MAX, TEXT_BYTES_MAX, cut},
    meter,
    open::Cause,
    react::{Call, End, Rules, Submission, submit},
    review,
    session::Record,
    tool::{Class, Context, Outcome, limits, name::SUBMIT_RESULT},
    transcript::Message,
};

/// How a call ended.
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    pub(super) text: String,
}

/// What a call came to: the store failed it, the worker was interrupted, or the call went on.
type Step = Result<Result<Happened, Interrupted>, Left>;

/// The calls of a turn that are not answered yet.
struct Going<'r> {
    steps: FuturesUnordered<BoxFuture<'r, Step>>,
    /// Calls that need the worker's slot.
    holding: usize,
    /// Calls that wait for a decision.
    judging: usize,
    /// Approved calls that run, by the model's ids for them.
    executing: HashSet<String>,
}

/// A turn's calls that were given up.
struct GivenUp {
    cause: Cause,
    /// Those of them that were running and may have changed something.
    executing: HashSet<String>,
}

enum Happened {
    Ended(Ended),
    /// The reviewer or a person answered.
    Judged(Box<Gated>),
}

/// A call that ended, with how long it took.
struct Ended {
    call: Call,
    answer: Answer,
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
                Decision::Run(_)
                | Decision::Review(_)
                | Decision::Spawn(_)
                | Decision::Send(_)
                | Decision::Stop(_) => due.push((call, decision)),
            }
        }
        owner.append(records).await?;
        if let Err(given_up) = self.perform(owner, tools, due).await? {
            return Ok(Some(ended_early(owner, given_up)));
        }
        self.submit(owner, rules, submissions).await
    }

    /// Runs calls side by side. While only others are waited for, the slot is given back; while a decision is waited for,
    /// the wall time stands still.
    async fn perform(
        &self,
        owner: &mut Owner<'_>,
        tools: &mut Tools,
        due: Vec<(Call, Decision)>,
    ) -> Result<Result<(), GivenUp>, Left> {
        let (mut spawns, mut runs, mut reviews, mut stops) = (vec![], vec![], vec![], vec![]);
        for (call, decision) in due {
            match decision {
                Decision::Answered(_) => {}
                Decision::Spawn(_) | Decision::Send(_) => spawns.push((call, decision)),
                Decision::Stop(arguments) => stops.push((call, arguments)),
                Decision::Run(run) => runs.push((call, run)),
                Decision::Review(run) => reviews.push((call, run)),
            }
        }
        let children = match self.spawn_all(owner, spawns).await? {
            Ok(children) => children,
            Err(interrupted) => return Ok(Err(interrupted.into())),
        };
        let gated = match self.propose_all(owner, reviews).await? {
            Ok(gated) => gated,
            Err(interrupted) => return Ok(Err(interrupted.into())),
        };
        let mut going =
            Going { steps: FuturesUnordered::new(), holding: 0, judging: 0, executing: HashSet::new() };
        for (call, run) in runs {
            going.holding += 1;
            going.steps.push(self.run_tool(call, run, self.context(owner)));
        }
        going.steps.extend(children.into_iter().map(|child| self.wait_for(child)));
        let stops = stops.into_iter().map(|(call, arguments)| self.stop(owner.worker(), call, arguments));
        going.steps.extend(stops);
        for gated in gated {
            match gated.proposal.decision {
                review::Decision::Approved => going.execute(self, gated),
                review::Decision::Pending | review::Decision::Rejected => {
                    going.judging += 1;
                    going.steps.push(self.judge(gated));
                }
            }
        }
        self.settle(&mut going).await;
        while let Some(happened) = going.steps.next().await {
            let interrupted = match happened? {
                Ok(Happened::Ended(Ended { call, answer, took, waited_only })) => {
                    tools.ended(&call, &answer);
                    meter::called(answer.outcome, took);
                    owner.append(answered(&call, &answer, took).into()).await?;
                    going.holding -= usize::from(!waited_only);
                    going.executing.remove(&call.call.id);
                    Ok(())
                }
                Ok(Happened::Judged(gated)) => self.judged(owner, &mut going, *gated).await?,
                Err(interrupted) => Err(interrupted),
            };
            if let Err(Interrupted(cause)) = interrupted {
                return Ok(Err(GivenUp { cause, executing: going.executing }));
            }
            self.settle(&mut going).await;
        }
        drop(going);
        Ok(self.unless_interrupted(self.seat.retake()).await.map_err(GivenUp::from))
    }

    /// What follows from a decision: the call runs, with a slot again; a person is asked; or the model is told.
    async fn judged<'s>(
        &'s self,
        owner: &mut Owner<'_>,
        going: &mut Going<'s>,
        gated: Gated,
    ) -> Result<Result<(), Interrupted>, Left> {
        owner.append(vec![gated::event(&gated.proposal)]).await?;
        match gated.proposal.decision {
            review::Decision::Pending => going.steps.push(self.await_person(gated)),
            review::Decision::Approved => {
                going.judging -= 1;
                if let Err(interrupted) = self.unless_interrupted(self.seat.retake()).await {
                    return Ok(Err(interrupted));
                }
                going.execute(self, gated);
            }
            review::Decision::Rejected => {
                going.judging -= 1;
                meter::called(Outcome::Rejected, gated.took());
                owner.append(gated.rejection().into()).await?;
            }
        }
        Ok(Ok(()))
    }

    /// Gives back what waiting does not need.
    async fn settle(&self, going: &mut Going<'_>) {
        match going.judging {
            0 => self.wall.go_on(),
            _ => self.wall.stand(),
        }
        if going.holding == 0 && !going.steps.is_empty() {
            self.seat.leave().await;
        }
    }

    fn run_tool(&self, call: Call, run: ToolRun, context: Context) -> BoxFuture<'_, Step> {
        async move {
            let began = Instant::now();
            let answer = self.unless_interrupted(run.run(&context)).await;
            let took = began.elapsed();
            Ok(answer.map(|answer| Happened::Ended(Ended { call, answer, took, waited_only: false })))
        }
        .boxed()
    }

    fn wait_for(&self, child: Child) -> BoxFuture<'_, Step> {
        async move {
            let (call, began) = (child.call.clone(), Instant::now());
            let answer = self.unless_interrupted(child.answer(self.kernel)).await;
            let took = began.elapsed();
            Ok(answer.map(|answer| Happened::Ended(Ended { call, answer, took, waited_only: true })))
        }
        .boxed()
    }

    /// Judges submissions in their order. The first that is accepted ends the worker; later ones are not looked at.
    async fn submit(
        &self,
        owner: &mut Owner<'_>,
        rules: &Rules<'_>,
        submissions: Vec<Call>,
    ) -> Result<Option<(Vec<Record>, End)>, Left> {
        let texts: Vec<&str> = submissions.iter().map(|call| call.call.arguments.as_str()).collect();
        if is_reviewer(owner) && review::is_torn(gated::said(owner), &texts) {
            let answer = Answer::error("one answer has one decision: submit it again, alone");
            let told = submissions.iter().flat_map(|call| {
                intent(call, Class::Read).into_iter().chain(answered(call, &answer, Duration::ZERO))
            });
            owner.append(told.collect()).await?;
            return Ok(None);
        }
        for call in submissions {
            let mut records: Vec<Record> = intent(&call, Class::Read).into_iter().collect();
            let arguments: Value = match read_submission(owner, &call.call.arguments) {
                Ok(arguments) => arguments,
                Err(why) => {
                    let answer = Answer::error(format!("the arguments are not JSON: {why}"));
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

impl<'r> Going<'r> {
    fn execute(&mut self, run: &'r Run<'_>, gated: Gated) {
        self.holding += 1;
        self.executing.insert(gated.call.call.id.clone());
        self.steps.push(run.execute(gated));
    }
}

impl From<Interrupted> for GivenUp {
    /// Nothing that changes something was running.
    fn from(Interrupted(cause): Interrupted) -> Self {
        Self { cause, executing: HashSet::new() }
    }
}

/// The arguments of a submission. A decision has to be one for every reader.
fn read_submission(owner: &Owner<'_>, text: &str) -> Result<Value, String> {
    if is_reviewer(owner) {
        review::unambiguous(text)?;
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
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
pub(super) fn answered(call: &Call, answer: &Answer, took: Duration) -> [Record; 2] {
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
fn ended_early(owner: &Owner<'_>, given_up: GivenUp) -> (Vec<Record>, End) {
    let GivenUp { cause, executing } = given_up;
    let open = owner.state().open_calls();
    let records = open.iter().flat_map(|call| match call.started {
        None => Vec::new(),
        Some(_) if executing.contains(&call.call.id) => unknown(call, "its worker ended").into(),
        Some(Class::Read) => {
            let answer = Answer::error("the worker ended before this call was done");
            answered(call, &answer, Duration::ZERO).into()
        }
        // The gate lets nothing run for a worker that is gone.
        Some(Class::Write | Class::Destructive) => {
            answered(call, &gated::rejected(review::ENDED), Duration::ZERO).into()
        }
    });
    (records.collect(), owner.state().early(cause.reason, cause.error))
}

/// A call of which nobody can tell whether it took effect.
pub(super) fn unknown(call: &Call, why: &str) -> [Record; 2] {
    let text = format!("The outcome of this call is unknown: {why} while it ran.");
    answered(call, &Answer { outcome: Outcome::Unknown, text }, Duration::ZERO)
}
