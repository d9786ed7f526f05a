//! What was said in a session: the messages a model sees and a caller can list.

use serde::{Deserialize, Serialize};

/// One message. The system prompt is kept beside the transcript, not in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// The caller, the parent, or a reminder of the kernel.
    User { text: String },
    /// The model.
    Assistant { text: String, tool_calls: Vec<ToolCall> },
    /// The answer to one call.
    Tool { call_id: String, tool: String, text: String, is_error: bool },
}

/// One tool call of an assistant message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's id for it, unique within its message; made up where a server leaves it out.
    pub id: String,
    pub tool: String,
    /// As the model wrote it: JSON text, perhaps malformed.
    pub arguments: String,
}

/// How many of the last messages, at most `limit`, are seen: a call and its answers stand together or not at all.
pub fn whole_groups(messages: &[&Message], limit: usize) -> usize {
    let last = &messages[messages.len().saturating_sub(limit)..];
    // An answer at the beginning belongs to calls that are not seen.
    let torn = last.iter().take_while(|message| matches!(message, Message::Tool { .. })).count();
    last.len() - torn
}

#[cfg(test)]
mod tests {
    use super::{Message, ToolCall, whole_groups};

    fn user() -> Message {
        Message::User { text: "a".to_owned() }
    }

    fn calling(calls: usize) -> Vec<Message> {
        let call = |index: usize| ToolCall {
            id: index.to_string(),
            tool: "ls".to_owned(),
            arguments: String::new(),
        };
        let answer = |index: usize| Message::Tool {
            call_id: index.to_string(),
            tool: "ls".to_owned(),
            text: String::new(),
            is_error: false,
        };
        let asked = Message::Assistant { text: String::new(), tool_calls: (0..calls).map(call).collect() };
        std::iter::once(asked).chain((0..calls).map(answer)).collect()
    }

    #[test]
    fn a_call_and_its_answers_are_seen_together_or_not_at_all() {
        let messages = [vec![user()], calling(3), vec![user()]].concat();
        let messages: Vec<&Message> = messages.iter().collect();

        for (limit, seen) in [(50, 6), (6, 6), (5, 5), (4, 1), (3, 1), (2, 1), (1, 1), (0, 0)] {
            assert_eq!(whole_groups(&messages, limit), seen, "{limit}");
        }
        assert_eq!(whole_groups(&[], 50), 0);
    }
}
