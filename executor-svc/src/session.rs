//! The store of sessions behind two traits. Safety is the log: a step is appended only if the session's last position is
//! the one its owner knows. Liveness is the queue: an accepted worker is delivered until it is done.

mod local_queue;
mod proposals;
pub mod sqlite;

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use self::proposals::{ProposalFilter, Proposals};
use crate::{
    definition::{Definition, SpawnPolicy, ThinkingLevel},
    event::{Body, Event},
    transcript::Message,
    worker::{SessionId, Status, Time, Usage, Worker},
};

/// How many records a session's log has. 0 before the first.
pub type Position = u64;

/// One step's worth of log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// The first record of a worker: all that is needed to run or to continue it anywhere.
    Spec(Box<Spec>),
    /// Its sequence is counted by the store over the session's events.
    Event { body: Body },
    /// Its sequence is counted by the store over the session's messages.
    Message { message: Message },
}

/// What a worker runs with, fixed when it was accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    pub definition: Definition,
    /// The composed system prompt.
    pub system: String,
    pub prompt: String,
    /// Coordinators only: what was said in earlier turns and is seen in this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Earlier>,
    /// Coordinators only: the caller's own id for the turn; empty where there was none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// The effective schema as JSON text.
    pub output_schema: Option<String>,
    pub schema_is_permissive: bool,
    pub locale: String,
    /// The definition's, or else the parent's.
    pub thinking: Option<ThinkingLevel>,
    pub max_turns: u32,
    /// Input plus output tokens of this worker and all below it.
    pub tokens_max: Option<u64>,
    pub wall_time: Duration,
    /// Workers below this one, over its whole life.
    pub spawns_max: Option<u32>,
    /// What the root allowed when it was accepted: the policy of everything below is within it.
    pub root_spawns: SpawnPolicy,
}

/// Messages of a session that stand before a turn of its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    /// The sequence number that they follow.
    pub after: u64,
    pub count: usize,
}

/// A root session's record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Root {
    pub id: SessionId,
    pub workspace: String,
    /// The coordinator's agent; empty when the caller runs its own.
    pub agent: String,
    pub operator: String,
    /// As given by the caller; empty otherwise.
    pub caller_root_id: String,
    pub create_time: Time,
    pub close_time: Option<Time>,
    pub usage: Usage,
    /// Without the coordinator's own turn.
    pub open_workers: u32,
    pub turn_running: bool,
}

/// A step of one session. Applied whole or not at all.
#[derive(Clone, Debug)]
pub struct Append {
    pub session: SessionId,
    /// The last position the caller knows. Another one is [`AppendError::Moved`].
    pub expected: Position,
    pub records: Vec<Record>,
    /// The worker's row as it stands after this step. With a final status, the store also counts the root's open workers
    /// down, adds the usage to the root, closes an unnamed root with its last worker, and stamps the dedupe entry.
    pub worker: Worker,
}

/// What `append` did.
#[derive(Clone, Debug)]
pub struct Appended {
    pub position: Position,
    /// The events among the records, with their sequence and time.
    pub events: Vec<Event>,
}

/// A new worker. Recorded in one transaction: root, counters, request id, dedupe, row, first records, place in the queue.
#[derive(Clone, Debug)]
pub struct Acceptance {
    /// `root` and `create_time` are set by the store; `parent` too where the parent is the root itself.
    pub worker: Worker,
    pub records: Vec<Record>,
    pub parent: Parent,
    /// Most workers that may be open on this replica; then [`AcceptError::Overloaded`].
    pub open_max: u32,
    /// Most workers ever spawned below the root inside the window; then [`AcceptError::BudgetExhausted`].
    pub spawns_per_tree_max: Option<u32>,
    /// Most input and output tokens below the root inside the window; then [`AcceptError::BudgetExhausted`].
    pub tokens_per_tree_max: Option<u64>,
    pub tree_window: Duration,
    pub request: Option<Request>,
    pub dedupe: Option<Dedupe>,
    /// The gate's own spawn: beside the queue, and beside the budgets and limits of others.
    pub is_review: bool,
}

