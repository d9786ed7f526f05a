//! The spawn tool inside a worker: the child comes under the whole admission, and its parent waits for it.

use std::{collections::BTreeMap, sync::Arc};

use futures::{FutureExt as _, future::join_all};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{Answer, Decision};
use crate::{
    admission::Budget,
    argument::Violations,
    dispatch::{ANONYMOUS, Caller, Dispatched, Place},
    error::Error,
    event::Body,
    hint,
    kernel::Kernel,
    react::Call,
    run::{Interrupted, Left, Owner, Run},
    session::{Record, Request},
    tool::{Context, Outcome},
    worker::{SessionId, Status, StopReason, Usage, Worker},
};

/// A child that is waited for, or the reason why there is none.
pub(super) struct Child {
    pub(super) call: Call,
    pub(super) dispatched: Result<Dispatched, Error>,
}

/// Arguments of the spawn tool. Others are ignored: a child is always waited for.
#[derive(Deserialize)]
struct Arguments {
    subagent_type: String,
    prompt: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    output_schema: Option<Value>,
}

/// The answer of the spawn tool.
#[derive(Serialize)]
struct Report<'a> {
    task_id: &'a SessionId,
    status: Status,
    stop_reason: Option<StopReason>,
    result: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_output: Option<Value>,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
    usage: Usage,
    deduplicated: bool,
    hint: String,
}

impl Run<'_> {
    /// Dispatches the children of a turn side by side, and records those that are new.
    pub(super) async fn spawn_all(
        &self,
        owner: &mut Owner<'_>,
        spawns: Vec<(Call, Decision)>,
    ) -> Result<Result<Vec<Child>, Interrupted>, Left> {
        if spawns.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let worker = owner.worker().clone();
        let turn = owner.worker().usage.turns;
        let dispatching = spawns.into_iter().filter_map(|(call, decision)| match decision {
            Decision::Spawn(arguments) => Some(self.spawn(&worker, turn, call, arguments).boxed()),
            Decision::Send(arguments) => Some(self.send(&worker, turn, call, arguments).boxed()),
            Decision::Answered(_) | Decision::Run(_) | Decision::Review(_) | Decision::Stop(_) => None,
        });
        let children = match self.unless_interrupted(join_all(dispatching)).await {
            Ok(children) => children,
            Err(interrupted) => return Ok(Err(interrupted)),
        };
        let new = children.iter().filter_map(|child| child.dispatched.as_ref().ok());
        let records = new
            .filter(|dispatched| !dispatched.deduplicated && !owner.state().has_child(&dispatched.worker.id))
            .map(|Dispatched { worker, .. }| Record::Event {
                body: Body::ChildSpawned { worker: worker.id.clone(), agent: worker.agent.clone() },
            })
            .collect();
        owner.append(records).await?;
        Ok(Ok(children))
    }

    async fn spawn(&self, parent: &Worker, turn: u32, call: Call, arguments: Value) -> Child {
        let dispatched = match Arguments::read(arguments) {
            Ok(arguments) => {
                let request = request(parent, turn, &call);
                let spawn = child_call(parent, arguments, request);
                let caller = Caller::on_behalf_of(parent);
                self.kernel.dispatch(&caller, spawn, Some(Arc::clone(self.open))).await
            }
            Err(refusal) => Err(refusal),
        };
        Child { call, dispatched }
    }

    pub(super) fn context(&self, owner: &Owner<'_>) -> Context {
        let worker = owner.worker();
        Context {
            session: worker.id.clone(),
            workspace: self.kernel.place(&worker.workspace),
            cancel: self.open.stop_token(),
            approved: None,
        }
    }
}

impl Arguments {
    /// Row 1 of admission, for what a model wrote.
    fn read(arguments: Value) -> Result<Self, Error> {
        let arguments: Self =
            serde_json::from_value(arguments).map_err(|error| Error::Arguments(error.to_string()))?;
        let mut violations = Violations::default();
        violations.agent("subagent_type", &arguments.subagent_type);
        violations.prompt("prompt", &arguments.prompt);
        violations.check(arguments)
    }
}

impl Child {
    /// Waits for the child's end. The text of a refusal is the answer, and the parent goes on.
    pub(super) async fn answer(self, kernel: &Kernel) -> Answer {
        let Dispatched { worker, deduplicated, waiter } = match self.dispatched {
            Ok(dispatched) => dispatched,
            Err(refusal) => return Answer { outcome: Outcome::Denied, text: kernel.told(&refusal) },
        };
        let worker = match &waiter {
            Some(waiter) => waiter.closed().await,
            None => worker,
        };
        let hint = hint::of(&worker, deduplicated, kernel.is_rehearsal(&worker.model), kernel.clock.now());
        let structured_output = worker.structured_output.as_deref();
        let report = Report {
            task_id: &worker.id,
            status: worker.status,
            stop_reason: worker.stop_reason,
            result: &worker.result,
            structured_output: structured_output.and_then(|text| serde_json::from_str(text).ok()),
            error: &worker.error,
            usage: worker.usage,
            deduplicated,
            hint,
        };
        let text = serde_json::to_string(&report).expect("a report has no keys that are not text");
        // A child that failed is a result of the tool: what it says is what counts.
        Answer::ok(text)
    }
}

impl Caller {
    /// The executor itself, for a running worker.
    pub fn on_behalf_of(worker: &Worker) -> Self {
        Self {
            operator: worker.operator.clone(),
            is_anonymous: worker.operator == ANONYMOUS,
            owns_all: true,
            reads_all: true,
            reads_records: true,
            spawns: None,
            workspaces: Vec::new(),
        }
    }
}

/// The same call of the same turn is the same child: a worker that is taken over finds the child that it spawned before.
/// Callers' own ids have no blanks.
pub(super) fn request(parent: &Worker, turn: u32, call: &Call) -> Request {
    // A coordinator counts its model's turns anew for each message.
    let Worker { id, create_time, .. } = parent;
    Request {
        id: format!("child of {id} since {} turn {turn} call {}", create_time.0, call.call.id),
        content: Sha256::digest(call.call.arguments.as_bytes()).into(),
    }
}

fn child_call(parent: &Worker, arguments: Arguments, request: Request) -> crate::dispatch::Call {
    let Arguments { subagent_type, prompt, description, output_schema } = arguments;
    let as_text = |schema: Value| match schema {
        Value::String(text) => text,
        other => other.to_string(),
    };
    crate::dispatch::Call {
        workspace: parent.workspace.clone(),
        agent: subagent_type,
        description,
        prompt,
        place: Place::Below(parent.id.to_string()),
        output_schema: output_schema.filter(|schema| !schema.is_null()).map(as_text),
        schema_is_permissive: false,
        background: false,
        plan_mode: false,
        bypass_dedupe: false,
        budget: Budget::default(),
        model: None,
        request: Some(request),
        labels: BTreeMap::new(),
        locale: String::new(),
        deadline: None,
    }
}
