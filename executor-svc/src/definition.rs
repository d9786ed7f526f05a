//! The agent definition as the executor runs it: pinned at spawn time, kept in the worker's log.

use schemars::JsonSchema;
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionMode {
    ReadOnly,
    DualSign,
    MutatingWithReview,
}

impl SpawnPolicy {
    pub fn allows(&self, agent: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Listed(names) => names.iter().any(|name| name == agent),
        }
    }

    /// True only for a list that holds the name: "all" does not name anybody.
    pub fn names(&self, agent: &str) -> bool {
        match self {
            Self::None | Self::All => false,
            Self::Listed(names) => names.iter().any(|name| name == agent),
        }
    }

    /// What both allow, in the order of `self` where both are lists.
    pub fn intersect(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::None, _) | (_, Self::None) => Self::None,
            (Self::All, policy) | (policy, Self::All) => policy.clone(),
            (Self::Listed(names), Self::Listed(_)) => {
                let both: Vec<String> = names.iter().filter(|name| other.allows(name)).cloned().collect();
                if both.is_empty() { Self::None } else { Self::Listed(both) }
            }
        }
    }
}

impl PermissionMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::DualSign => "dual-sign",
            Self::MutatingWithReview => "mutating-with-review",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str]) -> SpawnPolicy {
        SpawnPolicy::Listed(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn an_intersection_allows_what_both_allow() {
        assert_eq!(SpawnPolicy::All.intersect(&listed(&["a"])), listed(&["a"]));
        assert_eq!(listed(&["b", "a"]).intersect(&listed(&["a", "b", "c"])), listed(&["b", "a"]));
        assert_eq!(listed(&["a"]).intersect(&listed(&["b"])), SpawnPolicy::None);
        assert_eq!(SpawnPolicy::None.intersect(&SpawnPolicy::All), SpawnPolicy::None);
    }

    #[test]
    fn all_allows_every_agent_but_names_none() {
        assert!(SpawnPolicy::All.allows("a") && !SpawnPolicy::All.names("a"));
        assert!(listed(&["a"]).names("a") && !listed(&["a"]).allows("A"));
    }

    #[test]
    fn modes_are_ordered_from_narrow_to_wide() {
        assert!(PermissionMode::ReadOnly < PermissionMode::DualSign);
        assert!(PermissionMode::DualSign < PermissionMode::MutatingWithReview);
    }
}