/// What a worker is spawned below.
#[derive(Clone, Debug)]
pub enum Parent {
    /// A new root that closes with its last worker.
    UnnamedRoot,
    /// The caller's own root, made at first use, kept apart for each workspace and operator.
    NamedRoot { caller_root_id: String },
    /// An open root session, by its id.
    Root(SessionId),
    /// A running worker, or a root whose coordinator's turn runs. For a worker that continues another one, only its root
    /// has to be open.
    Worker(SessionId),
    /// Itself: a coordinator's turn. The first one opens the root session with the worker's id; a later one takes the row
    /// of the turn before over, at this position of the session's log.
    Turn(Option<Position>),
}

/// A caller's own id for a call. Answers the same worker for 24 h, kept apart for each workspace and operator.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: String,
    /// SHA-256 over the request's content.
    pub content: [u8; 32],
}

/// The window in which an identical call is answered by the first one's worker.
#[derive(Clone, Debug)]
pub struct Dedupe {
    pub key: [u8; 32],
    /// From the completion of the first.
    pub ttl: Duration,
    pub capacity: usize,
    /// True runs again and replaces the entry.
    pub bypass: bool,
}

/// Which worker answers a spawn.
#[derive(Clone, Debug)]
pub enum Accepted {
    /// The new one, as recorded, with its position and its first events.
    New { worker: Worker, position: Position, events: Vec<Event> },
    /// An identical call's, running or completed.
    Deduplicated(Worker),
    /// The one that the same request id made.
    Repeated(Worker),
}

/// A stored record.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub position: Position,
    /// The event's or the message's own sequence from 1; 0 for a spec.
    pub sequence: u64,
    pub time: Time,
    pub record: Record,
}

/// Someone wants a session stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StopWish {
    pub by: String,
    pub reason: String,
}

/// Which workers to list.
#[derive(Clone, Debug, Default)]
pub struct WorkerFilter {
    pub workspace: Option<String>,
    pub operator: Option<String>,
    pub root: Option<SessionId>,
    pub parent: Option<SessionId>,
    pub agent: Option<String>,
    pub statuses: Vec<Status>,
    pub labels: BTreeMap<String, String>,
    pub created_after: Option<Time>,
    /// Exclusive end of the page before: the id of its last worker.
    pub after: Option<SessionId>,
    /// True lists oldest first, so that parents come before children; false newest first.
    pub oldest_first: bool,
    /// True lists turns of coordinators too: by default only workers are.
    pub turns: bool,
    pub limit: usize,
}

/// Which root sessions to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct RootFilter {
    pub workspace: Option<String>,
    pub operator: Option<String>,
    pub open_only: bool,
    /// Exclusive end of the page before: the id of its last root.
    pub after: Option<SessionId>,
    pub limit: usize,
}

/// What `delete_tree` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    Deleted,
    NotFound,
    /// It is not closed, or a worker below it is open. Nothing was deleted.
    Open,
}

/// What to clear away.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// Open roots without an open worker and without a new one for this long are closed.
    pub idle: Duration,
    /// Trees closed for this long are deleted.
    pub retention: Duration,
    /// Most trees deleted by one call.
    pub limit: usize,
}

/// What a sweep cleared away. Call again while `deleted` is the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    pub closed: usize,
    pub deleted: usize,
}

