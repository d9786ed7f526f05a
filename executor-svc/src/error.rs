//! What a caller can learn of a call that was refused or failed. The texts of the admission rows are contract: models read
//! them, programs read the reasons that `grpc::status` gives them.

use std::time::Duration;

use crate::{
    model::provider::NoModel,
    registry::LookupError,
    session::StoreError,
    worker::{SchemaSource, SessionId},
};

/// Why a call has no answer. A refusal has written nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", violations(.0))]
    InvalidRequest(Vec<Violation>),

    /// A model's arguments of a kernel tool.
    #[error("the arguments cannot be used: {0}")]
    Arguments(String),

    #[error("workspace `{0}` is not there")]
    WorkspaceNotFound(String),

    #[error("this executor is shutting down")]
    Draining,

    #[error("request id `{0}` was used with other content")]
    RequestIdReused(String),

    #[error("session `{0}` is not there")]
    SessionNotFound(String),

    #[error("session `{0}` is closed")]
    SessionClosed(SessionId),

    #[error("Depth limit reached: this session is at depth {depth} and the maximum is {maximum}.")]
    DepthExceeded { depth: u32, maximum: u64 },

    #[error("Agent '{0}' must not spawn itself (recursion prevention). Choose another agent.")]
    SelfRecursion(String),

    #[error("Cannot spawn '{agent}'. Allowed: {allowed}")]
    SpawnDenied { agent: String, allowed: String },

    #[error("Agent '{0}' is reserved and cannot be spawned.")]
    ReservedAgent(String),

    /// `message` is the contract's text with the names that the caller may be told.
    #[error("{message}")]
    UnknownAgent { agent: String, message: String, suggestion: String, available_count: String },

    #[error("{message}")]
    AgentBroken { agent: String, message: String },

    #[error("the registry cannot be reached")]
    RegistryUnavailable {
        agent: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    #[error("Agent \"{agent}\" is switched off by the operator. Available: {available}")]
    AgentDisabled { agent: String, available: String },

    #[error("{no_model}")]
    NoModel { agent: String, no_model: NoModel },

    #[error("the output schema of the {} is not usable: {message}", schema_owner(*.source_of))]
    InvalidSchema { source_of: SchemaSource, message: String },

    #[error("permission mode `dual-sign` needs an operator with credentials")]
    NoIdentity,

    #[error("the budget `{limit}` is used up ({origin})")]
    BudgetExhausted { limit: String, origin: String },

    #[error("too many open workers")]
    Overloaded { retry_after: Duration },

    #[error("session `{0}` has no coordinator: its caller runs its own")]
    NotACoordinator(SessionId),

    #[error(
        "a turn of session `{0}` is running: follow it with `WatchSession`, or stop it with `StopWorker`"
    )]
    TurnInProgress(SessionId),

    #[error("worker `{0}` has not completed")]
    WorkerNotCompleted(SessionId),

    #[error("session `{0}` is open")]
    SessionOpen(SessionId),

    #[error("proposal `{0}` is not there")]
    ProposalNotFound(String),

    #[error("proposal `{0}` does not await a person")]
    NotAwaitingPerson(String),

    #[error("proposal `{0}` is the caller's own: another person decides it")]
    OwnProposal(String),

    #[error("proposal `{id}` has another digest than the one that was looked at")]
    DigestMismatch { id: String, expected: String, actual: String },

    #[error("the session store is not available")]
    Store(#[source] StoreError),

    /// A defect of ours: the text is for the log.
    #[error("{0}")]
    Defect(String),
}

/// One argument that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub field: &'static str,
    pub description: String,
}

impl Violation {
    pub fn new(field: &'static str, description: impl Into<String>) -> Self {
        Self { field, description: description.into() }
    }
}

impl Error {
    /// A required argument that is not there.
    pub fn required(field: &'static str) -> Self {
        Self::InvalidRequest(vec![Violation::new(field, "it is required")])
    }
}

impl From<LookupError> for Error {
    /// For calls that ask the registry about no agent in particular.
    fn from(error: LookupError) -> Self {
        Self::RegistryUnavailable { agent: String::new(), source: Box::new(error) }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Names in a message: at most 20 and 1 KiB, then how many more there are; `none` where there are none. `total` may be
/// larger than the number of names at hand.
pub fn list<'a>(names: impl IntoIterator<Item = &'a str>, total: usize) -> String {
    const NAMES_MAX: usize = 20;
    const BYTES_MAX: usize = 1024;

    let mut text = String::new();
    let mut shown = 0;
    for name in names.into_iter().take(NAMES_MAX) {
        let separator = if shown == 0 { "" } else { ", " };
        if text.len() + separator.len() + name.len() > BYTES_MAX {
            break;
        }
        text.push_str(separator);
        text.push_str(name);
        shown += 1;
    }
    match total.saturating_sub(shown) {
        0 if shown == 0 => "none".to_owned(),
        0 => text,
        more => format!("{text}, … ({more} more)"),
    }
}

fn violations(violations: &[Violation]) -> String {
    match violations {
        [one] => format!("`{}`: {}", one.field, one.description),
        many => format!("{} arguments cannot be used", many.len()),
    }
}

fn schema_owner(source: SchemaSource) -> &'static str {
    match source {
        SchemaSource::Agent => "definition",
        SchemaSource::Call => "call",
        SchemaSource::Parent => "parent session",
    }
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn a_list_shows_twenty_names_and_says_how_many_more() {
        let names: Vec<String> = (0..25).map(|index| format!("agent-{index}")).collect();

        let text = list(names.iter().map(String::as_str), names.len());

        assert!(text.starts_with("agent-0, agent-1, "), "{text}");
        assert!(text.ends_with("agent-19, … (5 more)"), "{text}");
    }

    #[test]
    fn a_list_stays_within_a_kibibyte() {
        let names = vec!["n".repeat(300); 8];

        let text = list(names.iter().map(String::as_str), names.len());

        assert!(text.ends_with(", … (5 more)") && text.len() < 1024 + 24, "{text}");
    }

    #[test]
    fn an_empty_list_says_none() {
        assert_eq!(list([], 0), "none");
        assert_eq!(list(["a", "b"], 2), "a, b");
    }
}
