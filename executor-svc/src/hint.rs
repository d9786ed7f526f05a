//! The sentence that tells a calling model how to go on with a worker's answer.

use crate::worker::{Status, Time, Worker};

/// The hint of an answer. `now` tells how long ago an earlier call was dispatched.
pub fn of(worker: &Worker, deduplicated: bool, is_rehearsal: bool, now: Time) -> String {
    let mut sentences = Vec::new();
    if is_rehearsal {
        sentences.push("This is a rehearsal: a script answered, no model.".to_owned());
    }
    if deduplicated {
        let seconds = now.0.saturating_sub(worker.create_time.0).max(0) / 1000;
        sentences.push(format!(
            "This task was dispatched already, {seconds} s ago, as `{}`: use its result and do not dispatch it again.",
            worker.id
        ));
    }
    sentences.push(
        match worker.status {
            Status::Pending | Status::Running => {
                "The worker has not ended yet: ask for it by its id, or watch it."
            }
            Status::Completed if worker.schema_valid == Some(false) => {
                "The worker completed, but its structured output does not match the schema: check it before you use it."
            }
            Status::Completed => "The worker completed: use its result.",
            Status::Failed if worker.partial => {
                "The worker failed; its result is partial: use what helps and say that it is not whole."
            }
            Status::Failed => "The worker failed: read `error` before you try again.",
            Status::Killed => "The worker was stopped before it was done: its result is not finished.",
        }
        .to_owned(),
    );
    sentences.join(" ")
}
