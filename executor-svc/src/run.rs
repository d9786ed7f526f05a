//! Performs one worker: claims its log, folds it, and alternates model and tools until the record is closed.

mod lost;
mod model;
mod owner;
mod tools;
mod wall;

use std::sync::Arc;

use serde_json::Value;
use tracing::info;

pub use self::{
    lost::{left_open, unknown_outcomes},
    owner::{Left, Owner, Patience},
};
use self::{
    model::{Asked, Room},
    tools::Tools,
    wall::Wall,
};
use crate::{
    admission::REVIEWER,
    kernel::Kernel,
    limits::Bound,
    open::{Cause, OpenWorker},
    react::{self, Check, End, Rules, Step},
    review,
    schema::Schema,
    session::Record,
    slots::{Priority, Slot, Slots},
    stop::cause_of,
    worker::{SessionId, StopReason},
};

/// Runs a delivered worker to its end.
///
/// # Errors
///
/// [`Left`] where the worker is no longer this run's: it was closed, somebody else owns it, or the store failed.
pub async fn perform(kernel: &Arc<Kernel>, id: &SessionId, redelivered: bool) -> Result<(), Left> {
    let open = kernel.open.get(id).unwrap_or_else(|| {
        // Its callers are not here: it runs on without them.
        let open = kernel.open.open(id);
        open.detach();
        open
    });
    let Some(mut owner) = Owner::load(kernel, id).await? else {
        kernel.open.close(id, None);
        return Err(Left::Closed);
    };
    owner.leave_closed()?;
    if redelivered && is_reviewer(&owner) {
        // Whoever waited for its decision is gone.
        let error = "the executor died, and the call under review with it".to_owned();
        return Ok(kernel.close_unowned(id, &Cause { reason: StopReason::Lost, error }).await?);
    }
    let (slots, per_tree_max) = match is_reviewer(&owner) {
        true => (kernel.gate.slots(), Bound::Unlimited),
        false => (&kernel.slots, kernel.limits_of(&owner.worker().workspace).max_running_per_tree),
    };
    let root = owner.worker().root.clone();
    let slot = tokio::select! {
        biased;
        _ = open.closed() => return Err(Left::Closed),
        cause = open.stopped() => return Ok(kernel.close_unowned(id, &cause).await?),
        slot = slots.acquire(&root, per_tree_max, Priority::Newcomer) => slot,
    };
    if !open.start() {
        // It was given up in this moment and is being closed.
        return Err(Left::Moved);
    }
    // It may have been closed, or told to stop, while it waited.
    owner.reload().await?;
    owner.begin(redelivered).await?;
    if let Some(wish) = kernel.log.stop_wish(id).await? {
        // It was to be stopped when its executor died.
        open.stop(cause_of(&wish));
    }

    if owner.worker().is_turn()
        && let Some(began) = owner.worker().start_time
    {
        open.set_tree_began(began);
    }
    let seat = Seat { slots, per_tree_max, root, slot: tokio::sync::Mutex::new(Some(slot)) };
    let tree_left = match is_reviewer(&owner) {
        true => None,
        false => kernel.tree_time_left(owner.worker()).await?,
    };
    let wall = Wall::new(owner.time_left(kernel.waited(id).await?), tree_left);
    let mut run = Run { kernel, open: &open, wall: &wall, seat: &seat };
    let (records, end) = run.drive(&mut owner).await?;
    info!(worker = %id, agent = %owner.worker().agent, reason = ?end.reason, "worker ended");
    owner.close(records, end).await
}

/// What the steps of one run share.
struct Run<'k> {
    kernel: &'k Arc<Kernel>,
    open: &'k Arc<OpenWorker>,
    wall: &'k Wall,
    seat: &'k Seat<'k>,
}

/// A worker's slot: held in calls, given back in waits.
struct Seat<'k> {
    slots: &'k Slots,
    per_tree_max: Bound<u64>,
    root: SessionId,
    slot: tokio::sync::Mutex<Option<Slot>>,
}

/// Why a step was given up.
struct Interrupted(Cause);

impl Run<'_> {
    /// Takes steps until one of them is the end. The records go into the same step as the end.
    async fn drive(&mut self, owner: &mut Owner<'_>) -> Result<(Vec<Record>, End), Left> {
        if owner.worker().is_turn() {
            let records = lost::taken_over(owner).await?;
            owner.append(records).await?;
        } else if let Some(closing) = lost::end(owner) {
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
            read_text: if is_reviewer(owner) { review::read_text } else { react::json },
            permissive: spec.schema_is_permissive,
        };
        let mut tools = Tools::of(self.kernel, owner, schema.as_ref()).await;
        let mut room = Room::default();
        loop {
            match owner.state().next(&rules) {
                Step::End(end) => return Ok((Vec::new(), end)),
                Step::Ask { turn, choice } => {
                    if let Some(end) = self.out_of_tokens(owner).await? {
                        return Ok((Vec::new(), end));
                    }
                    let mut records = owner.state().ask(turn, choice);
                    records.extend(self.make_room(owner, &tools, &room));
                    owner.append(records).await?;
                    match self.ask(owner, &rules, &tools, turn, choice).await {
                        Asked::Records(records) => {
                            let after = owner.state().after(&records);
                            match after.next(&rules) {
                                Step::End(end) => return Ok((records, end)),
                                Step::Ask { .. } | Step::Call(_) => owner.append(records).await?,
                            }
                        }
                        Asked::Outgrown(end) => {
                            room.was_too_small(owner.state().bytes());
                            // The same turn is asked again, unless there is nothing to cut down.
                            match self.make_room(owner, &tools, &room) {
                                Some(record) => owner.append(vec![record]).await?,
                                None => return Ok((Vec::new(), end)),
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
            told = self.wall.used_up() => Err(Interrupted(Cause {
                reason: StopReason::Timeout,
                error: told.to_owned(),
            })),
            done = work => Ok(done),
        }
    }

    /// The end of a worker that has used up its tokens, together with everything below it, or whose tree has.
    async fn out_of_tokens(&self, owner: &Owner<'_>) -> Result<Option<End>, Left> {
        let worker = owner.worker();
        if is_reviewer(owner) {
            return Ok(None);
        }
        if let Some(max) = owner.spec().tokens_max {
            let used = self.kernel.tokens_of_tree(worker).await?;
            if used >= max {
                let error = format!("its budget of {max} tokens is used up ({used})");
                return Ok(Some(owner.state().early(StopReason::Budget, error)));
            }
        }
        let limits = self.kernel.limits_of(&worker.workspace);
        if let Some(max) = limits.tree_tokens.get() {
            let window = self.kernel.window(&worker.root, limits);
            let used = self.kernel.tokens_below_root(&worker.root, window).await?;
            if used >= max {
                let error = format!("`limits.tree_tokens` of {max} is used up ({used})");
                return Ok(Some(owner.state().early(StopReason::Budget, error)));
            }
        }
        Ok(None)
    }
}

impl Seat<'_> {
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
            *slot = Some(self.slots.acquire(&self.root, self.per_tree_max, Priority::Returning).await);
        }
    }
}

/// True for the gate's own workers: no other spawn gets that name past admission.
fn is_reviewer(owner: &Owner<'_>) -> bool {
    owner.worker().agent == REVIEWER
}

#[cfg(test)]
mod tests;
