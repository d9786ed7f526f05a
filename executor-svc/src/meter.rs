//! What is counted of workers, turns and tool calls. Every label is of a closed set, so that their number is bounded.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::{
    tool::Outcome,
    worker::{Status, StopReason},
};

/// A worker was let in.
pub fn accepted() {
    counter!("roster_workers_accepted_total").increment(1);
}

/// A record was closed, after this long since the worker began.
pub fn ended(status: Status, reason: StopReason, took: Duration) {
    counter!("roster_workers_ended_total", "status" => word(&status), "reason" => word(&reason)).increment(1);
    histogram!("roster_worker_seconds", "status" => word(&status)).record(took.as_secs_f64());
}

/// A worker of a process that is gone goes on here.
pub fn taken_over() {
    counter!("roster_workers_taken_over_total").increment(1);
}

/// A tool call ended.
pub fn called(outcome: Outcome, took: Duration) {
    counter!("roster_tool_calls_total", "outcome" => word(&outcome)).increment(1);
    histogram!("roster_tool_call_seconds").record(took.as_secs_f64());
}

/// A model turn ended, well or not.
pub fn asked(is_answered: bool, took: Duration) {
    let outcome = if is_answered { "answered" } else { "failed" };
    histogram!("roster_model_turn_seconds", "outcome" => outcome).record(took.as_secs_f64());
}

/// Tokens of a model turn.
pub fn tokens(input: u64, output: u64) {
    counter!("roster_tokens_total", "direction" => "input").increment(input);
    counter!("roster_tokens_total", "direction" => "output").increment(output);
}

/// Workers that are open, hold a slot, and wait for their first one.
pub fn standing(open: usize, running: u64, waiting: usize) {
    /// Counts of one replica are far below the 2^53 that a float holds exactly.
    #[allow(clippy::cast_precision_loss)]
    fn float(count: u64) -> f64 {
        count as f64
    }
    gauge!("roster_workers_open").set(float(open as u64));
    gauge!("roster_slots_taken").set(float(running));
    gauge!("roster_workers_waiting").set(float(waiting as u64));
}

/// A variant's name as it is recorded.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(_) | Err(_) => "unknown".to_owned(),
    }
}
