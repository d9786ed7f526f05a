//! Putting the executor together: everything that can be wrong is found before anything is bound.

use std::{collections::BTreeMap, fs, io, path::PathBuf, sync::Arc};

use anyhow::Context as _;
use proto::executor::v1::{
    executor_service_server::ExecutorServiceServer, review_service_server::ReviewServiceServer,
    session_service_server::SessionServiceServer,
};
use service_kit::{
    auth::Authenticator,
    limited,
    server::{Listeners, Server},
    shutdown::Shutdown,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use crate::{
    clock::Clock,
    config::{Config, Workspace},
    gate::Gate,
    grpc::{self, Api},
    kernel::{Inventory, Kernel, WorkspaceRules},
    live::Hub,
    model::provider::Providers,
    open::OpenWorkers,
    registry::Client,
    session::sqlite::Store,
    slots::Slots,
    tool::{self, Tool, mcp::Servers},
    toolbag::{self, Known, class},
};

/// What surrounds a configuration.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Where relative paths in the configuration begin that are not the operator's working directory: scripts.
    pub directory: PathBuf,
    /// The configuration file and those whose text stands in its values, none of which any tool opens.
    pub files: Vec<PathBuf>,
    /// Agents that nobody may spawn, from the environment.
    pub blocked_agents: Vec<String>,
}

/// A configuration that was found to be usable.
pub struct Executor {
    config: Config,
    surroundings: Surroundings,
    providers: Providers,
    client: Client,
    workspaces: BTreeMap<String, WorkspaceRules>,
}

impl Executor {
    /// Checks what only the surroundings can tell: scripts, directories, addresses.
    ///
    /// # Errors
    ///
    /// Every mistake, as the configuration key and what is wrong with it.
    pub fn new(config: Config, surroundings: Surroundings) -> Result<Self, Vec<(String, String)>> {
        let mut mistakes = Vec::new();
        let mut note = |key: &str, message: String| mistakes.push((key.to_owned(), message));
        let client = Client::new(&config.registry, config.registry_token.as_ref())
            .map_err(|error| note("registry", error.to_string()));
        let hidden = hidden(&config, &surroundings).map_err(|error| note("data", error.to_string()));
        let hidden = hidden.unwrap_or_default();
        let mut workspaces = BTreeMap::new();
        for (name, workspace) in &config.workspaces {
            match rules(&config, name, workspace, &hidden) {
                Ok(rules) => {
                    workspaces.insert(name.clone(), rules);
                }
                Err(error) => {
                    let message = format!("`{}`: {error}", workspace.cwd.display());
                    note(&format!("workspaces.{name}.cwd"), message);
                }
            }
        }
        let providers =
            Providers::new(&config.models, &surroundings.directory).map_err(|found| mistakes.extend(found));
        match (client, providers) {
            (Ok(client), Ok(providers)) if mistakes.is_empty() => {
                Ok(Self { config, surroundings, providers, client, workspaces })
            }
            (Ok(_) | Err(()), Ok(_) | Err(())) => Err(mistakes),
        }
    }

    /// Runs the executor on bound listeners until `shutdown` begins and the drain is over.
    ///
    /// # Errors
    ///
    /// Fails where the store or the token cannot be opened.
    pub async fn serve(self, listeners: Listeners, shutdown: Shutdown) -> anyhow::Result<()> {
        let authenticator =
            Authenticator::open(&self.config.data, &self.config.credentials).context("no token")?;
        for key in self.config.without_effect() {
            warn!(key, "this key has no effect in this version");
        }
        let reflection = self.config.offers_reflection();
        let (kernel, store) = self.kernel(shutdown.clone())?;
        let api = Api::new(Arc::clone(&kernel));
        let server = Server::new(grpc::status::DOMAIN, authenticator, proto::DESCRIPTOR_SET, reflection)
            .add(limited!(ExecutorServiceServer::new(api.clone())), grpc::RULES)
            .add(limited!(SessionServiceServer::new(api.clone())), grpc::RULES)
            .add(limited!(ReviewServiceServer::new(api)), grpc::RULES);
        info!(replica = %kernel.replica, "serving");
        kernel.tasks.spawn(tell_unclassified(Arc::clone(&kernel)));

        // The server goes on answering while workers end; it stops when the supervisor is done.
        let ended = CancellationToken::new();
        let supervisor = tokio::spawn({
            let (kernel, ended) = (Arc::clone(&kernel), ended.clone());
            async move {
                let _ended = ended.drop_guard();
                kernel.supervise().await;
            }
        });
        let served = server.run(listeners, shutdown.clone(), ended.cancelled_owned()).await;
        // A drain that was hurried still closes its records before the store goes.
        shutdown.begin();
        supervisor.await.context("the supervisor died")?;
        kernel.mcp.close().await;
        drop(kernel);
        store.close().await;
        served
    }

