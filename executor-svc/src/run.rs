//! Performs one worker: claims its log, folds it, and alternates model and tools until the record is closed.

mod model;
mod owner;
mod tools;

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;
use tracing::info;

pub use self::owner::{Left, Owner};
use self::{model::Asked, tools::Tools};
use crate::{
    event::Body,
    kernel::Kernel,
    open::{Cause, OpenWorker},
    react::{Check, End, Rules, Step},
    schema::Schema,
    session::Record,
    slots::{Priority, Slot},
    stop::cause_of,
    tool::Outcome,
    transcript::Message,
    worker::{SessionId, StopReason},
};

/// Runs a delivered worker to its end.
///
/// # Errors
///
/// [`Left`] where the worker is no longer this run's: it was closed, somebody else owns it, or the store failed.
pub async fn perform(kernel: &Arc<Kernel>, id: &SessionId, redelivered: bool) -> Result<(), Left> {
    let open = kernel.open.open(id);
    let Some(mut owner) = Owner::load(kernel, id).await? else {
        kernel.open.close(id, None);
        return Err(Left::Closed);
    };
    let root = owner.worker().root.clone();
    if redelivered && !owner.worker().parent.is_worker() {
        // Its caller went with the process that ran it. A parent comes back and waits again.
        open.detach();
    }
    let per_tree_max = kernel.limits_of(&owner.worker().workspace).max_running_per_tree;
    let slot = tokio::select! {
        slot = kernel.slots.acquire(&root, per_tree_max, Priority::Newcomer) => slot,
        _ = open.closed() => return Err(Left::Closed),
        cause = open.stopped() => return Ok(kernel.close_unowned(id, &cause).await?),
    };
    open.start();
    // It may have been closed, or told to stop, while it waited.
    owner.reload().await?;
    owner.begin(redelivered).await?;
    if let Some(wish) = kernel.log.stop_wish(id).await? {
        // It was to be stopped when its executor died.
        open.stop(cause_of(&wish));
    }

    let seat = Seat::new(kernel, root, slot);
    let mut run = Run { kernel, open: &open, deadline: owner.deadline(), seat: &seat };
    let (records, end) = run.drive(&mut owner).await?;
    info!(worker = %id, agent = %owner.worker().agent, reason = ?end.reason, "worker ended");
    owner.close(records, end).await
}

/// What the steps of one run share.
struct Run<'k> {
    kernel: &'k Arc<Kernel>,
    open: &'k Arc<OpenWorker>,
    deadline: Instant,
    seat: &'k Seat<'k>,
}

/// A worker's slot: held in calls, given back in waits.
struct Seat<'k> {
    kernel: &'k Kernel,
    root: SessionId,
    slot: tokio::sync::Mutex<Option<Slot>>,
}

/// Why a step was given up.
struct Interrupted(Cause);

