//! The loop as a pure state machine: the log's records make the state, the state says the next step, a model's answer
//! makes records. A worker that is taken over continues because its state is folded from the same records.

mod answer;
mod fold;
mod room;
mod submission;

use std::collections::HashSet;

use serde_json::Value;

pub use self::{
    answer::{answer, malformed},
    room::is_cut_down,
    submission::{Submission, json, submit},
};
use crate::{
    event::Body,
    session::Record,
    tool::{Class, name::SUBMIT_RESULT},
    transcript::{Message, ToolCall},
    worker::{SessionId, StopReason, Usage},
};

/// Empty, malformed or cut answers in a row that end a worker.
const BAD_ANSWERS_MAX: u32 = 3;

/// Reminders to submit, and mismatches that go back to the model. The next one ends the worker.
const CHANCES: u32 = 3;

/// The kernel's own messages. They are recognised when the log is read again.
mod nudge {
    pub(super) const EMPTY: &str = "Your last answer was empty. Answer with text, or call a tool.";
    pub(super) const MALFORMED: &str =
        "Your last answer could not be read. Answer again, with text or a tool call.";
    pub(super) const CUT_OFF: &str = "Your last answer was cut off: it reached the limit of your output, so it is no result. Answer again, whole and shorter.";
    pub(super) const REFUSED: &str = "A filter of the model provider stopped your last answer, so it is no result. Answer again in other words, or say that the task cannot be done.";
    pub(super) const SUBMIT: &str = "You ended without submitting. Call `submit_result` with `data` that matches the schema, or with `error` where the task cannot be done.";
    pub(super) const SUM_UP: &str = "Your turns are used up and no tool can be called any more. Sum up now, in text: what was done, what was found, what is left.";
    const CUT_DOWN: (&str, &str) = (
        "The conversation has outgrown the model. From here on, this many of the oldest results of tools are cut down to their beginnings: ",
        ". Call a tool again where the rest of its result is needed.",
    );

    pub(super) fn cut_down(results: usize) -> String {
        format!("{}{results}{}", CUT_DOWN.0, CUT_DOWN.1)
    }

    /// True for a message of the kernel.
    pub(super) fn is_one(text: &str) -> bool {
        matches!(text, EMPTY | MALFORMED | SUBMIT | SUM_UP) || read_cut_down(text).is_some()
    }

    /// How many results a message says are cut down.
    pub(super) fn read_cut_down(text: &str) -> Option<usize> {
        text.strip_prefix(CUT_DOWN.0)?.strip_suffix(CUT_DOWN.1)?.parse().ok()
    }
}

/// Whether a value matches the effective schema; otherwise the violations, as the model is told of them.
pub type Check<'a> = dyn Fn(&Value) -> Result<(), String> + Send + Sync + 'a;

/// What a run is held to.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Model turns; one more follows to sum up.
    pub turns_max: u32,
    /// Absent without a schema.
    pub check: Option<&'a Check<'a>>,
    /// How a text without calls is read as a value, where there is a schema.
    pub read_text: fn(&str) -> Option<Value>,
    /// A result that does not match completes with `schema_valid` false.
    pub permissive: bool,
}

/// Where a run stands.
#[derive(Clone, Debug, Default)]
pub struct State {
    messages: Vec<Message>,
    /// Where the last prompt stands among them: what is before is an earlier worker's.
    prompt_at: usize,
    usage: Usage,
    turns: u32,
    /// A turn that was begun and has no end yet.
    turn_is_open: bool,
    /// The calls of the last assistant message, in its order.
    calls: Vec<Call>,
    children: HashSet<SessionId>,
    bad_answers: u32,
    last_bad: Option<Bad>,
    rejections: u32,
    reminders: u32,
    is_summing_up: bool,
}

/// One call of the running turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub call: ToolCall,
    /// Set once its intent is recorded.
    pub started: Option<Class>,
    pub is_answered: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask the model.
    Ask { turn: u32, choice: Choice },
    /// Run the calls without an answer, `submit_result` last.
    Call(Vec<Call>),
    /// Close the record.
    End(End),
}

/// Which tools a turn offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Any,
    /// The last turn: none.
    None,
    /// The last reminder: the model has to submit.
    Submit,
}

/// How a worker ends.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    pub reason: StopReason,
    pub result: String,
    pub structured_output: Option<String>,
    pub schema_valid: Option<bool>,
    pub error: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bad {
    Empty,
    Malformed,
    /// At the model's output limit.
    CutOff,
    /// By a filter of the provider.
    Refused,
}

