//! The pair under test, each service a process of its own, put together as its program does it.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use executor_svc::{Executor, Surroundings, limits::Bound, model::config::Kind, model::config::Provider};
use proto::executor::v1::{
    GetLimitsRequest, SpawnRequest, SpawnResponse, executor_service_client::ExecutorServiceClient,
};
use service_kit::{server::Listeners, shutdown::Shutdown, telemetry};
use tempfile::TempDir;
use tests::{
    bench::{self, Part},
    repository,
};
use tonic::{Status, transport::Channel};

/// More workers than a benchmark ever has at once.
const WORKERS_MAX: u64 = 20_000;

/// A sentence of the system prompt, repeated to the length of a short real one.
const SENTENCE: &str = "You review the change you are given. Say what is wrong, where, and why. ";
const SENTENCES: usize = 10;

/// A registry and an executor with three agents: `plain` and `child` answer at once, `parent` asks `child` first.
pub(crate) struct Pair {
    pub(crate) executor: Part,
    address: String,
    _registry: Part,
    _directory: TempDir,
}

/// The system prompt of every agent and of every floor.
pub(crate) fn instructions() -> String {
    SENTENCE.repeat(SENTENCES)
}

impl Pair {
    /// Starts both beside a model at this address.
    pub(crate) async fn start(model: &str) -> Self {
        // Beside the build, and not where temporary files are kept: that may be memory, which has no wait for the disk.
        let directory = tempfile::tempdir_in(repository::root().join("target")).expect("a directory");
        let project = directory.path().join("project");
        let agents = project.join(".claude/agents");
        fs::create_dir_all(&agents).expect("a directory for agents");
        fs::create_dir_all(project.join(".git")).expect("a project");
        for (name, keys) in
            [("plain", "tools: []"), ("child", "tools: []"), ("parent", "tools: [task]\nspawns: [child]")]
        {
            let text = format!("---\nname: {name}\ndescription: Made for a benchmark.\n{keys}\n---\n");
            fs::write(agents.join(format!("{name}.md")), text + &instructions()).expect("an agent");
        }
        let path = directory.path().to_str().expect("a path of text");
        let mut registry = Part::start("registry", &[path]);
        let registry_address = registry.line();
        let mut executor = Part::start("executor", &[path, &registry_address, model]);
        let address = executor.line();
        let pair = Self { executor, address, _registry: registry, _directory: directory };
        let mut client = pair.client().await;
        client.get_limits(GetLimitsRequest::default()).await.expect("the executor serves");
        pair
    }

    /// A connection of its own.
    pub(crate) async fn client(&self) -> ExecutorServiceClient<Channel> {
        ExecutorServiceClient::new(channel(&self.address).await)
    }
}

/// A connection to a part.
pub(crate) async fn channel(address: &str) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address is a URL");
    endpoint.tcp_nodelay(true).connect().await.expect("the part listens")
}

/// Spawns and waits for the end, which has to be a good one.
pub(crate) async fn spawn(
    client: &mut ExecutorServiceClient<Channel>,
    request: SpawnRequest,
) -> Result<SpawnResponse, Status> {
    let response = client.spawn(request).await?.into_inner();
    let worker = response.worker.as_ref().expect("an answer has a worker");
    assert!(worker.result == crate::mock::ANSWER || worker.background, "a run ended otherwise: {worker:?}");
    Ok(response)
}

/// The part that is the registry.
pub(crate) async fn registry(arguments: Vec<String>) {
    let [directory] = <[String; 1]>::try_from(arguments).expect("a directory");
    telemetry::init(None).expect("nothing logs yet");
    let directory = Path::new(&directory);
    let workspace = registry_svc::config::WorkspaceConfig {
        cwd: directory.join("project"),
        home: None,
        ..registry_svc::config::WorkspaceConfig::default()
    };
    let config = registry_svc::config::Config {
        listen: any(),
        admin: any(),
        data: directory.join("var"),
        workspaces: [("default".to_owned(), workspace)].into(),
        ..registry_svc::config::Config::default()
    };
    let listeners = listen().await;
    registry_svc::serve(config, listeners, Shutdown::new()).await.expect("the registry serves");
}

/// The part that is the executor.
pub(crate) async fn executor(arguments: Vec<String>) {
    let [directory, registry, model] = <[String; 3]>::try_from(arguments).expect("where and with whom");
    telemetry::init(None).expect("nothing logs yet");
    let directory = PathBuf::from(directory);
    let mut provider = Provider::new(Kind::Openai);
    provider.base_url = Some(format!("http://{model}/v1"));
    provider.max_concurrent = u32::try_from(WORKERS_MAX).expect("a small number");
    let mut config = executor_svc::Config {
        listen: any(),
        admin: any(),
        data: directory.join("var"),
        registry: format!("http://{registry}"),
        ..executor_svc::Config::default()
    };
    config.models.default = Some("local/model".to_owned());
    config.models.providers.insert("local".to_owned(), provider);
    let workspace = config.workspaces.get_mut("default").expect("the default configuration has it");
    workspace.cwd = directory.join("project");
    config.limits.max_running = Bound::Of(WORKERS_MAX);
    config.limits.max_open = Bound::Of(WORKERS_MAX);
    config.limits.queue_length = Bound::Of(WORKERS_MAX);
    config.limits.max_spawns_per_tree = Bound::Unlimited;

    let surroundings = Surroundings { directory, files: Vec::new(), blocked_agents: Vec::new() };
    let executor = match Executor::new(config, surroundings) {
        Ok(executor) => executor,
        Err(mistakes) => panic!("the configuration is not usable: {mistakes:?}"),
    };
    executor.serve(listen().await, Shutdown::new()).await.expect("the executor serves");
}

async fn listen() -> Listeners {
    let listeners = Listeners::bind(any(), any()).await.expect("free ports");
    bench::announce(&listeners.grpc.local_addr().expect("a bound address").to_string());
    listeners
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
