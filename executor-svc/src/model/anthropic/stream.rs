//! One answer of the messages protocol, from its stream or in one piece.

use serde_json::Value;

use crate::{
    model::{
        Finish, Reply,
        answer::{ARGUMENTS_BYTES_MAX, Assembly, CALLS_MAX, Fault, Progress, Step, TEXT_BYTES_MAX, count},
        sse::Event,
    },
    transcript::ToolCall,
    worker::Usage,
};

/// The state of an answer between two events.
#[derive(Debug, Default)]
pub(super) struct Answer {
    text: String,
    calls: Vec<Call>,
    finish: Option<Finish>,
    is_done: bool,
    usage: Usage,
    input: Input,
}

#[derive(Debug)]
struct Call {
    /// The content block's index.
    block: u64,
    id: String,
    name: String,
    /// As given when the block began, for answers that come whole; used where no fragments follow.
    given: Value,
    fragments: String,
}

/// The protocol counts cached input apart from the rest.
#[derive(Debug, Default)]
struct Input {
    fresh: u64,
    written: u64,
    cached: u64,
}

impl Assembly for Answer {
    fn event(&mut self, event: &Event) -> Result<Step, Fault> {
        let data: Value = serde_json::from_str(&event.data)
            .map_err(|error| Fault::Malformed(format!("an event is no JSON: {error}")))?;
        if let Some(fault) = Fault::from_error_object(&data) {
            return Err(fault);
        }
        let block = data.get("index").and_then(Value::as_u64).unwrap_or_default();
        let mut step = match data.get("type").and_then(Value::as_str).unwrap_or(&event.name) {
            "message_start" => {
                self.take_usage(data.get("message").and_then(|message| message.get("usage")));
                Step::default()
            }
            "content_block_start" => self.begin(block, &data["content_block"])?,
            "content_block_delta" => self.continue_block(block, &data["delta"])?,
            "message_delta" => {
                self.take_usage(data.get("usage"));
                self.take_stop_reason(&data["delta"]);
                Step::default()
            }
            "message_stop" => {
                self.is_done = true;
                Step::default()
            }
            // Pings, the ends of blocks, and kinds that are yet to be invented.
            _ => Step::default(),
        };
        step.progress = match (self.is_done, self.finish) {
            (true, _) => Progress::Done,
            (false, Some(_)) => Progress::Trailer,
            (false, None) => Progress::More,
        };
        Ok(step)
    }

    fn whole(&mut self, body: &Value) -> Result<Step, Fault> {
        if let Some(fault) = Fault::from_error_object(body) {
            return Err(fault);
        }
        let Some(blocks) = body.get("content").and_then(Value::as_array) else {
            return Err(Fault::Malformed("an answer without content".to_owned()));
        };
        let mut all = Step { progress: Progress::Done, ..Step::default() };
        for (index, block) in (0..).zip(blocks) {
            let step = self.begin(index, block)?;
            all.text.push_str(&step.text);
            all.is_token |= step.is_token;
        }
        self.take_usage(body.get("usage"));
        self.take_stop_reason(body);
        self.is_done = true;
        Ok(all)
    }

    fn finish(self) -> Result<Reply, Fault> {
        let Self { text, calls, finish, is_done, usage, input } = self;
        if finish.is_none() && !is_done {
            return Err(Fault::Cut);
        }
        let tool_calls = calls.into_iter().map(Call::finish).collect::<Result<Vec<_>, _>>()?;
        let finish = match finish.unwrap_or(Finish::Stop) {
            Finish::Stop | Finish::ToolCalls if tool_calls.is_empty() => Finish::Stop,
            Finish::Stop | Finish::ToolCalls => Finish::ToolCalls,
            cut @ (Finish::Length | Finish::Refused) => cut,
        };
        let usage = Usage {
            input_tokens: input.fresh + input.written + input.cached,
            cached_input_tokens: input.cached,
            turns: 1,
            ..usage
        };
        Ok(Reply { text, tool_calls, usage, finish })
    }
}

impl Answer {
    fn begin(&mut self, block: u64, content: &Value) -> Result<Step, Fault> {
        let text = |key: &str| content.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "text" => self.add_text(text("text")),
            "tool_use" => {
                if text("name").is_empty() {
                    return Err(Fault::Malformed("a tool call has no name".to_owned()));
                }
                if self.calls.len() == CALLS_MAX {
                    return Err(Fault::Malformed(format!("more than {CALLS_MAX} tool calls")));
                }
                let id = match text("id") {
                    "" => format!("call_{}", self.calls.len() + 1),
                    id => id.to_owned(),
                };
                let given = content.get("input").cloned().unwrap_or_default();
                let name = text("name").to_owned();
                self.calls.push(Call { block, id, name, given, fragments: String::new() });
                Ok(Step { is_token: true, ..Step::default() })
            }
            // Thinking is no part of the answer, but it shows that the model is at work.
            _ => Ok(Step { is_token: true, ..Step::default() }),
        }
    }

    fn continue_block(&mut self, block: u64, delta: &Value) -> Result<Step, Fault> {
        let text = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "text_delta" => self.add_text(text("text")),
            "input_json_delta" => {
                let fragment = text("partial_json");
                let Some(call) = self.calls.iter_mut().rfind(|call| call.block == block) else {
                    return Err(Fault::Malformed("arguments of no tool call".to_owned()));
                };
                if call.fragments.len() + fragment.len() > ARGUMENTS_BYTES_MAX {
                    let message = format!("the arguments of a call are over {ARGUMENTS_BYTES_MAX} bytes");
                    return Err(Fault::Malformed(message));
                }
                call.fragments.push_str(fragment);
                Ok(Step { is_token: true, ..Step::default() })
            }
            _ => Ok(Step { is_token: true, ..Step::default() }),
        }
    }

    fn add_text(&mut self, text: &str) -> Result<Step, Fault> {
        if self.text.len() + text.len() > TEXT_BYTES_MAX {
            return Err(Fault::Malformed(format!("the text is over {TEXT_BYTES_MAX} bytes")));
        }
        self.text.push_str(text);
        Ok(Step { text: text.to_owned(), is_token: !text.is_empty(), progress: Progress::More })
    }

    /// Counts are totals: the last one of each is right.
    fn take_usage(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        for (key, place) in [
            ("input_tokens", &mut self.input.fresh),
            ("cache_creation_input_tokens", &mut self.input.written),
            ("cache_read_input_tokens", &mut self.input.cached),
            ("output_tokens", &mut self.usage.output_tokens),
        ] {
            if let Some(number) = count(usage.get(key)) {
                *place = number;
            }
        }
    }

    fn take_stop_reason(&mut self, message: &Value) {
        let Some(reason) = message.get("stop_reason").and_then(Value::as_str) else { return };
        self.finish = Some(match reason {
            "tool_use" => Finish::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => Finish::Length,
            "refusal" => Finish::Refused,
            _ => Finish::Stop,
        });
    }
}

impl Call {
    fn finish(self) -> Result<ToolCall, Fault> {
        let Self { block: _, id, name, given, fragments } = self;
        let arguments = match given {
            _ if !fragments.is_empty() => fragments,
            Value::Null => "{}".to_owned(),
            given => given.to_string(),
        };
        if arguments.len() > ARGUMENTS_BYTES_MAX {
            return Err(Fault::Malformed(format!(
                "the arguments of a call are over {ARGUMENTS_BYTES_MAX} bytes"
            )));
        }
        Ok(ToolCall { id, tool: name, arguments })
    }
}
