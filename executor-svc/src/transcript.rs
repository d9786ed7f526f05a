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
