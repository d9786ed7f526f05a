//! What is recorded of the session that a worker is spawned below: depth, policy, modes and budget come from here, never
//! from the caller.

use std::time::Duration;

use super::Place;
use crate::{
    admission::{Budget, Rules, Spawner},
    definition::SpawnPolicy,
    error::Error,
    kernel::{Kernel, WorkspaceRules},
    session::{Parent, Record, Root, Spec, Stored},
    worker::{SessionId, Status, Worker},
};

/// The operator of calls without credentials.
pub const ANONYMOUS: &str = "anonymous";

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The identity's name, or `anonymous`.
    pub operator: String,
    pub is_anonymous: bool,
    /// An administrator, or the executor itself on behalf of a running worker: every tree is its own.
    pub owns_all: bool,
    /// Sees what others' workers were told and what they answered.
    pub reads_all: bool,
    /// Sees that others' workers are there, without what was said.
    pub reads_records: bool,
    /// Absent where the credentials do not say.
    pub spawns: Option<SpawnPolicy>,
    /// Empty sees all.
    pub workspaces: Vec<String>,
}

/// Where a worker comes.
#[derive(Debug)]
pub struct Below {
    pub spawner: Spawner,
    pub workspace: String,
    pub parent: Parent,
    /// As known before it is recorded: the store puts a new root's id in.
    pub parent_id: SessionId,
    pub root_id: SessionId,
    /// What stands for the root in the dedupe key; absent where calls are not merged.
    pub dedupe_scope: Option<String>,
}

impl Caller {
    /// True where the caller may spawn, send, stop or close below a root.
    pub fn owns(&self, operator: &str) -> bool {
        self.owns_all || self.operator == operator
    }

    pub fn sees_workspace(&self, workspace: &str) -> bool {
        self.workspaces.is_empty() || self.workspaces.iter().any(|own| own == workspace)
    }
}

impl Kernel {
    /// The workspace, if there is one and the caller sees it.
    pub fn workspace(&self, caller: &Caller, name: &str) -> Result<&WorkspaceRules, Error> {
        self.workspaces
            .get(name)
            .filter(|_| caller.sees_workspace(name))
            .ok_or_else(|| Error::WorkspaceNotFound(name.to_owned()))
    }

    pub fn rules<'a>(&'a self, workspace: &'a WorkspaceRules) -> Rules<'a> {
        Rules {
            limits: &workspace.limits,
            overrides: &workspace.overrides,
            coordinator: &workspace.coordinator,
            blocked: &self.blocked_agents,
        }
    }

    /// The spec that a worker runs with, or the last turn of a coordinator.
    pub async fn spec(&self, id: &SessionId) -> Result<Option<Spec>, Error> {
        let before = if id.is_worker() { 0 } else { self.log.turn(id, None).await? };
        let first = self.log.records(id, before, 1).await?;
        Ok(first.into_iter().find_map(|Stored { record, .. }| match record {
            Record::Spec(spec) => Some(*spec),
            Record::Event { .. } | Record::Message { .. } => None,
        }))
    }

    /// Row 3: the session to spawn below, which has to be there, the caller's, and open.
    pub async fn below(
        &self,
        caller: &Caller,
        workspace: &str,
        place: &Place,
        rules: &WorkspaceRules,
    ) -> Result<Below, Error> {
        let root_policy = self.root_policy(caller, rules);
        let id = match place {
            Place::UnnamedRoot => {
                let scope = (!caller.is_anonymous).then(|| format!("operator {}", caller.operator));
                return Ok(new_root(root_policy, workspace, Parent::UnnamedRoot, scope));
            }
            Place::NamedRoot(caller_root_id) => {
                let scope = named_scope(&caller.operator, caller_root_id);
                let parent = Parent::NamedRoot { caller_root_id: caller_root_id.clone() };
                return Ok(new_root(root_policy, workspace, parent, Some(scope)));
            }
            Place::Below(text) => {
                SessionId::parse(text).ok_or_else(|| Error::SessionNotFound(text.clone()))?
            }
        };
        if id.is_worker() {
            self.below_worker(caller, workspace, &id, root_policy).await
        } else {
            let root = self.own_root(caller, &id, workspace).await?;
            if root.close_time.is_some() {
                return Err(Error::SessionClosed(id));
            }
            let coordinator = match root.agent.is_empty() {
                true => None,
                false => self.log.worker(&id).await?,
            };
            let (spawner, parent) = match coordinator {
                Some(turn) => (self.spawner_of(turn, root_policy).await?, Parent::Worker(id.clone())),
                None => (Spawner::root(root_policy), Parent::Root(id.clone())),
            };
            Ok(Below {
                spawner,
                workspace: workspace.to_owned(),
                parent,
                parent_id: id.clone(),
                root_id: id,
                dedupe_scope: scope_of(caller, &root),
            })
        }
    }

    /// A closed root goes before any later refusal. A caller's own root is looked up in the transaction that uses it, so
    /// that its name costs a call that is let in nothing; where another row refuses, this looks in its place.
    pub(super) async fn unless_closed(
        &self,
        caller: &Caller,
        rules: &WorkspaceRules,
        place: &Place,
        refusal: Error,
    ) -> Result<Error, Error> {
        let Place::NamedRoot(name) = place else { return Ok(refusal) };
        let root = self.log.named_root(&rules.place.name, &caller.operator, name).await?;
        Ok(match root {
            Some(root) if root.close_time.is_some() => Error::SessionClosed(root.id),
            Some(_) | None => refusal,
        })
    }

