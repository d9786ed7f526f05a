//! A turn as a messages request.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    definition::ThinkingLevel,
    model::{
        ToolChoice, ToolSpec, Turn,
        answer::{arguments_object, reminder_block},
    },
    transcript::{Message, ToolCall},
};

/// The body of a request for one streamed answer.
pub(super) fn body(model: &str, turn: &Turn<'_>, output_tokens_max: u32) -> Value {
    let budget = thinking_budget(turn);
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("max_tokens".to_owned(), output_tokens_max.saturating_add(budget.unwrap_or_default()).into());
    body.insert("stream".to_owned(), true.into());
    if !turn.system.is_empty() {
        // The cached prefix runs to the mark: tools, which come before, and system prompt.
        body.insert("system".to_owned(), json!([cached(json!({ "type": "text", "text": turn.system }))]));
    }
    body.insert("messages".to_owned(), messages(turn).into());
    let tools = tools(turn);
    if !tools.is_empty() {
        let choice = match turn.tool_choice {
            ToolChoice::Auto if turn.tools.is_empty() => json!({ "type": "none" }),
            ToolChoice::Auto => json!({ "type": "auto" }),
            ToolChoice::None => json!({ "type": "none" }),
            ToolChoice::Forced(name) => json!({ "type": "tool", "name": name }),
        };
        body.insert("tools".to_owned(), tools.into());
        body.insert("tool_choice".to_owned(), choice);
    }
    if let Some(budget) = budget {
        body.insert("thinking".to_owned(), json!({ "type": "enabled", "budget_tokens": budget }));
    }
    Value::Object(body)
}

/// Messages alternate between user and assistant; tool results are the user's.
fn messages(turn: &Turn<'_>) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::with_capacity(turn.messages.len() + 2);
    let mut add = |role: &'static str, blocks: Vec<Value>| match messages.last_mut() {
        _ if blocks.is_empty() => {}
        Some((last, all)) if *last == role => all.extend(blocks),
        // The first message has to be the user's, even where the beginning was cut off.
        None if role != "user" => {
            messages.extend([("user", vec![text("(earlier messages are left out)")]), (role, blocks)]);
        }
        _ => messages.push((role, blocks)),
    };
    for message in turn.messages {
        match message {
            Message::User { text: words } => add("user", text_blocks(words)),
            Message::Assistant { text: words, tool_calls } => {
                let mut blocks = text_blocks(words);
                blocks.extend(tool_calls.iter().map(tool_use));
                add("assistant", blocks);
            }
            Message::Tool { call_id, tool: _, text, is_error } => {
                let mut result = json!({ "type": "tool_result", "tool_use_id": call_id, "content": text });
                if *is_error {
                    result["is_error"] = true.into();
                }
                add("user", vec![result]);
            }
        }
    }
    // The next turn begins with the same messages; the reminder moves, so it stays behind the mark.
    if let Some(block) = messages.last_mut().and_then(|(_, blocks)| blocks.last_mut()) {
        *block = cached(block.take());
    }
    if !turn.reminder.is_empty() {
        let block = text(&reminder_block(turn.reminder));
        match messages.last_mut() {
            Some(("user", blocks)) => blocks.push(block),
            _ => messages.push(("user", vec![block])),
        }
    }
    messages.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

/// The protocol wants a description of every tool that the messages speak of, offered or not.
fn tools(turn: &Turn<'_>) -> Vec<Value> {
    if !turn.tools.is_empty() {
        let tool = |ToolSpec { name, description, input_schema }: &ToolSpec| json!({ "name": name, "description": description, "input_schema": input_schema });
        return turn.tools.iter().map(tool).collect();
    }
    let used: BTreeSet<&str> = turn
        .messages
        .iter()
        .flat_map(|message| match message {
            Message::Assistant { text: _, tool_calls } => tool_calls.as_slice(),
            Message::User { .. } | Message::Tool { .. } => &[],
        })
        .map(|call| call.tool.as_str())
        .collect();
    used.into_iter().map(|name| json!({ "name": name, "input_schema": { "type": "object" } })).collect()
}

/// How many tokens the model may think. Not where a tool is forced, which the protocol refuses, and not in the middle of
/// tool calls, where it would want back the thinking before them, which is not kept.
fn thinking_budget(turn: &Turn<'_>) -> Option<u32> {
    let is_fresh = matches!(turn.messages.last(), None | Some(Message::User { .. }));
    if !is_fresh || matches!(turn.tool_choice, ToolChoice::Forced(_)) {
        return None;
    }
    // 1024 is the least that the protocol takes.
    match turn.thinking? {
        ThinkingLevel::Off => None,
        ThinkingLevel::Minimal => Some(1_024),
        ThinkingLevel::Low => Some(2_048),
        ThinkingLevel::Medium => Some(8_192),
        ThinkingLevel::High => Some(16_384),
        ThinkingLevel::Xhigh => Some(32_768),
    }
}

