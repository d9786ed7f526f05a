//! A turn as a chat completions request.

use serde_json::{Map, Value, json};

use super::dialect::Dialect;
use crate::{
    definition::ThinkingLevel,
    model::{
        ToolChoice, ToolSpec, Turn,
        answer::{arguments_object, reminder_block},
    },
    transcript::{Message, ToolCall},
};

/// The body of a request for one streamed answer.
pub(super) fn body(model: &str, turn: &Turn<'_>, output_tokens_max: Option<u32>, dialect: Dialect) -> Value {
    let Dialect { has_reasoning_effort, has_stream_options, limit_key } = dialect;
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("messages".to_owned(), messages(turn).into());
    body.insert("stream".to_owned(), true.into());
    if has_stream_options {
        body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    }
    let offered = match turn.tool_choice {
        ToolChoice::Auto | ToolChoice::Forced(_) => turn.tools,
        ToolChoice::None => &[],
    };
    if !offered.is_empty() {
        body.insert("tools".to_owned(), offered.iter().map(tool).collect());
    }
    if let ToolChoice::Forced(name) = turn.tool_choice {
        body.insert("tool_choice".to_owned(), json!({ "type": "function", "function": { "name": name } }));
    }
    if let Some(effort) = turn.thinking.and_then(effort).filter(|_| has_reasoning_effort) {
        body.insert("reasoning_effort".to_owned(), effort.into());
    }
    if let Some(max) = output_tokens_max {
        body.insert(limit_key.to_owned(), max.into());
    }
    Value::Object(body)
}

fn messages(turn: &Turn<'_>) -> Vec<Value> {
    let mut messages = Vec::with_capacity(turn.messages.len() + 2);
    if !turn.system.is_empty() {
        messages.push(json!({ "role": "system", "content": turn.system }));
    }
    for message in turn.messages {
        match message {
            // Chat templates of local models want roles to alternate.
            Message::User { text } => match messages.last_mut() {
                Some(last) if last["role"] == "user" => append(last, text),
                _ => messages.push(json!({ "role": "user", "content": text })),
            },
            Message::Assistant { text, tool_calls } => messages.push(assistant(text, tool_calls)),
            Message::Tool { call_id, tool: _, text, is_error: _ } => {
                messages.push(json!({ "role": "tool", "tool_call_id": call_id, "content": text }));
            }
        }
    }
    if !turn.reminder.is_empty() {
        let block = reminder_block(turn.reminder);
        match messages.last_mut() {
            // A user's message behind a tool's is refused by some templates.
            Some(last) if last["role"] == "user" || last["role"] == "tool" => append(last, &block),
            _ => messages.push(json!({ "role": "user", "content": block })),
        }
    }
    messages
}

fn assistant(text: &str, tool_calls: &[ToolCall]) -> Value {
    // Empty text stays text beside calls: llama-cpp-python refuses `null`, which the protocol would have there.
    let mut message = json!({ "role": "assistant", "content": text });
    if tool_calls.is_empty() {
        return message;
    }
    let calls: Vec<Value> = tool_calls
        .iter()
        .map(|ToolCall { id, tool, arguments }| {
            // Templates parse the arguments, and fail where they are no JSON.
            let arguments = arguments_object(arguments).to_string();
            json!({ "id": id, "type": "function", "function": { "name": tool, "arguments": arguments } })
        })
        .collect();
    message["tool_calls"] = calls.into();
    message
}

fn tool(ToolSpec { name, description, input_schema }: &ToolSpec) -> Value {
    let function = json!({ "name": name, "description": description, "parameters": input_schema });
    json!({ "type": "function", "function": function })
}

fn append(message: &mut Value, text: &str) {
    let before = message["content"].as_str().unwrap_or_default();
    message["content"] = format!("{before}\n\n{text}").into();
}

/// The protocol's word; `off` has none that all servers know, so nothing is said.
fn effort(level: ThinkingLevel) -> Option<&'static str> {
    match level {
        ThinkingLevel::Off => None,
        ThinkingLevel::Minimal => Some("minimal"),
        ThinkingLevel::Low => Some("low"),
        ThinkingLevel::Medium => Some("medium"),
        ThinkingLevel::High => Some("high"),
        ThinkingLevel::Xhigh => Some("xhigh"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample;

    #[test]
    fn a_turn_is_rendered_whole() {
        let turn = Turn {
            system: "Be brief.",
            messages: &sample::conversation(),
            reminder: "Stay inside.",
            tools: &[sample::tool("ls")],
            thinking: Some(ThinkingLevel::High),
            ..sample::turn()
        };

        let body = body("qwen3", &turn, Some(512), Dialect::FULL);

        assert_eq!(
            body,
            json!({
                "model": "qwen3",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "What is there?"},
                    {"role": "assistant", "content": "I look.", "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{\"path\":\".\"}"}},
                        {"id": "c2", "type": "function", "function": {
                            "name": "ls", "arguments": "{\"malformed_arguments\":\"{oops\"}"}},
                    ]},
                    {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
                    {"role": "tool", "tool_call_id": "c2", "content":
                        "not JSON\n\n<system-reminder>\nStay inside.\n</system-reminder>"},
                ],
                "stream": true,
                "stream_options": {"include_usage": true},
                "tools": [{"type": "function", "function": {
                    "name": "ls", "description": "The tool ls.", "parameters": {"type": "object"}}}],
                "reasoning_effort": "high",
                "max_tokens": 512,
            })
        );
    }

    #[test]
    fn the_reminder_ends_the_last_message_or_is_one_of_its_own() {
        let user = |text: &str| Message::User { text: text.to_owned() };
        let assistant = Message::Assistant { text: "Well.".to_owned(), tool_calls: Vec::new() };
        for (last, expected) in [
            (
                vec![user("a"), user("b")],
                json!({"role": "user", "content": "a\n\nb\n\n<system-reminder>\nr\n</system-reminder>"}),
            ),
            (
                vec![user("a"), assistant],
                json!({"role": "user", "content": "<system-reminder>\nr\n</system-reminder>"}),
            ),
        ] {
            let messages = messages(&Turn { messages: &last, reminder: "r", ..sample::turn() });
            assert_eq!(messages.last(), Some(&expected));
        }
    }

    #[test]
    fn empty_text_beside_calls_stays_text() {
        let call = ToolCall { id: "c1".to_owned(), tool: "ls".to_owned(), arguments: "{}".to_owned() };
        let messages = [Message::Assistant { text: String::new(), tool_calls: vec![call] }];

        let body = body("m", &Turn { messages: &messages, ..sample::turn() }, None, Dialect::FULL);

        assert_eq!(body["messages"][0]["content"], "");
        assert_eq!(body["messages"][0]["tool_calls"][0]["id"], "c1");
    }

    #[test]
    fn the_choice_of_tools_is_told() {
        let tools = [sample::tool("ls")];
        let body = |tool_choice| {
            body("m", &Turn { tools: &tools, tool_choice, ..sample::turn() }, None, Dialect::FULL)
        };

        assert_eq!(body(ToolChoice::Auto).get("tool_choice"), None);
        assert_eq!(body(ToolChoice::None).get("tools"), None);
        assert_eq!(
            body(ToolChoice::Forced("ls"))["tool_choice"],
            json!({"type": "function", "function": {"name": "ls"}})
        );
    }
}