/// The ordered logs and the rows that go with them.
#[async_trait]
pub trait Log: Send + Sync + 'static {
    async fn accept(&self, acceptance: Acceptance) -> Result<Accepted, AcceptError>;
    async fn append(&self, append: Append) -> Result<Appended, AppendError>;
    /// The worker that the same request id made earlier, before anything else of the call is looked at.
    ///
    /// # Errors
    ///
    /// [`AcceptError::RequestIdReused`] where the id was used with other content.
    async fn repeated(
        &self,
        workspace: &str,
        operator: &str,
        request: &Request,
    ) -> Result<Option<Worker>, AcceptError>;
    async fn worker(&self, id: &SessionId) -> Result<Option<Worker>, StoreError>;
    async fn root(&self, id: &SessionId) -> Result<Option<Root>, StoreError>;
    /// The position before the last spec of a session, among the records up to a position: where a turn of a coordinator
    /// begins. 0 for a worker.
    async fn turn(&self, id: &SessionId, until: Option<Position>) -> Result<Position, StoreError>;
    /// A caller's own root, by the caller's name for it.
    async fn named_root(
        &self,
        workspace: &str,
        operator: &str,
        caller_root_id: &str,
    ) -> Result<Option<Root>, StoreError>;
    /// A session's records after a position, oldest first.
    async fn records(&self, id: &SessionId, after: Position, limit: usize)
    -> Result<Vec<Stored>, StoreError>;
    /// A session's events after a sequence number, oldest first.
    async fn events(&self, id: &SessionId, after: u64, limit: usize) -> Result<Vec<Event>, StoreError>;
    /// A session's messages after a sequence number, oldest first.
    async fn messages(
        &self,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Time, Message)>, StoreError>;
    /// A session's last messages, oldest first.
    async fn recent(&self, id: &SessionId, limit: usize) -> Result<Vec<(u64, Message)>, StoreError>;
    async fn workers(&self, filter: WorkerFilter) -> Result<Vec<Worker>, StoreError>;
    /// Everything below a session, parents before children, at most `limit`.
    async fn descendants(&self, id: &SessionId, limit: usize) -> Result<Vec<Worker>, StoreError>;
    /// Records a wish to stop a session and everything that is open below it. The first wish of a worker counts; one that
    /// has ended is left alone. From here on none of them takes children; a root does.
    async fn wish_stop(&self, id: &SessionId, wish: StopWish) -> Result<(), StoreError>;
    /// The wish to stop this worker, if there is one, its own or an ancestor's.
    async fn stop_wish(&self, id: &SessionId) -> Result<Option<StopWish>, StoreError>;
    async fn roots(&self, filter: RootFilter) -> Result<Vec<Root>, StoreError>;
    /// Closes a root, which then takes no more workers. What runs below it runs on. Answers the root as it stands then.
    async fn close_root(&self, id: &SessionId) -> Result<Option<Root>, StoreError>;
    /// Deletes a closed root with everything that was kept of its tree.
    async fn delete_tree(&self, id: &SessionId) -> Result<Deletion, StoreError>;
    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError>;
}

/// Delivery of accepted workers.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Waits for the next worker. Whoever holds the claim touches it until it is done; untouched, it is delivered again.
    async fn claim(&self) -> Result<Box<dyn Claim>, StoreError>;
    /// How many wait.
    async fn depth(&self) -> Result<usize, StoreError>;
}

/// One delivered worker.
#[async_trait]
pub trait Claim: Send + Sync {
    fn worker(&self) -> &SessionId;
    /// True when it was delivered before: the one that ran it is gone.
    fn redelivered(&self) -> bool;
    async fn touch(&self) -> Result<(), StoreError>;
    async fn done(self: Box<Self>) -> Result<(), StoreError>;
}

/// Why a worker was not accepted. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    #[error("session `{0}` is not there")]
    SessionNotFound(String),
    #[error("session `{0}` is closed")]
    SessionClosed(SessionId),
    #[error("a turn of session `{0}` is running")]
    TurnInProgress(SessionId),
    #[error("request id `{0}` was used with other content")]
    RequestIdReused(String),
    #[error("the limit `{limit}` of {origin} is used up")]
    BudgetExhausted { limit: &'static str, origin: String },
    #[error("too many open workers")]
    Overloaded,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a step was not appended. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Somebody else appended: the caller is no longer the owner, or it is a step behind.
    #[error("session `{session}` is at position {actual}, not {expected}")]
    Moved { session: SessionId, expected: Position, actual: Position },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The store does not do what it is asked.
#[derive(Debug, thiserror::Error)]
#[error("the session store failed to {action}")]
pub struct StoreError {
    pub action: &'static str,
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
    /// True when the same call may succeed later.
    pub transient: bool,
}
