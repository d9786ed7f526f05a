//! What every part of the executor's core works with: the store, the outside, the limits and the open workers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use service_kit::shutdown::Shutdown;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::{
    clock::Clock,
    config::{Config, DEFAULT_WORKSPACE},
    definition::SpawnPolicy,
    error::Error,
    gate::Gate,
    limits::{Limits, Overrides},
    live::Hub,
    model::provider::{NoModel, Providers, Resolved, Wishes},
    open::OpenWorkers,
    registry::{Catalog, LookupError, Registry},
    session::{Log, Proposals, Queue, StoreError},
    slots::Slots,
    tool::{Tool, Workspace, mcp::Servers},
    toolbag::{Known, class},
    worker::{SessionId, Status, Worker},
};

/// Most sessions of a tree that a budget is summed over.
pub const TREE_SIZE_MAX: usize = 10_000;

/// The executor's core. One a replica, shared by everything that runs.
pub struct Kernel {
    pub config: Config,
    pub replica: String,
    pub clock: Clock,
    pub log: Arc<dyn Log>,
    pub queue: Arc<dyn Queue>,
    pub proposals: Arc<dyn Proposals>,
    pub gate: Gate,
    pub hub: Hub,
    pub registry: Arc<dyn Registry>,
    pub models: Arc<dyn Models>,
    /// The tools that come with the executor, with their class after the operator's table.
    pub builtin_tools: Inventory,
    /// Servers of further tools.
    pub mcp: Servers,
    /// The pattern that stands for every tool.
    pub all_tools: Vec<String>,
    pub workspaces: BTreeMap<String, WorkspaceRules>,
    /// From the environment: agents that nobody may spawn.
    pub blocked_agents: Vec<String>,
    pub open: OpenWorkers,
    pub slots: Slots,
    pub shutdown: Shutdown,
    /// Streams that answer a spawn: they see their worker's end before the service stops.
    pub streams: TaskTracker,
    /// Short tasks that outlive the call that began them. Awaited before the process ends.
    pub tasks: TaskTracker,
}

/// The tools there are at one moment.
#[derive(Clone, Default)]
pub struct Inventory {
    /// Every tool, with its class after the operator's table.
    pub known: Vec<Known>,
    /// Those that are more than a name.
    pub tools: BTreeMap<String, Arc<dyn Tool>>,
}

/// One workspace as the operator configured it.
#[derive(Clone, Debug)]
pub struct WorkspaceRules {
    pub limits: Limits,
    pub overrides: Overrides,
    pub coordinator: String,
    /// Where the built-in tools may look.
    pub place: Arc<Workspace>,
}

/// The models there are.
pub trait Models: Send + Sync + 'static {
    /// The model for a worker.
    ///
    /// # Errors
    ///
    /// [`NoModel`] with what was tried.
    fn resolve(&self, wishes: Wishes<'_>) -> Result<Resolved, NoModel>;
}

impl Models for Providers {
    fn resolve(&self, wishes: Wishes<'_>) -> Result<Resolved, NoModel> {
        Providers::resolve(self, wishes)
    }
}

impl Kernel {
    /// The limits of a worker's workspace; those of the configuration where the workspace is gone.
    pub fn limits_of(&self, workspace: &str) -> &Limits {
        self.workspaces.get(workspace).map_or(&self.config.limits, |rules| &rules.limits)
    }

    /// Where the tools of a workspace may look.
    ///
    /// # Panics
    ///
    /// Never for a recorded worker: a workspace that is gone from the configuration is served by the default one.
    pub fn place(&self, workspace: &str) -> Arc<Workspace> {
        let rules = self.workspaces.get(workspace).or_else(|| self.workspaces.get(DEFAULT_WORKSPACE));
        Arc::clone(&rules.expect("the configuration has a default workspace").place)
    }

    /// The tools there are now. Waits for servers that were never tried yet.
    pub async fn inventory(&self) -> Inventory {
        let mut inventory = self.builtin_tools.clone();
        for (mut known, tool) in self.mcp.tools().await {
            known.class = class::decide(&self.config.tools.classes, &known.name, known.class);
            if let Some(tool) = tool {
                inventory.tools.insert(known.name.clone(), tool);
            }
            inventory.known.push(known);
        }
        inventory
    }

