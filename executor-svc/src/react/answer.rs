//! From a model's answer to records.

use std::collections::HashSet;

use super::{CHANCES, Rules, State, nudge, said, submission};
use crate::{
    event::{self, Body},
    model::{Finish, Reply},
    session::Record,
    transcript::{Message, ToolCall},
    worker::Usage,
};

/// Most tool calls of one answer; the rest is not run and the model is told so by their absence. Models that loop inside
/// one answer send hundreds.
const CALLS_MAX: usize = 64;

/// The records of an answer: the turn's end, what was said, and the kernel's reply where one is due.
pub fn answer(state: &State, rules: &Rules<'_>, reply: Reply) -> Vec<Record> {
    let Reply { text, mut tool_calls, usage, finish } = reply;
    let mut records = vec![turn_finished(state, &text, usage)];
    if state.is_summing_up {
        // No tool was offered: calls are not run, and the text is the last there is.
        records.push(assistant(text, Vec::new()));
        return records;
    }
    if !tool_calls.is_empty() {
        tool_calls.truncate(CALLS_MAX);
        make_ids_unique(&mut tool_calls, state.turn());
        records.push(assistant(text, tool_calls));
        return records;
    }
    let cut_off = match finish {
        Finish::Length => Some(nudge::CUT_OFF),
        Finish::Refused => Some(nudge::REFUSED),
        Finish::Stop | Finish::ToolCalls => None,
    };
    if text.trim().is_empty() {
        records.push(said(cut_off.unwrap_or(nudge::EMPTY)));
        return records;
    }
    let is_result = match rules.check {
        None => cut_off.is_none(),
        Some(_) => submission::from_text(&text, rules).is_some(),
    };
    records.push(assistant(text, Vec::new()));
    match cut_off {
        _ if is_result => {}
        Some(nudge) => records.push(said(nudge)),
        None if state.reminders < CHANCES => records.push(said(nudge::SUBMIT)),
        None => {}
    }
    records
}

/// The records of an answer that could not be read.
pub fn malformed(state: &State) -> Vec<Record> {
    let usage = Usage { turns: 1, ..Usage::default() };
    vec![turn_finished(state, "", usage), said(nudge::MALFORMED)]
}

fn turn_finished(state: &State, text: &str, usage: Usage) -> Record {
    let body =
        Body::TurnFinished { turn: state.turn(), text: event::cut(text, event::TEXT_BYTES_MAX), usage };
    Record::Event { body }
}

fn assistant(text: String, tool_calls: Vec<ToolCall>) -> Record {
    Record::Message { message: Message::Assistant { text, tool_calls } }
}

/// Gives every call an id of its own: some servers send none, or the same for all.
fn make_ids_unique(calls: &mut [ToolCall], turn: u32) {
    let mut seen = HashSet::new();
    for (index, call) in calls.iter_mut().enumerate() {
        if call.id.is_empty() || !seen.insert(call.id.clone()) {
            call.id = format!("call_{turn}_{index}");
            seen.insert(call.id.clone());
        }
    }
}
