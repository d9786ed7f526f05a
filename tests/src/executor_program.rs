//! The executor as a program of its own: it can be killed and started again.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{ExitStatus, Stdio},
};

use proto::executor::v1::executor_service_client::ExecutorServiceClient;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use tonic::transport::Channel;

use crate::{program::without_configuration, registry::Registry, repository};

/// A running executor over `var` of a directory, whose models follow `script.yaml`. It is killed when it is dropped.
#[derive(Debug)]
pub struct Program {
    /// Calls without credentials.
    pub client: ExecutorServiceClient<Channel>,
    pub channel: Channel,
    child: Child,
}

impl Program {
    pub async fn start(registry: &Registry, directory: &Path) -> Self {
        Self::start_with(registry, directory, "{}").await
    }

    /// The same, with a configuration file of this content.
    pub async fn start_with(registry: &Registry, directory: &Path, config: &str) -> Self {
        fs::write(directory.join("executor.yaml"), config).expect("the configuration is written");
        let mut command = std::process::Command::new(repository::programs().join("executor-svc"));
        without_configuration(&mut command);
        let mut child = Command::from(command)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"])
            .arg(directory.join("executor.yaml"))
            .arg("--registry")
            .arg(format!("http://{}", registry.address))
            .arg("--data")
            .arg(directory.join("var"))
            .arg("--rehearsal")
            .arg(directory.join("script.yaml"))
            .env("ROSTER_WORKSPACES__DEFAULT__CWD", registry.project(""))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let stdout = child.stdout.take().expect("it is piped");
        let line = BufReader::new(stdout).lines().next_line().await.expect("readable").expect("a first line");
        let address: SocketAddr = line
            .strip_prefix("listening grpc=")
            .and_then(|rest| rest.split(' ').next()?.parse().ok())
            .unwrap_or_else(|| panic!("an announcement, not `{line}`"));
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("a URL");
        let channel = endpoint.connect().await.expect("it is bound");
        Self { client: ExecutorServiceClient::new(channel.clone()), channel, child }
    }

    /// Ends it by `kill -9`.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("it runs until it is killed");
    }

    /// Drains it.
    pub async fn terminate(mut self) -> ExitStatus {
        let id = self.child.id().expect("it runs");
        repository::run(std::process::Command::new("kill").args(["-TERM", &id.to_string()]));
        self.child.wait().await.expect("it ends")
    }
}
