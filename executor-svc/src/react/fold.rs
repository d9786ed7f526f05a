//! From records to state: the only way a state changes, live and when a log is read again.

use super::{Bad, Call, State, nudge};
use crate::{event::Body, session::Record, transcript::Message};

impl State {
    /// The state that a log leads to.
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut state = Self::default();
        for record in records {
            state.apply(record);
        }
        state
    }

    /// Takes one more record in.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Spec(_) => {}
            Record::Event { body } => self.apply_event(body),
            Record::Message { message } => self.apply_message(message),
        }
    }

    fn apply_event(&mut self, body: &Body) {
        match body {
            Body::TurnStarted { .. } => self.turn_is_open = true,
            Body::TurnFinished { usage, .. } => {
                self.turn_is_open = false;
                self.turns += 1;
                self.usage += *usage;
                self.calls.clear();
            }
            Body::ToolStarted { call_id, class, .. } => {
                self.usage.tool_calls += 1;
                if let Some(call) = self.calls.iter_mut().find(|call| call.call.id == *call_id) {
                    call.started = Some(*class);
                }
            }
            Body::OutputRejected { attempt, .. } => self.rejections = *attempt,
            Body::ChildSpawned { worker, .. } => {
                self.children.insert(worker.clone());
            }
            Body::Accepted
            | Body::StateChanged { .. }
            | Body::ToolFinished { .. }
            | Body::Review { .. }
            | Body::Finished
            | Body::Answered { .. } => {}
        }
    }

    pub(super) fn apply_message(&mut self, message: &Message) {
        match message {
            Message::User { text } => self.apply_nudge(text),
            Message::Assistant { tool_calls, .. } => {
                // Text may be a bad answer too: what follows it tells.
                if !tool_calls.is_empty() {
                    self.bad_answers = 0;
                }
                self.calls = tool_calls
                    .iter()
                    .map(|call| Call { call: call.clone(), started: None, is_answered: false })
                    .collect();
            }
            Message::Tool { call_id, .. } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.call.id == *call_id) {
                    call.is_answered = true;
                }
            }
        }
        self.messages.push(message.clone());
    }

    fn apply_nudge(&mut self, text: &str) {
        if let Some(results) = nudge::read_cut_down(text) {
            self.cut_down(results);
            return;
        }
        match text {
            nudge::EMPTY => self.bad(Bad::Empty),
            nudge::MALFORMED => self.bad(Bad::Malformed),
            nudge::CUT_OFF => self.bad(Bad::CutOff),
            nudge::REFUSED => self.bad(Bad::Refused),
            nudge::SUBMIT => {
                self.reminders += 1;
                self.bad_answers = 0;
            }
            nudge::SUM_UP => self.is_summing_up = true,
            // A prompt. Behind an earlier worker's transcript it begins anew.
            _ => {
                self.prompt_at = self.messages.len();
                self.reminders = 0;
                self.bad_answers = 0;
                self.is_summing_up = false;
            }
        }
    }

    fn bad(&mut self, kind: Bad) {
        self.bad_answers += 1;
        self.last_bad = Some(kind);
    }
}