    /// The agents that a session may be told of, and how many more there are.
    pub async fn offered(
        &self,
        workspace: &str,
        policy: &SpawnPolicy,
        deadline: Option<Instant>,
    ) -> Result<(Catalog, u32), LookupError> {
        let mut catalog = self.registry.catalog(workspace, policy, deadline).await?;
        if let Some(rules) = self.workspaces.get(workspace) {
            let admission = self.rules(rules);
            catalog.entries.retain(|entry| admission.is_offered(policy, &entry.name));
        }
        let omitted = u32::try_from(catalog.omitted).unwrap_or(u32::MAX);
        Ok((catalog, omitted))
    }

    /// An error as a model is told of it: causes of our own are not its business.
    pub fn told(&self, error: &Error) -> String {
        match error {
            Error::Store(_) | Error::Defect(_) => {
                tracing::error!(error = %service_kit::status::chain(error), "a spawn below a worker failed");
                "the executor failed to dispatch the agent".to_owned()
            }
            other => other.to_string(),
        }
    }

    /// True where a script answers for a model.
    pub fn is_rehearsal(&self, model: &str) -> bool {
        let wishes = Wishes { request: model, patterns: &[], parent: "" };
        self.models.resolve(wishes).is_ok_and(|resolved| resolved.is_rehearsal)
    }

    /// How far back the limits of a tree count: to the beginning of its coordinator's turn, or over the window that slides.
    pub fn window(&self, root: &SessionId, limits: &Limits) -> Duration {
        /// What was accepted in the same millisecond counts.
        const GRAIN: Duration = Duration::from_millis(1);

        let turn = self.open.get(root).and_then(|turn| turn.tree_began());
        turn.map_or(limits.tree_window.0, |began| self.clock.since(began) + GRAIN)
    }

    /// Tokens of the workers below a root that were accepted inside a window.
    pub async fn tokens_below_root(&self, root: &SessionId, window: Duration) -> Result<u64, StoreError> {
        let mut below = self.log.descendants(root, TREE_SIZE_MAX).await?;
        if self.open.get(root).is_some() {
            // The coordinator's own turn counts with what is below it.
            below.extend(self.log.worker(root).await?);
        }
        let recent = below.iter().filter(|worker| self.clock.since(worker.create_time) < window);
        Ok(recent.map(|worker| worker.usage.tokens()).sum())
    }

    /// What is left of the wall time of a running worker's tree: counted from the start of the topmost worker above it that
    /// still runs, or of itself. Absent without a limit.
    pub async fn tree_time_left(&self, worker: &Worker) -> Result<Option<Duration>, StoreError> {
        let Some(limit) = self.limits_of(&worker.workspace).tree_wall_time.duration() else {
            return Ok(None);
        };
        let mut began = worker.start_time.unwrap_or_else(|| self.clock.now());
        let mut above = worker.parent.clone();
        // A caller's own root is no part of the tree, and open is only the root of a coordinator whose turn runs.
        while above != worker.id && (above.is_worker() || self.open.get(&above).is_some()) {
            if let Some(known) = self.open.get(&above).and_then(|open| open.tree_began()) {
                began = known;
                break;
            }
            match self.log.worker(&above).await? {
                Some(parent) if parent.status == Status::Running => {
                    began = parent.start_time.unwrap_or(began);
                    if parent.is_turn() {
                        break;
                    }
                    above = parent.parent;
                }
                Some(_) | None => break,
            }
        }
        if let Some(open) = self.open.get(&worker.id) {
            open.set_tree_began(began);
        }
        Ok(Some(limit.saturating_sub(self.clock.since(began))))
    }

    /// Tokens of a worker and of everything below it; of a coordinator in its last turn.
    pub async fn tokens_of_tree(&self, worker: &Worker) -> Result<u64, StoreError> {
        let mut below = self.log.descendants(&worker.id, TREE_SIZE_MAX).await?;
        below.retain(|child| child.create_time >= worker.create_time);
        Ok(below.iter().chain([worker]).map(|worker| worker.usage.tokens()).sum())
    }
}
