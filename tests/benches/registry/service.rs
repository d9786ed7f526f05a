//! The registry under test, a process of its own, put together as its program does it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Instant,
};

use proto::registry::v1::registry_service_client::RegistryServiceClient;
use registry_svc::config::{Config, WorkspaceConfig};
use service_kit::{server::Listeners, shutdown::Shutdown, telemetry};
use tests::bench::{self, Part};
use tonic::transport::Channel;

/// The family whose directory the definitions lie in, so that the peer finds the same files.
const FAMILY: &str = ".omp";

/// A running registry over a project.
pub(crate) struct Registry {
    pub(crate) part: Part,
    pub(crate) address: String,
    pub(crate) client: RegistryServiceClient<Channel>,
}

/// Where a project keeps its definitions.
pub(crate) fn agents(project: &Path) -> PathBuf {
    project.join(FAMILY).join("agents")
}

impl Registry {
    /// Starts one over the project of a directory, and waits until it serves.
    pub(crate) async fn start(directory: &Path) -> Self {
        let mut part = Part::start("registry", &[path(directory)]);
        let address = part.line();
        let channel = Channel::from_shared(format!("http://{address}")).expect("an address is a URL");
        let client = RegistryServiceClient::new(channel.connect().await.expect("the part listens"))
            .max_decoding_message_size(64 << 20);
        Self { part, address, client }
    }
}

/// The part that is the registry.
pub(crate) async fn registry(arguments: &[String]) {
    let [directory] = arguments else { panic!("a directory") };
    telemetry::init(Some("warn")).expect("nothing logs yet");
    let directory = Path::new(directory);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = Config {
        listen: any,
        admin: any,
        data: directory.join("var"),
        workspaces: [("default".to_owned(), workspace(&directory.join("project")))].into(),
        ..Config::default()
    };
    let listeners = Listeners::bind(any, any).await.expect("free ports");
    bench::announce(&listeners.grpc.local_addr().expect("a bound address").to_string());
    registry_svc::serve(config, listeners, Shutdown::new()).await.expect("the registry serves");
}

/// The part that reads a project's definitions from nothing, so many times, and tells milliseconds of each time.
pub(crate) async fn load(arguments: &[String]) {
    let [project, times] = arguments else { panic!("a project and a count") };
    let config = workspace(Path::new(project));
    let mut took = Vec::new();
    for _ in 0..times.parse().expect("a count") {
        let began = Instant::now();
        let snapshot = registry_svc::read_sources("default", &config).await.expect("the sources can be read");
        took.push(format!("{:.3}", began.elapsed().as_secs_f64() * 1e3));
        assert!(snapshot.in_force().len() > 1_000, "the definitions are in force");
    }
    bench::announce(&took.join(" "));
}

/// A directory as an argument.
pub(crate) fn path(directory: &Path) -> &str {
    directory.to_str().expect("a path of text")
}

fn workspace(project: &Path) -> WorkspaceConfig {
    WorkspaceConfig {
        cwd: project.to_owned(),
        home: None,
        families: vec![FAMILY.to_owned()],
        ..WorkspaceConfig::default()
    }
}