    /// A running worker's place.
    async fn below_worker(
        &self,
        caller: &Caller,
        workspace: &str,
        id: &SessionId,
        root_policy: SpawnPolicy,
    ) -> Result<Below, Error> {
        let not_found = || Error::SessionNotFound(id.to_string());
        let worker = self.log.worker(id).await?.ok_or_else(not_found)?;
        if worker.workspace != workspace || !caller.owns(&worker.operator) {
            return Err(not_found());
        }
        let is_stopping = match self.open.get(id) {
            Some(open) => open.stop_token().is_cancelled(),
            None => false,
        };
        if worker.status != Status::Running || is_stopping {
            return Err(Error::SessionClosed(id.clone()));
        }
        let root = self.log.root(&worker.root).await?.ok_or_else(not_found)?;
        if root.close_time.is_some() {
            return Err(Error::SessionClosed(worker.root));
        }
        let (root_id, dedupe_scope) = (worker.root.clone(), scope_of(caller, &root));
        let spawner = self.spawner_of(worker, root_policy).await?;
        Ok(Below {
            spawner,
            workspace: workspace.to_owned(),
            parent: Parent::Worker(id.clone()),
            parent_id: id.clone(),
            root_id,
            dedupe_scope,
        })
    }

    /// What a recorded worker may do as a parent.
    pub(super) async fn spawner_of(
        &self,
        worker: Worker,
        root_policy: SpawnPolicy,
    ) -> Result<Spawner, Error> {
        let spec = self.spec(&worker.id).await?;
        let spec = spec.ok_or_else(|| Error::SessionNotFound(worker.id.to_string()))?;
        let budget = match worker.is_turn() && worker.status.is_final() {
            // The budget was for the turn that is over.
            true => Budget::default(),
            false => self.budget_left(&worker, &spec).await?,
        };
        let tree_time = match worker.status {
            Status::Running => self.tree_time_left(&worker).await?,
            // Its tree's clock has stopped with it.
            Status::Pending | Status::Completed | Status::Failed | Status::Killed => None,
        };
        let root_policy = root_policy.intersect(&spec.root_spawns);
        Ok(Spawner {
            depth: worker.depth,
            agent: Some(worker.agent),
            own_spawns: Some(spec.definition.spawns),
            policy: worker.spawns.intersect(&root_policy),
            root_policy,
            permission_mode: Some(worker.permission_mode),
            plan_mode: worker.plan_mode,
            model: Some(worker.model),
            thinking: spec.thinking,
            output_schema: spec.output_schema,
            budget,
            tree_time,
        })
    }

    /// The policy of a caller's roots.
    pub(super) fn root_policy(&self, caller: &Caller, rules: &WorkspaceRules) -> SpawnPolicy {
        let configured = rules.limits.root_spawns.policy();
        match &caller.spawns {
            Some(credentials) => configured.intersect(credentials),
            None => configured,
        }
    }

    /// A root session of the caller.
    pub async fn own_root(&self, caller: &Caller, id: &SessionId, workspace: &str) -> Result<Root, Error> {
        self.log
            .root(id)
            .await?
            .filter(|root| root.workspace == workspace && caller.owns(&root.operator))
            .ok_or_else(|| Error::SessionNotFound(id.to_string()))
    }

    /// What a worker's budget leaves for a child.
    async fn budget_left(&self, worker: &Worker, spec: &Spec) -> Result<Budget, Error> {
        let wall_time = match worker.status {
            Status::Running => {
                let elapsed = worker.start_time.map_or(Duration::ZERO, |start| self.clock.since(start));
                let own = elapsed.saturating_sub(self.waited(&worker.id).await?);
                Some(spec.wall_time.saturating_sub(own))
            }
            // One that has ended has no time left to give, and none to take away.
            Status::Pending | Status::Completed | Status::Failed | Status::Killed => None,
        };
        let Some(tokens_max) = spec.tokens_max else {
            return Ok(Budget { wall_time, ..Budget::default() });
        };
        let used = self.tokens_of_tree(worker).await?;
        Ok(Budget { turns: None, tokens: Some(tokens_max.saturating_sub(used)), wall_time, spawns: None })
    }
}

fn new_root(policy: SpawnPolicy, workspace: &str, parent: Parent, dedupe_scope: Option<String>) -> Below {
    // The store puts the root's own id in the place of this one where the root is there already.
    let root_id = SessionId::new_root();
    Below {
        spawner: Spawner::root(policy),
        workspace: workspace.to_owned(),
        parent,
        parent_id: root_id.clone(),
        root_id,
        dedupe_scope,
    }
}

/// An unnamed root is as good as its operator; an anonymous one stands for nobody in particular.
fn scope_of(caller: &Caller, root: &Root) -> Option<String> {
    match (root.caller_root_id.is_empty(), root.agent.is_empty()) {
        (false, _) => Some(named_scope(&root.operator, &root.caller_root_id)),
        (true, false) => Some(format!("root {}", root.id)),
        (true, true) => (!caller.is_anonymous).then(|| format!("operator {}", root.operator)),
    }
}

fn named_scope(operator: &str, caller_root_id: &str) -> String {
    format!("named {operator} {caller_root_id}")
}
