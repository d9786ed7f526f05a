//! A model that replays a script, so that agents, policies and clients can be tried with no provider.

mod script;
mod template;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

pub(super) use self::script::{SCRIPT_BYTES_MAX, Script};
use self::{
    script::{Arguments, Rule, Step, Submission, When},
    template::Values,
};
use super::{
    Error, Finish, Listener, Reply, Turn,
    retry::{Attempt, Failure},
};
use crate::{
    transcript::{Message, ToolCall},
    worker::Usage,
};

/// The tool by which a worker hands in its result.
const SUBMIT_TOOL: &str = "submit_result";
/// How much of the last message an error quotes: enough to see which rule is missing.
const QUOTE_CHARS_MAX: usize = 200;

/// A script under the name of its provider.
pub(super) struct Rehearsal {
    provider: String,
    script: Script,
}

impl Rehearsal {
    pub(super) fn new(provider: &str, script: Script) -> Self {
        Self { provider: provider.to_owned(), script }
    }
}

#[async_trait]
impl Attempt for Rehearsal {
    async fn attempt(&self, number: u32, turn: &Turn<'_>, listener: &dyn Listener) -> Result<Reply, Failure> {
        let last = turn.messages.last();
        let values = Values {
            prompt: turn.prompt,
            // Results of tools end with a line end, which would stand in the middle of a sentence.
            last: last.map_or("", text_of).trim_end(),
            agent: turn.agent,
            turn: turn.number,
        };
        let Some(rule) = self.script.rules.iter().find(|rule| matches(&rule.when, turn, last)) else {
            let last = values.last.chars().take(QUOTE_CHARS_MAX).collect();
            let error = Error::NoRule { agent: turn.agent.to_owned(), turn: turn.number, last };
            return Err(Failure { error, has_begun: false });
        };
        self.play(rule, number, &values, listener).await
    }
}

impl Rehearsal {
    async fn play(
        &self,
        rule: &Rule,
        number: u32,
        values: &Values<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Failure> {
        let mut reply = Reply {
            text: String::new(),
            tool_calls: Vec::new(),
            usage: Usage { turns: 1, ..Usage::default() },
            finish: Finish::Stop,
        };
        for step in take_of(&rule.steps, number) {
            let call = match step {
                Step::Text(text) => {
                    let text = template::fill(text, values);
                    listener.text(&text);
                    reply.text.push_str(&text);
                    continue;
                }
                Step::Delay(wait) => {
                    tokio::time::sleep(*wait).await;
                    continue;
                }
                Step::Usage { input_tokens, output_tokens, cached_input_tokens } => {
                    reply.usage = Usage {
                        input_tokens: *input_tokens,
                        output_tokens: *output_tokens,
                        cached_input_tokens: *cached_input_tokens,
                        ..reply.usage
                    };
                    continue;
                }
                Step::Error { status, retry_after } => {
                    let error = Error::Status {
                        provider: self.provider.clone(),
                        status: *status,
                        message: "rehearsed".to_owned(),
                        retry_after: *retry_after,
                    };
                    let has_begun = !reply.text.is_empty() || !reply.tool_calls.is_empty();
                    return Err(Failure { error, has_begun });
                }
                Step::Call { tool, arguments } => (tool.clone(), call_arguments(arguments, values)),
                Step::Submit(submission) => (SUBMIT_TOOL.to_owned(), submit_arguments(submission, values)),
            };
            let (tool, arguments) = call;
            let id = format!("call_{}_{}", values.turn, reply.tool_calls.len() + 1);
            reply.tool_calls.push(ToolCall { id, tool, arguments });
            reply.finish = Finish::ToolCalls;
        }
        Ok(reply)
    }
}

/// The steps that one attempt plays: an `error` ends an attempt, the retry goes on behind it. Where nothing is said behind
/// the last error, that one stays.
fn take_of(steps: &[Step], number: u32) -> &[Step] {
    let is_error = |step: &Step| matches!(step, Step::Error { .. });
    let says_something = |step: &Step| matches!(step, Step::Text(_) | Step::Call { .. } | Step::Submit(_));
    let mut rest = steps;
    for _ in 0..number {
        let Some(end) = rest.iter().position(is_error) else { break };
        let behind = &rest[end + 1..];
        if !behind.iter().any(|step| says_something(step) || is_error(step)) {
            break;
        }
        rest = behind;
    }
    rest
}

fn matches(when: &When, turn: &Turn<'_>, message: Option<&Message>) -> bool {
    let When { agent, turn: number, last, tool } = when;
    let is_result_of = |name: &String| match message {
        Some(Message::Tool { tool, .. }) => tool == name,
        Some(Message::User { .. } | Message::Assistant { .. }) | None => false,
    };
    agent.as_ref().is_none_or(|agent| agent == turn.agent)
        && number.is_none_or(|number| number == turn.number)
        && tool.as_ref().is_none_or(is_result_of)
        && last.as_ref().is_none_or(|pattern| pattern.is_match(message.map_or("", text_of)))
}

fn text_of(message: &Message) -> &str {
    match message {
        Message::User { text } | Message::Assistant { text, .. } | Message::Tool { text, .. } => text,
    }
}

fn call_arguments(arguments: &Arguments, values: &Values<'_>) -> String {
    match arguments {
        Arguments::Object(object) => template::fill_value(&Value::Object(object.clone()), values).to_string(),
        Arguments::Raw(text) => template::fill(text, values),
    }
}

fn submit_arguments(submission: &Submission, values: &Values<'_>) -> String {
    let (key, value) = match submission {
        Submission::Data(data) => ("data", template::fill_value(data, values)),
        Submission::Error(error) => ("error", json!(template::fill(error, values))),
    };
    Value::Object(Map::from_iter([(key.to_owned(), value)])).to_string()
}

#[cfg(test)]
mod tests;
