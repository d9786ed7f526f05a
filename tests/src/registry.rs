//! A registry of one's own: its directory, its ports, its end.

use std::{fs, net::SocketAddr, path::PathBuf};

use proto::registry::v1::{
    ByNameRequest, ByNameResponse, ListRequest, registry_service_client::RegistryServiceClient,
};
use registry_svc::config::{Config, WorkspaceConfig};
use service_kit::{
    client::{self, Connection},
    server::Listeners,
    shutdown::Shutdown,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tonic::{Status, transport::Channel};

/// A running registry. Dropping it without [`Registry::stop`] leaves its end to the runtime.
pub struct Registry {
    /// Holds `project` (with an empty `.git`), the project that the workspace looks at, and `var`, the data.
    pub directory: TempDir,
    pub address: SocketAddr,
    pub admin: SocketAddr,
    /// Calls without credentials.
    pub client: RegistryServiceClient<Channel>,
    pub shutdown: Shutdown,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Registry {
    /// A registry over an empty project and the bundled definitions.
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// The same, after `change` has seen its configuration.
    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(directory.path().join("project/.git")).expect("a project");
        Self::start_in(directory, change).await
    }

    /// The same in a directory of the test's.
    pub async fn start_in(directory: TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let workspace = WorkspaceConfig {
            cwd: directory.path().join("project"),
            home: None,
            ..WorkspaceConfig::default()
        };
        let mut config = Config {
            listen: any,
            admin: any,
            data: directory.path().join("var"),
            workspaces: [("default".to_owned(), workspace)].into(),
            ..Config::default()
        };
        change(&mut config);

        let listeners = Listeners::bind(config.listen, config.admin).await.expect("free ports");
        let address = listeners.grpc.local_addr().expect("a bound address");
        let admin = listeners.admin.local_addr().expect("a bound address");
        let shutdown = Shutdown::new();
        let mut task = tokio::spawn(registry_svc::serve(config, listeners, shutdown.clone()));
        let channel = tokio::select! {
            channel = connect(address) => channel,
            ended = &mut task => panic!("the registry does not start: {ended:?}"),
        };
        let mut client = RegistryServiceClient::new(channel);
        // Whatever the answer: it comes once the sources are read, so that what a test writes from here on is a change.
        let _ = client.list(ListRequest { page_size: 1, ..ListRequest::default() }).await;
        Self { directory, address, admin, client, shutdown, task }
    }

    /// A connection of its own, without credentials.
    pub async fn channel(&self) -> Channel {
        connect(self.address).await
    }

    /// Calls with the token of the data directory.
    pub async fn administrator(&self) -> RegistryServiceClient<Connection> {
        let connection = client::connect(&self.address.to_string(), &self.directory.path().join("var"))
            .await
            .expect("the registry answers");
        RegistryServiceClient::new(connection)
    }

    /// A place inside the project.
    pub fn project(&self, path: &str) -> PathBuf {
        self.directory.path().join("project").join(path)
    }

    /// Writes a file of the project.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.project(path);
        fs::create_dir_all(path.parent().expect("a file has a directory")).expect("the directory is made");
        fs::write(path, text).expect("the file is written");
    }

    pub async fn by_name(&mut self, name: &str) -> Result<ByNameResponse, Status> {
        let request = ByNameRequest { workspace: String::new(), name: name.to_owned() };
        self.client.by_name(request).await.map(tonic::Response::into_inner)
    }

    /// Drains and waits for the end. Answers the directory, for another start on it.
    pub async fn stop(self) -> TempDir {
        let Self { directory, address: _, admin: _, client, shutdown, task } = self;
        drop(client);
        shutdown.begin();
        task.await.expect("the service does not panic").expect("the service ends well");
        directory
    }
}

async fn connect(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}"))
        .expect("an address is a URL")
        .connect()
        .await
        .expect("the listener is bound, so connecting waits for the service")
}

/// A document that can be used.
pub fn document(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: Made for a test.\n---\n{body}\n")
}
