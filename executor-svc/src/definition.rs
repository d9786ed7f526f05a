//! The agent definition as the executor runs it: pinned at spawn time, kept in the worker's log.

use serde::{Deserialize, Serialize};

/// A definition as the registry resolved it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    pub name: String,
    pub description: String,
    pub system_prompt: String,
    pub tools: ToolSelection,
    pub disallowed_tools: Vec<String>,
    pub spawns: SpawnPolicy,
    pub models: Vec<String>,
    pub thinking_level: Option<ThinkingLevel>,
    pub output_schema: Option<String>,
    pub permission_mode: Option<PermissionMode>,
    pub max_turns: Option<u32>,
    pub critical_reminder: String,
    pub skills: Vec<String>,
    pub mcp_servers: Vec<String>,
    pub blocking: bool,
    pub digest: String,
}

/// Which tools an agent may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolSelection {
    Inherit,
    All,
    Listed(Vec<String>),
}

/// Which agents may be spawned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpawnPolicy {
    None,
    All,
    Listed(Vec<String>),
}

/// Reasoning effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingLevel {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

/// What a session may do to the world, from narrow to wide: the derived order is the order of narrowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionMode {
    ReadOnly,
    DualSign,
    MutatingWithReview,
}
