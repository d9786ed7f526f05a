//! One answer of the chat completions protocol, from its stream or in one piece.

use serde_json::Value;

use super::calls::Calls;
use crate::{
    model::{
        Finish, Reply,
        answer::{Assembly, Fault, Progress, Step, TEXT_BYTES_MAX, count},
        sse::Event,
    },
    worker::Usage,
};

/// The state of an answer between two chunks.
#[derive(Debug, Default)]
pub(super) struct Answer {
    text: String,
    calls: Calls,
    finish: Option<Finish>,
    has_refused: bool,
    is_done: bool,
    usage: Usage,
}

impl Assembly for Answer {
    fn event(&mut self, event: &Event) -> Result<Step, Fault> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.is_done = true;
            return Ok(Step { progress: Progress::Done, ..Step::default() });
        }
        if data.is_empty() {
            return Ok(Step { progress: self.progress(), ..Step::default() });
        }
        let chunk: Value = serde_json::from_str(data)
            .map_err(|error| Fault::Malformed(format!("a chunk is no JSON: {error}")))?;
        self.chunk(&chunk, "delta")
    }

    fn whole(&mut self, body: &Value) -> Result<Step, Fault> {
        let has_choice = body.get("choices").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
        let step = self.chunk(body, "message")?;
        if !has_choice {
            return Err(Fault::Malformed("an answer without choices".to_owned()));
        }
        self.is_done = true;
        Ok(Step { progress: Progress::Done, ..step })
    }

    fn finish(self) -> Result<Reply, Fault> {
        let Self { text, calls, finish, has_refused, is_done, usage } = self;
        if finish.is_none() && !is_done {
            return Err(Fault::Cut);
        }
        let tool_calls = calls.finish()?;
        let finish = match finish.unwrap_or(Finish::Stop) {
            // What there is goes before what the server says.
            Finish::Stop | Finish::ToolCalls if tool_calls.is_empty() => Finish::Stop,
            Finish::Stop | Finish::ToolCalls => Finish::ToolCalls,
            cut @ (Finish::Length | Finish::Refused) => cut,
        };
        let finish = if has_refused { Finish::Refused } else { finish };
        Ok(Reply { text, tool_calls, usage: Usage { turns: 1, ..usage }, finish })
    }
}

impl Answer {
    /// `key` is where the message is expected; some servers use the other one.
    fn chunk(&mut self, chunk: &Value, key: &str) -> Result<Step, Fault> {
        if let Some(fault) = Fault::from_error_object(chunk) {
            return Err(fault);
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.take_usage(usage);
        }
        // One answer is asked for; without choices it is a chunk of usage or of a filter's remarks.
        let choices = chunk.get("choices").and_then(Value::as_array);
        let Some(choice) = choices.and_then(|choices| choices.first()) else {
            return Ok(Step { progress: self.progress(), ..Step::default() });
        };
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish = Some(finish(reason));
        }
        let message =
            [key, "delta", "message"].iter().find_map(|key| choice.get(*key)).unwrap_or(&Value::Null);
        let mut step = self.take_message(message)?;
        step.progress = self.progress();
        Ok(step)
    }

    fn take_message(&mut self, message: &Value) -> Result<Step, Fault> {
        let mut text = content(message.get("content"));
        if let Some(refusal) = message.get("refusal").and_then(Value::as_str).filter(|it| !it.is_empty()) {
            self.has_refused = true;
            text.push_str(refusal);
        }
        if self.text.len() + text.len() > TEXT_BYTES_MAX {
            return Err(Fault::Malformed(format!("the text is over {TEXT_BYTES_MAX} bytes")));
        }
        self.text.push_str(&text);

        let calls = message.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        self.calls.take(calls)?;
        // Reasoning is not part of the answer, but it shows that the model is at work.
        let is_thinking = ["reasoning_content", "reasoning"]
            .iter()
            .any(|key| message.get(*key).and_then(Value::as_str).is_some_and(|text| !text.is_empty()));
        let is_token = !text.is_empty() || !calls.is_empty() || is_thinking;
        Ok(Step { text, is_token, progress: Progress::More })
    }

    /// The last one counts: some servers send it with every chunk, growing.
    fn take_usage(&mut self, usage: &Value) {
        let details = usage.get("prompt_tokens_details");
        self.usage.input_tokens = count(usage.get("prompt_tokens")).unwrap_or(self.usage.input_tokens);
        self.usage.output_tokens = count(usage.get("completion_tokens")).unwrap_or(self.usage.output_tokens);
        self.usage.cached_input_tokens = count(details.and_then(|details| details.get("cached_tokens")))
            .unwrap_or(self.usage.cached_input_tokens);
    }

    fn progress(&self) -> Progress {
        match (self.is_done, self.finish) {
            (true, _) => Progress::Done,
            (false, Some(_)) => Progress::Trailer,
            (false, None) => Progress::More,
        }
    }
}

/// Text, or a list of parts of which only the text is of use.
fn content(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => String::new(),
    }
}

fn finish(reason: &str) -> Finish {
    match reason {
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "length" | "max_tokens" => Finish::Length,
        "content_filter" | "refusal" => Finish::Refused,
        _ => Finish::Stop,
    }
}
