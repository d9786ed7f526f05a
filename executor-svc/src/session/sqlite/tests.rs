//! The store as its callers see it, on a real file. Time is what the test says.

mod accept;
mod append;
mod crash;
mod dedupe;
mod open;
mod proposals;
mod trees;
mod writer;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;

use super::{Clock, Store};
use crate::{
    definition::{Definition, PermissionMode, SpawnPolicy, ToolSelection},
    event::Body,
    session::{
        AcceptError, Acceptance, Accepted, Append, AppendError, Appended, Log as _, Parent, Record, Spec,
    },
    transcript::Message,
    worker::{SessionId, Status, StopReason, Time, Usage, Worker},
};

/// A store in a directory that goes with it.
pub(crate) struct Fixture {
    pub(crate) store: Arc<Store>,
    time: Arc<AtomicI64>,
    directory: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let time = Arc::new(AtomicI64::new(1_000_000));
        let store = Arc::new(Store::open(directory.path(), clock(&time)).unwrap());
        Self { store, time, directory }
    }

    /// The same directory, after a clean end.
    async fn reopened(self) -> Self {
        let Self { store, time, directory } = self;
        store.close().await;
        let store = Arc::new(Store::open(directory.path(), clock(&time)).unwrap());
        Self { store, time, directory }
    }

    fn advance(&self, duration: Duration) {
        self.time.fetch_add(i64::try_from(duration.as_millis()).unwrap(), Ordering::Relaxed);
    }

    fn now(&self) -> Time {
        Time(self.time.load(Ordering::Relaxed))
    }

    async fn accept(&self, acceptance: Acceptance) -> Result<Accepted, AcceptError> {
        self.store.accept(acceptance).await
    }

    /// A new worker in a new root, pending.
    pub(crate) async fn pending(&self) -> Worker {
        new(self.accept(acceptance()).await)
    }

    /// A worker below a parent, running.
    async fn running(&self, parent: Parent) -> Worker {
        let worker = new(self.accept(Acceptance { parent, ..acceptance() }).await);
        self.become_now(&worker, Status::Running).await
    }

    /// A step of a worker that only changes its state.
    async fn become_now(&self, worker: &Worker, status: Status) -> Worker {
        let records = self.store.records(&worker.id, 0, usize::MAX).await.unwrap();
        let worker = Worker { status, ..worker.clone() };
        self.append(records.len() as u64, &worker, vec![changed(status)]).await.unwrap();
        worker
    }

    /// A whole life after acceptance, with an end.
    async fn end(&self, worker: &Worker, reason: StopReason) -> Worker {
        let worker = match worker.status {
            Status::Pending => self.become_now(worker, Status::Running).await,
            Status::Running | Status::Completed | Status::Failed | Status::Killed => worker.clone(),
        };
        let worker = Worker { stop_reason: Some(reason), ..worker };
        self.become_now(&worker, reason.status()).await
    }

    /// How many are counted as open.
    async fn open_workers(&self) -> u64 {
        let count = self.store.read("count", |connection| {
            connection.query_row("SELECT open_workers FROM totals", [], |row| row.get::<_, i64>(0))
        });
        count.await.unwrap().try_into().unwrap()
    }

    pub(crate) async fn append(
        &self,
        expected: u64,
        worker: &Worker,
        records: Vec<Record>,
    ) -> Result<Appended, AppendError> {
        let (session, worker) = (worker.id.clone(), worker.clone());
        self.store.append(Append { session, expected, records, worker }).await
    }
}

fn clock(time: &Arc<AtomicI64>) -> Clock {
    let time = Arc::clone(time);
    Arc::new(move || Time(time.load(Ordering::Relaxed)))
}

#[track_caller]
fn new(accepted: Result<Accepted, AcceptError>) -> Worker {
    match accepted.unwrap() {
        Accepted::New { worker, .. } => worker,
        Accepted::Deduplicated(worker) | Accepted::Repeated(worker) => {
            panic!("{} is an earlier one", worker.id)
        }
    }
}

fn changed(status: Status) -> Record {
    Record::Event { body: Body::StateChanged { status } }
}

fn user(text: &str) -> Record {
    Record::Message { message: Message::User { text: text.to_owned() } }
}

/// A spawn in a new unnamed root, with wide limits.
fn acceptance() -> Acceptance {
    Acceptance {
        worker: worker(),
        records: vec![Record::Spec(Box::new(spec())), Record::Event { body: Body::Accepted }, user("Look.")],
        parent: Parent::UnnamedRoot,
        open_max: 4_096,
        spawns_per_tree_max: None,
        tokens_per_tree_max: None,
        tree_window: Duration::from_secs(24 * 60 * 60),
        request: None,
        dedupe: None,
        is_review: false,
    }
}

pub(crate) fn worker() -> Worker {
    Worker {
        id: SessionId::new_worker(),
        parent: SessionId::new_root(),
        root: SessionId::new_root(),
        workspace: "default".to_owned(),
        agent: "explore".to_owned(),
        agent_digest: "sha256:1".to_owned(),
        depth: 1,
        description: String::new(),
        status: Status::Pending,
        stop_reason: None,
        result: String::new(),
        partial: false,
        structured_output: None,
        schema_valid: None,
        schema_source: None,
        error: String::new(),
        usage: Usage::default(),
        background: false,
        spawns: SpawnPolicy::All,
        model: "local/qwen3".to_owned(),
        replica: String::new(),
        operator: "ada".to_owned(),
        create_time: Time(0),
        start_time: None,
        close_time: None,
        labels: BTreeMap::new(),
        continues: None,
        plan_mode: false,
        permission_mode: PermissionMode::ReadOnly,
        takeovers: 0,
    }
}

fn spec() -> Spec {
    Spec {
        definition: Definition {
            name: "explore".to_owned(),
            description: "Looks around.".to_owned(),
            system_prompt: "Look.".to_owned(),
            tools: ToolSelection::Listed(vec!["read".to_owned()]),
            disallowed_tools: Vec::new(),
            spawns: SpawnPolicy::None,
            models: Vec::new(),
            thinking_level: None,
            output_schema: None,
            permission_mode: None,
            max_turns: None,
            critical_reminder: String::new(),
            skills: Vec::new(),
            mcp_servers: Vec::new(),
            blocking: false,
            digest: "sha256:1".to_owned(),
        },
        earlier: None,
        request_id: String::new(),
        system: "Look.".to_owned(),
        prompt: "Look.".to_owned(),
        output_schema: None,
        schema_is_permissive: false,
        locale: String::new(),
        thinking: None,
        max_turns: 30,
        tokens_max: None,
        wall_time: Duration::from_secs(1_800),
        spawns_max: None,
        root_spawns: SpawnPolicy::All,
    }
}