impl State {
    /// The next step. Pure: the same state always gives the same step.
    pub fn next(&self, rules: &Rules<'_>) -> Step {
        let open: Vec<Call> = self.open_calls();
        if !open.is_empty() {
            return Step::Call(open);
        }
        if self.bad_answers >= BAD_ANSWERS_MAX {
            return Step::End(self.end_of_bad_answers());
        }
        if let Some(end) = self.end_of_text(rules) {
            return Step::End(end);
        }
        if self.is_summing_up {
            return match self.turn_is_open || self.turns <= rules.turns_max {
                true => Step::Ask { turn: self.turn(), choice: Choice::None },
                false => Step::End(self.early(StopReason::MaxTurns, "the turn limit was reached")),
            };
        }
        let choice = match self.turns >= rules.turns_max {
            true => Choice::None,
            false if rules.check.is_some() && self.reminders >= CHANCES => Choice::Submit,
            false => Choice::Any,
        };
        Step::Ask { turn: self.turn(), choice }
    }

    /// What has to be in the log before the model is asked for a turn; empty when it is there already.
    pub fn ask(&self, turn: u32, choice: Choice) -> Vec<Record> {
        let mut records = Vec::new();
        if choice == Choice::None && !self.is_summing_up {
            records.push(said(nudge::SUM_UP));
        }
        if !self.turn_is_open {
            records.push(Record::Event { body: Body::TurnStarted { turn } });
        }
        records
    }

    /// The end of a worker that is stopped before it was done, with what there is of a result.
    pub fn early(&self, reason: StopReason, error: impl Into<String>) -> End {
        End {
            reason,
            result: self.last_text().to_owned(),
            structured_output: None,
            schema_valid: None,
            error: error.into(),
        }
    }

    /// The state before a turn of a conversation: what was said is seen, and nothing of it is counted. The kernel's own
    /// messages of earlier turns are left out.
    pub fn behind(earlier: impl IntoIterator<Item = Message>) -> Self {
        let mut state = Self::default();
        for message in earlier {
            match &message {
                Message::User { text } if nudge::is_one(text) => {}
                Message::User { .. } | Message::Assistant { .. } | Message::Tool { .. } => {
                    state.apply_message(&message);
                }
            }
        }
        state
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The messages of this run: not those of an earlier worker that it continues.
    pub fn own_messages(&self) -> &[Message] {
        &self.messages[self.prompt_at..]
    }

    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// True for a child that is recorded already.
    pub fn has_child(&self, id: &SessionId) -> bool {
        self.children.contains(id)
    }

    /// The state after these records.
    pub fn after(&self, records: &[Record]) -> Self {
        let mut state = self.clone();
        for record in records {
            state.apply(record);
        }
        state
    }

    /// A call of a write or destructive tool that was begun and has no outcome: it may or may not have run.
    pub fn calls_of_unknown_outcome(&self) -> Vec<Call> {
        let mut open = self.open_calls();
        open.retain(|call| call.started.is_some_and(|class| class != Class::Read));
        open
    }

    /// The calls without an answer, `submit_result` last.
    pub fn open_calls(&self) -> Vec<Call> {
        let open = self.calls.iter().filter(|call| !call.is_answered);
        let (submissions, others): (Vec<_>, Vec<_>) = open.partition(|call| call.call.tool == SUBMIT_RESULT);
        others.into_iter().chain(submissions).cloned().collect()
    }

    /// The number of the turn that is open or comes next, from 1.
    fn turn(&self) -> u32 {
        self.turns + 1
    }

    /// What the model said last, over messages that only carry calls.
    fn last_text(&self) -> &str {
        let texts = self.own_messages().iter().rev().filter_map(|message| match message {
            Message::Assistant { text, .. } if !text.trim().is_empty() => Some(text.as_str()),
            Message::Assistant { .. } | Message::User { .. } | Message::Tool { .. } => None,
        });
        texts.take(1).next().unwrap_or_default()
    }

    fn end_of_bad_answers(&self) -> End {
        let (reason, what) = match self.last_bad {
            Some(Bad::Malformed) => (StopReason::ModelError, "malformed"),
            Some(Bad::CutOff) => (StopReason::ModelError, "cut off at the model's output limit"),
            Some(Bad::Refused) => (StopReason::ModelError, "stopped by a filter of the model provider"),
            Some(Bad::Empty) | None => (StopReason::NoOutput, "empty"),
        };
        self.early(reason, format!("{BAD_ANSWERS_MAX} answers in a row were {what}"))
    }

    /// The end of a worker whose last message is text without calls.
    fn end_of_text(&self, rules: &Rules<'_>) -> Option<End> {
        if self.turn_is_open || self.is_summing_up {
            return None;
        }
        let Some(Message::Assistant { text, tool_calls }) = self.messages.last() else { return None };
        if !tool_calls.is_empty() {
            return None;
        }
        let structured_output = submission::from_text(text, rules);
        if rules.check.is_some() && structured_output.is_none() {
            // Every earlier one was answered with a reminder.
            return Some(self.early(StopReason::NoOutput, "it ended without submitting a result"));
        }
        Some(End {
            reason: StopReason::Finished,
            result: text.clone(),
            schema_valid: structured_output.as_ref().map(|_| true),
            structured_output,
            error: String::new(),
        })
    }
}

fn said(text: &str) -> Record {
    Record::Message { message: Message::User { text: text.to_owned() } }
}

#[cfg(test)]
mod tests;
