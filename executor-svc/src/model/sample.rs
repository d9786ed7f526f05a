//! Turns that the tests of this module's parts begin with.

use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;

use super::{Listener, ToolChoice, ToolSpec, Turn};
use crate::{
    transcript::{Message, ToolCall},
    worker::Usage,
};

/// Takes text and waits, and does not really wait.
#[derive(Default)]
pub(super) struct Ear {
    pub(super) text: Mutex<String>,
    pub(super) waits: Mutex<Vec<Duration>>,
}

#[async_trait]
impl Listener for Ear {
    fn text(&self, text: &str) {
        self.text.lock().push_str(text);
    }

    async fn pause(&self, wait: Duration) {
        self.waits.lock().push(wait);
    }
}

/// A turn with nothing in it.
pub(super) fn turn() -> Turn<'static> {
    Turn {
        agent: "explore",
        number: 1,
        prompt: "",
        system: "",
        messages: &[],
        reminder: "",
        tools: &[],
        tool_choice: ToolChoice::Auto,
        thinking: None,
    }
}

/// A question, two calls, of which one is malformed, and their results.
pub(super) fn conversation() -> Vec<Message> {
    let call = |id: &str, arguments: &str| ToolCall {
        id: id.to_owned(),
        tool: "ls".to_owned(),
        arguments: arguments.to_owned(),
    };
    let result = |id: &str, text: &str, is_error| Message::Tool {
        call_id: id.to_owned(),
        tool: "ls".to_owned(),
        text: text.to_owned(),
        is_error,
    };
    vec![
        Message::User { text: "What is there?".to_owned() },
        Message::Assistant {
            text: "I look.".to_owned(),
            tool_calls: vec![call("c1", r#"{"path":"."}"#), call("c2", "{oops")],
        },
        result("c1", "a.txt", false),
        result("c2", "not JSON", true),
    ]
}

pub(super) fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: format!("The tool {name}."),
        input_schema: json!({ "type": "object" }),
    }
}

/// One turn's usage.
pub(super) fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, turns: 1, ..Usage::default() }
}
