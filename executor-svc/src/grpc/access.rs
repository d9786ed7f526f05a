//! One row for every method: which role it needs, and whether a caller without credentials may call it.

use service_kit::{
    auth::{Identity, Role, Rule},
    server,
};
use tonic::{Request, Status};

use super::to_proto::View;
use crate::{
    definition::SpawnPolicy,
    dispatch::{ANONYMOUS, Caller},
    error::Error,
    kernel::Kernel,
    session::Root,
    worker::{SessionId, Worker},
};

/// Records are for readers, and for spawners who look after their own trees.
const READ: &[Role] = &[Role::Reader, Role::Spawner, Role::Auditor];

/// Content is for auditors, and for spawners in their own trees.
const CONTENT: &[Role] = &[Role::Auditor, Role::Spawner];

const SPAWN: &[Role] = &[Role::Spawner];

/// The access table.
pub const RULES: &[Rule] = &[
    Rule::work("/roster.executor.v1.ExecutorService/Spawn", SPAWN, true),
    Rule::work("/roster.executor.v1.ExecutorService/SpawnStream", SPAWN, true),
    Rule::read("/roster.executor.v1.ExecutorService/GetWorker", READ, true),
    Rule::read("/roster.executor.v1.ExecutorService/ListWorkers", READ, true),
    Rule::read("/roster.executor.v1.ExecutorService/GetTree", READ, true),
    Rule::read("/roster.executor.v1.ExecutorService/WatchWorker", READ, true),
    Rule::read("/roster.executor.v1.ExecutorService/StopWorker", SPAWN, true),
    Rule::work("/roster.executor.v1.ExecutorService/SendMessage", SPAWN, true),
    Rule::read("/roster.executor.v1.ExecutorService/ListMessages", CONTENT, true),
    Rule::read("/roster.executor.v1.ExecutorService/DescribeSpawnTool", READ, true),
    Rule::read("/roster.executor.v1.ExecutorService/ListTools", READ, true),
    Rule::read("/roster.executor.v1.ExecutorService/GetLimits", READ, true),
    Rule::work("/roster.executor.v1.SessionService/Converse", SPAWN, true),
    Rule::read("/roster.executor.v1.SessionService/WatchSession", READ, true),
    Rule::read("/roster.executor.v1.SessionService/GetSession", READ, true),
    Rule::read("/roster.executor.v1.SessionService/ListSessions", READ, true),
    Rule::read("/roster.executor.v1.SessionService/CloseSession", SPAWN, true),
    Rule::read("/roster.executor.v1.SessionService/DeleteSession", &[Role::Admin], false),
    Rule::read("/roster.executor.v1.ReviewService/ListProposals", CONTENT, true),
    Rule::read("/roster.executor.v1.ReviewService/DecideProposal", &[Role::Approver], false),
];

/// Who calls, as the rest of the executor knows it.
pub(super) fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    Ok(of(server::identity(request)?))
}

fn of(identity: &Identity) -> Caller {
    Caller {
        operator: identity.name().unwrap_or(ANONYMOUS).to_owned(),
        is_anonymous: identity.is_anonymous(),
        owns_all: identity.is_admin(),
        reads_all: identity.has(Role::Auditor),
        reads_records: identity.has(Role::Reader),
        spawns: identity.spawns().map(|names| match names {
            [] => SpawnPolicy::None,
            names => SpawnPolicy::Listed(names.to_vec()),
        }),
        workspaces: identity.workspaces().to_vec(),
    }
}

impl Caller {
    /// How much of another's record this caller sees; absent where it is as if the record were not there.
    pub(super) fn view(&self, workspace: &str, operator: &str) -> Option<View> {
        if !self.sees_workspace(workspace) {
            return None;
        }
        match (self.owns(operator) || self.reads_all, self.reads_records) {
            (true, _) => Some(View::Full),
            (false, true) => Some(View::Basic),
            (false, false) => None,
        }
    }
}

/// The only operator whose sessions a listing shows; absent where it shows all.
pub(super) fn listed_operator(caller: &Caller) -> Option<String> {
    let sees_all = caller.owns_all || caller.reads_all || caller.reads_records;
    (!sees_all).then(|| caller.operator.clone())
}

impl Kernel {
    /// A worker, and how much of it the caller sees.
    pub(super) async fn seen_worker(&self, caller: &Caller, id: &SessionId) -> Result<(Worker, View), Error> {
        // A coordinator's turn is no worker: it is seen as its root session.
        let worker = if id.is_worker() { self.log.worker(id).await? } else { None };
        worker
            .and_then(|worker| {
                let view = caller.view(&worker.workspace, &worker.operator)?;
                Some((worker, view))
            })
            .ok_or_else(|| Error::SessionNotFound(id.to_string()))
    }

    /// A root session, and how much of its tree the caller sees.
    pub(super) async fn seen_root(&self, caller: &Caller, id: &SessionId) -> Result<(Root, View), Error> {
        let root = self.log.root(id).await?;
        root.and_then(|root| {
            let view = caller.view(&root.workspace, &root.operator)?;
            Some((root, view))
        })
        .ok_or_else(|| Error::SessionNotFound(id.to_string()))
    }

    /// Refuses a session that is not the caller's to stop, send to or close.
    pub(super) async fn own_session(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        let (workspace, operator) = if id.is_worker() {
            let (worker, _) = self.seen_worker(caller, id).await?;
            (worker.workspace, worker.operator)
        } else {
            let (root, _) = self.seen_root(caller, id).await?;
            (root.workspace, root.operator)
        };
        match caller.sees_workspace(&workspace) && caller.owns(&operator) {
            true => Ok(()),
            false => Err(Error::SessionNotFound(id.to_string())),
        }
    }
}