impl Run<'_> {
    /// Takes steps until one of them is the end. The records go into the same step as the end.
    async fn drive(&mut self, owner: &mut Owner<'_>) -> Result<(Vec<Record>, End), Left> {
        if let Some(closing) = lost(owner) {
            return Ok(closing);
        }
        let spec = Arc::clone(owner.spec());
        let schema = match spec.output_schema.as_deref().map(Schema::compile).transpose() {
            Ok(schema) => schema,
            Err(fault) => {
                let end =
                    owner.state().early(StopReason::Schema, format!("its schema is not usable: {fault}"));
                return Ok((Vec::new(), end));
            }
        };
        let check = schema.as_ref().map(|schema| {
            move |data: &Value| schema.validate(data).map_err(|violations| violations.to_string())
        });
        let rules = Rules {
            turns_max: spec.max_turns,
            check: check.as_ref().map(|check| check as &Check<'_>),
            permissive: spec.schema_is_permissive,
        };
        let mut tools = Tools::of(self.kernel, owner, schema.as_ref()).await;
        loop {
            match owner.state().next(&rules) {
                Step::End(end) => return Ok((Vec::new(), end)),
                Step::Ask { turn, choice } => {
                    if let Some(end) = self.out_of_tokens(owner).await? {
                        return Ok((Vec::new(), end));
                    }
                    owner.append(owner.state().ask(turn, choice)).await?;
                    match self.ask(owner, &rules, &tools, turn, choice).await {
                        Asked::Records(records) => {
                            let after = owner.state().after(&records);
                            match after.next(&rules) {
                                Step::End(end) => return Ok((records, end)),
                                Step::Ask { .. } | Step::Call(_) => owner.append(records).await?,
                            }
                        }
                        Asked::End(end) => return Ok((Vec::new(), end)),
                    }
                }
                Step::Call(calls) => {
                    if let Some(closing) = self.call(owner, &rules, &mut tools, calls).await? {
                        return Ok(closing);
                    }
                }
            }
        }
    }

    /// Runs `work` until it is done, the worker is stopped, or its time is up.
    async fn unless_interrupted<T>(&self, work: impl Future<Output = T>) -> Result<T, Interrupted> {
        tokio::select! {
            biased;
            cause = self.open.stopped() => Err(Interrupted(cause)),
            () = tokio::time::sleep_until(self.deadline) => Err(Interrupted(Cause {
                reason: StopReason::Timeout,
                error: "its wall time is used up".to_owned(),
            })),
            done = work => Ok(done),
        }
    }

    /// The end of a worker that has used up its tokens, together with everything below it, or whose tree has.
    async fn out_of_tokens(&self, owner: &Owner<'_>) -> Result<Option<End>, Left> {
        let worker = owner.worker();
        if let Some(max) = owner.spec().tokens_max {
            let used = self.kernel.tokens_of_tree(worker).await?;
            if used >= max {
                let error = format!("its budget of {max} tokens is used up ({used})");
                return Ok(Some(owner.state().early(StopReason::Budget, error)));
            }
        }
        let limits = self.kernel.limits_of(&worker.workspace);
        if let Some(max) = limits.tree_tokens.get() {
            let used = self.kernel.tokens_below_root(&worker.root, limits.tree_window.0).await?;
            if used >= max {
                let error = format!("`limits.tree_tokens` of {max} is used up ({used})");
                return Ok(Some(owner.state().early(StopReason::Budget, error)));
            }
        }
        Ok(None)
    }
}

impl<'k> Seat<'k> {
    fn new(kernel: &'k Kernel, root: SessionId, slot: Slot) -> Self {
        Self { kernel, root, slot: tokio::sync::Mutex::new(Some(slot)) }
    }

    /// Gives the slot back.
    async fn leave(&self) {
        self.slot.lock().await.take();
    }

    /// Gives the slot back while `wait` only waits, and returns with another one.
    async fn vacate<T>(&self, wait: impl Future<Output = T>) -> T {
        self.leave().await;
        let done = wait.await;
        self.retake().await;
        done
    }

    async fn retake(&self) {
        let mut slot = self.slot.lock().await;
        if slot.is_none() {
            let max = self.kernel.config.limits.max_running_per_tree;
            *slot = Some(self.kernel.slots.acquire(&self.root, max, Priority::Returning).await);
        }
    }
}

/// The end of a worker that was taken over with a call open that may have changed something: it is not run again.
fn lost(owner: &Owner<'_>) -> Option<(Vec<Record>, End)> {
    let unknown = owner.state().calls_of_unknown_outcome();
    let first = unknown.first()?;
    let text = "The outcome of this call is unknown: its executor died while it ran.";
    let end = owner.state().early(
        StopReason::Lost,
        format!("its executor died while `{}` ran; whether the call took effect is unknown", first.call.tool),
    );
    let records = unknown
        .into_iter()
        .flat_map(|open| {
            let message = Message::Tool {
                call_id: open.call.id.clone(),
                tool: open.call.tool,
                text: text.to_owned(),
                is_error: true,
            };
            let body = Body::ToolFinished {
                call_id: open.call.id,
                outcome: Outcome::Unknown,
                preview: text.to_owned(),
                duration_ms: 0,
            };
            [Record::Message { message }, Record::Event { body }]
        })
        .collect();
    Some((records, end))
}

#[cfg(test)]
mod tests;