fn tool_use(ToolCall { id, tool, arguments }: &ToolCall) -> Value {
    json!({ "type": "tool_use", "id": id, "name": tool, "input": arguments_object(arguments) })
}

/// Blocks of blank text are refused.
fn text_blocks(words: &str) -> Vec<Value> {
    if words.trim().is_empty() { Vec::new() } else { vec![text(words)] }
}

fn text(words: &str) -> Value {
    json!({ "type": "text", "text": words })
}

fn cached(mut block: Value) -> Value {
    block["cache_control"] = json!({ "type": "ephemeral" });
    block
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

        let body = body("claude", &turn, 1_000);

        let mark = json!({"type": "ephemeral"});
        assert_eq!(
            body,
            json!({
                "model": "claude",
                "max_tokens": 1_000,
                "stream": true,
                "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}],
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "What is there?"}]},
                    {"role": "assistant", "content": [
                        {"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "c1", "name": "ls", "input": {"path": "."}},
                        {"type": "tool_use", "id": "c2", "name": "ls", "input": {"malformed_arguments": "{oops"}},
                    ]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": "a.txt"},
                        {"type": "tool_result", "tool_use_id": "c2", "content": "not JSON", "is_error": true, "cache_control": mark},
                        {"type": "text", "text": "<system-reminder>\nStay inside.\n</system-reminder>"},
                    ]},
                ],
                "tools": [{"name": "ls", "description": "The tool ls.", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "auto"},
            })
        );
    }

    #[test]
    fn thinking_has_a_budget_beside_the_answer() {
        let messages = [Message::User { text: "Why?".to_owned() }];
        let turn = Turn { messages: &messages, thinking: Some(ThinkingLevel::Low), ..sample::turn() };
        let tools = [sample::tool("ls")];

        let thinking = body("claude", &turn, 1_000);
        assert_eq!(thinking["thinking"], json!({"type": "enabled", "budget_tokens": 2_048}));
        assert_eq!(thinking["max_tokens"], 3_048);

        let forced = Turn { tools: &tools, tool_choice: ToolChoice::Forced("ls"), ..turn };
        assert_eq!(body("claude", &forced, 1_000).get("thinking"), None);
        let off = Turn { thinking: Some(ThinkingLevel::Off), ..turn };
        assert_eq!(body("claude", &off, 1_000).get("thinking"), None);
    }

    #[test]
    fn the_choice_of_tools_is_told_even_where_none_is_offered() {
        let tools = [sample::tool("ls")];
        let turn = Turn { tools: &tools, ..sample::turn() };
        let choice = |turn: &Turn<'_>| body("claude", turn, 1).get("tool_choice").cloned();

        assert_eq!(
            choice(&Turn { tool_choice: ToolChoice::Forced("ls"), ..turn }),
            Some(json!({"type": "tool", "name": "ls"}))
        );
        assert_eq!(choice(&Turn { tool_choice: ToolChoice::None, ..turn }), Some(json!({"type": "none"})));
        assert_eq!(choice(&sample::turn()), None);

        let without_tools = body("claude", &Turn { messages: &sample::conversation(), ..sample::turn() }, 1);
        assert_eq!(without_tools["tools"], json!([{"name": "ls", "input_schema": {"type": "object"}}]));
        assert_eq!(without_tools["tool_choice"], json!({"type": "none"}));
    }

    #[test]
    fn messages_alternate_and_begin_with_the_user() {
        let user = |text: &str| Message::User { text: text.to_owned() };
        let assistant = |text: &str| Message::Assistant { text: text.to_owned(), tool_calls: Vec::new() };
        let roles = |messages: &[Message]| -> Vec<String> {
            let turn = Turn { messages, ..sample::turn() };
            super::messages(&turn)
                .iter()
                .map(|message| message["role"].as_str().unwrap().to_owned())
                .collect()
        };

        assert_eq!(roles(&[user("a"), user("b")]), ["user"]);
        assert_eq!(roles(&[assistant("a"), user("b")]), ["user", "assistant", "user"]);
        assert_eq!(roles(&[user("a"), assistant(" "), user("b")]), ["user"]);
    }
}
