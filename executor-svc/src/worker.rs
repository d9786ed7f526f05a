//! One worker's record: what it is, where it stands, and which changes of state are legal.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::definition::{PermissionMode, SpawnPolicy};

/// A session: a worker (`worker-<uuid v7>`) or a root (`root-<uuid v7>`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(Arc<str>);

/// States of a worker. The three last are final and never left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Pending,
    Running,
    Completed,
    Failed,
    Killed,
}

/// Why a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    Finished,
    MaxTurns,
    Timeout,
    Budget,
    Stopped,
    CallerGone,
    ModelError,
    Schema,
    NoOutput,
    Aborted,
    Panic,
    Lost,
    Drained,
    Overloaded,
}

/// Tokens and time used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_input_tokens: u64,
    pub turns: u32,
    pub tool_calls: u32,
    pub duration_ms: u64,
}

/// Where the schema of a result came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaSource {
    Agent,
    Call,
    Parent,
}

/// Milliseconds since the Unix epoch, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

/// One worker's record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    pub id: SessionId,
    pub parent: SessionId,
    pub root: SessionId,
    pub workspace: String,
    pub agent: String,
    pub agent_digest: String,
    pub depth: u32,
    pub description: String,
    pub status: Status,
    pub stop_reason: Option<StopReason>,
    pub result: String,
    pub partial: bool,
    pub structured_output: Option<String>,
    pub schema_valid: Option<bool>,
    pub schema_source: Option<SchemaSource>,
    pub error: String,
    pub usage: Usage,
    pub background: bool,
    pub spawns: SpawnPolicy,
    pub model: String,
    pub replica: String,
    pub operator: String,
    pub create_time: Time,
    pub start_time: Option<Time>,
    pub close_time: Option<Time>,
    pub labels: BTreeMap<String, String>,
    pub continues: Option<SessionId>,
    pub plan_mode: bool,
    pub permission_mode: PermissionMode,
    pub takeovers: u32,
}

impl SessionId {
    /// A new worker's id, ordered by time.
    pub fn new_worker() -> Self {
        Self(format!("worker-{}", Uuid::now_v7()).into())
    }

    /// A new root session's id, ordered by time.
    pub fn new_root() -> Self {
        Self(format!("root-{}", Uuid::now_v7()).into())
    }

    /// Reads an id of either kind.
    pub fn parse(text: &str) -> Option<Self> {
        let uuid = text.strip_prefix("worker-").or_else(|| text.strip_prefix("root-"))?;
        Uuid::try_parse(uuid).ok()?;
        Some(Self(text.into()))
    }

    pub fn is_worker(&self) -> bool {
        self.0.starts_with("worker-")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Worker {
    /// True for the row of a coordinator: it stands for the last turn of its root session, and its parent is itself.
    pub fn is_turn(&self) -> bool {
        !self.id.is_worker()
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl TryFrom<String> for SessionId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is no session id"))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Status {
    /// True for the three states that are never left.
    pub fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Completed | Self::Failed | Self::Killed => true,
        }
    }

    /// The legal changes of state.
    pub fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Pending, Self::Running | Self::Failed | Self::Killed)
            | (Self::Running, Self::Completed | Self::Failed | Self::Killed) => true,
            (Self::Pending | Self::Running | Self::Completed | Self::Failed | Self::Killed, _) => false,
        }
    }
}

impl StopReason {
    /// The final state that belongs to a reason.
    pub fn status(self) -> Status {
        match self {
            Self::Finished => Status::Completed,
            Self::Stopped | Self::CallerGone | Self::Drained => Status::Killed,
            Self::MaxTurns
            | Self::Timeout
            | Self::Budget
            | Self::ModelError
            | Self::Schema
            | Self::NoOutput
            | Self::Aborted
            | Self::Panic
            | Self::Lost
            | Self::Overloaded => Status::Failed,
        }
    }
}

impl Usage {
    /// Tokens sent and received.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let Self { input_tokens, output_tokens, cached_input_tokens, turns, tool_calls, duration_ms } = other;
        self.input_tokens += input_tokens;
        self.output_tokens += output_tokens;
        self.cached_input_tokens += cached_input_tokens;
        self.turns += turns;
        self.tool_calls += tool_calls;
        self.duration_ms += duration_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::{SessionId, Status, StopReason};

    const ALL: [Status; 5] =
        [Status::Pending, Status::Running, Status::Completed, Status::Failed, Status::Killed];

    #[test]
    fn a_final_state_is_never_left() {
        for from in ALL.into_iter().filter(|status| status.is_final()) {
            for to in ALL {
                assert!(!from.may_become(to), "{from:?} -> {to:?}");
            }
        }
    }

    #[test]
    fn a_worker_that_never_ran_cannot_complete() {
        assert!(!Status::Pending.may_become(Status::Completed));
        assert!(Status::Pending.may_become(StopReason::Overloaded.status()));
        assert!(Status::Running.may_become(StopReason::Finished.status()));
    }

    #[test]
    fn ids_are_read_back_and_nothing_else_is() {
        let worker = SessionId::new_worker();
        assert_eq!(SessionId::parse(worker.as_str()), Some(worker.clone()));
        assert!(worker.is_worker() && !SessionId::new_root().is_worker());
        for text in ["", "worker-", "worker-7", "job-0190c2f0-0000-7000-8000-000000000000", "default"] {
            assert_eq!(SessionId::parse(text), None, "{text:?}");
        }
    }
}