    fn kernel(self, shutdown: Shutdown) -> anyhow::Result<(Arc<Kernel>, Arc<Store>)> {
        let Self { config, surroundings, providers, client, workspaces } = self;
        let clock = Clock::start();
        let directory = config.data.join("executor");
        let store = Store::open(&directory, Arc::new(move || clock.now()))
            .with_context(|| format!("failed to open the store in `{}`", directory.display()))?;
        let store = Arc::new(store);
        let tools: BTreeMap<String, Arc<dyn Tool>> = tool::builtin::all(&config.tools)
            .into_iter()
            .map(|tool| (tool.spec().name.clone(), tool))
            .collect();
        let kernel = Kernel {
            replica: service_kit::id::new("replica"),
            clock,
            log: Arc::clone(&store) as _,
            queue: Arc::clone(&store) as _,
            proposals: Arc::clone(&store) as _,
            gate: Gate::new(&config.review),
            hub: Hub::default(),
            registry: Arc::new(client),
            models: Arc::new(providers),
            builtin_tools: Inventory { known: known_tools(&config), tools },
            mcp: Servers::start(&config.mcp_servers, &surroundings.directory),
            all_tools: vec!["*".to_owned()],
            workspaces,
            blocked_agents: surroundings.blocked_agents,
            open: OpenWorkers::default(),
            slots: Slots::new(config.limits.max_running),
            shutdown,
            streams: TaskTracker::new(),
            tasks: TaskTracker::new(),
            config,
        };
        Ok((Arc::new(kernel), store))
    }
}

/// Says once which tools of MCP servers have the class that their servers deserve, and not one from the operator's table.
async fn tell_unclassified(kernel: Arc<Kernel>) {
    let inventory = tokio::select! {
        () = kernel.shutdown.begun() => return,
        inventory = kernel.inventory() => inventory,
    };
    let classes = &kernel.config.tools.classes;
    let unclassified = inventory.known.iter().filter(|tool| {
        tool.off.is_none() && !tool.server.is_empty() && class::is_unclassified(classes, &tool.name)
    });
    let names: Vec<&str> = unclassified.map(|tool| tool.name.as_str()).collect();
    if !names.is_empty() {
        info!(tools = names.join(" "), "`tools.classes` says nothing of these tools");
    }
}

/// The tools that come with the executor, in the class that the operator gives it.
fn known_tools(config: &Config) -> Vec<Known> {
    let mut known = toolbag::builtins(config.tools.bash);
    for tool in &mut known {
        tool.class = class::decide(&config.tools.classes, &tool.name, tool.class);
    }
    known
}

/// What no tool opens though it may lie inside a workspace. The data directory is made here: only a path that is there can
/// be compared with others.
fn hidden(config: &Config, surroundings: &Surroundings) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(&config.data)?;
    let mut hidden = vec![fs::canonicalize(&config.data)?];
    let scripts = config.models.providers.values().filter_map(|provider| provider.script.as_ref());
    let scripts = scripts.map(|script| surroundings.directory.join(script));
    let files = surroundings.files.iter().cloned().chain(scripts);
    hidden.extend(files.filter_map(|file| fs::canonicalize(file).ok()));
    Ok(hidden)
}

fn rules(
    config: &Config,
    name: &str,
    workspace: &Workspace,
    hidden: &[PathBuf],
) -> io::Result<WorkspaceRules> {
    let cwd = fs::canonicalize(&workspace.cwd)?;
    if !cwd.is_dir() {
        return Err(io::Error::other("it is no directory"));
    }
    let frozen = config.tools.frozen.iter().map(|path| cwd.join(path)).collect();
    Ok(WorkspaceRules {
        limits: config.limits.with(&workspace.limits),
        overrides: workspace.limits.clone(),
        coordinator: workspace.coordinator.clone(),
        place: Arc::new(tool::Workspace {
            name: name.to_owned(),
            cwd,
            hidden: hidden.to_vec(),
            frozen,
            read_deny: config.tools.read_deny.clone(),
            gitignore: config.tools.gitignore,
        }),
    })
}
