//! Stand-ins for what lies outside of the core, all in memory, so that tests own the clock.

mod log;
mod model;
mod registry;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use service_kit::shutdown::Shutdown;
use tokio_util::task::TaskTracker;

pub(crate) use self::{
    log::{MemoryLog, Trouble},
    model::{Acting, Scripted, Step, calls, text},
    registry::{Agents, Reviewer, definition},
};
use crate::{
    admission::Budget,
    clock::Clock,
    config::Config,
    dispatch::{ANONYMOUS, Call, Caller, Place},
    gate::Gate,
    kernel::{Inventory, Kernel, Models, WorkspaceRules},
    limits::Overrides,
    live::Hub,
    open::OpenWorkers,
    registry::Registry,
    session::{Log, Proposals, Queue},
    slots::Slots,
    tool::{Tool, Workspace, mcp::Servers},
    toolbag,
};

/// A kernel over stand-ins, with what a test looks at.
pub(crate) struct Fixture {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) model: Arc<Scripted>,
    pub(crate) shutdown: Shutdown,
    core: Core,
}

/// A kernel and its supervisor.
pub(crate) struct Core {
    pub(crate) kernel: Arc<Kernel>,
    supervisor: tokio::task::JoinHandle<()>,
}

/// Time that stands still but for `advance`: work of other threads would let the paused clock run on by itself.
pub(crate) struct Standstill {
    _until_dropped: std::sync::mpsc::Sender<()>,
    _held: tokio::task::JoinHandle<()>,
}

/// What a test may change around the kernel.
#[derive(Default)]
pub(crate) struct Surroundings {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) reviewer: Reviewer,
    /// Whoever asks for a parent's model gets one that rehearses.
    pub(crate) rehearses_below: bool,
}

impl Standstill {
    pub(crate) fn begin() -> Self {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        // A paused clock does not move by itself while a blocking task runs.
        let held = tokio::task::spawn_blocking(move || {
            let _ = receiver.recv();
        });
        Self { _until_dropped: sender, _held: held }
    }
}

impl Fixture {
    pub(crate) fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::with(Config::default(), Arc::new(MemoryLog::default()), steps)
    }

    /// A kernel over a log that may hold workers already.
    pub(crate) fn with(config: Config, log: Arc<MemoryLog>, steps: impl IntoIterator<Item = Step>) -> Self {
        Self::among(config, log, Surroundings::default(), steps)
    }

    /// The same among other surroundings.
    pub(crate) fn among(
        config: Config,
        log: Arc<MemoryLog>,
        surroundings: Surroundings,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        let Surroundings { tools, reviewer, rehearses_below } = surroundings;
        let model = Arc::new(Scripted::new(steps, rehearses_below));
        let registry = Arc::new(registry::OneAgent { reviewer });
        let (models, clock) = (Arc::new(Arc::clone(&model)), Clock::start());
        let core = Core::start(config, clock, Arc::clone(&log), registry, models, tools);
        let (kernel, shutdown) = (Arc::clone(&core.kernel), core.kernel.shutdown.clone());
        Self { kernel, log, model, shutdown, core }
    }

    /// Drains, waits for the supervisor, and checks that the whole script was used.
    pub(crate) async fn end(self) {
        self.core.end().await;
        self.model.finish();
    }
}

impl Core {
    pub(crate) fn start<S>(
        config: Config,
        clock: Clock,
        store: Arc<S>,
        registry: Arc<dyn Registry>,
        models: Arc<dyn Models>,
        tools: Vec<Arc<dyn Tool>>,
    ) -> Self
    where
        S: Log + Queue + Proposals,
    {
        let workspace = WorkspaceRules {
            limits: config.limits.clone(),
            overrides: Overrides::default(),
            coordinator: "default".to_owned(),
            place: Arc::new(Workspace {
                name: "default".to_owned(),
                cwd: PathBuf::from("/nowhere"),
                hidden: Vec::new(),
                frozen: Vec::new(),
                read_deny: Vec::new(),
                gitignore: true,
            }),
        };
        let kernel = Arc::new(Kernel {
            replica: "replica-test".to_owned(),
            clock,
            log: Arc::clone(&store) as _,
            queue: Arc::clone(&store) as _,
            proposals: store as _,
            gate: Gate::new(&config.review),
            hub: Hub::default(),
            registry,
            models,
            builtin_tools: Inventory {
                known: toolbag::builtins(false),
                tools: tools.into_iter().map(|tool| (tool.spec().name.clone(), tool)).collect(),
            },
            mcp: Servers::start(&BTreeMap::new(), Path::new("/nowhere")),
            all_tools: vec!["*".to_owned()],
            workspaces: [("default".to_owned(), workspace)].into(),
            blocked_agents: Vec::new(),
            open: OpenWorkers::default(),
            slots: Slots::new(config.limits.max_running),
            shutdown: Shutdown::new(),
            streams: TaskTracker::new(),
            tasks: TaskTracker::new(),
            config,
        });
        let supervisor = tokio::spawn(Arc::clone(&kernel).supervise());
        Self { kernel, supervisor }
    }

    /// Drains and waits for the supervisor.
    pub(crate) async fn end(self) {
        self.kernel.shutdown.begin();
        self.supervisor.await.expect("the supervisor does not panic");
    }
}

/// A caller without credentials.
pub(crate) fn anybody() -> Caller {
    Caller {
        operator: ANONYMOUS.to_owned(),
        is_anonymous: true,
        owns_all: false,
        reads_all: false,
        reads_records: false,
        spawns: None,
        workspaces: Vec::new(),
    }
}

/// A spawn with nothing but what is required.
pub(crate) fn call(prompt: &str) -> Call {
    Call {
        workspace: "default".to_owned(),
        agent: "task".to_owned(),
        description: String::new(),
        prompt: prompt.to_owned(),
        place: Place::UnnamedRoot,
        output_schema: None,
        schema_is_permissive: false,
        background: false,
        plan_mode: false,
        bypass_dedupe: false,
        budget: Budget::default(),
        model: None,
        request: None,
        labels: BTreeMap::new(),
        locale: String::new(),
        deadline: None,
    }
}
