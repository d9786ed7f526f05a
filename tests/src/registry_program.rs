//! The registry as a program of its own: it can be killed, and its log can be read.

use std::{
    fs::{self, File},
    net::SocketAddr,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use proto::registry::v1::{ByNameRequest, registry_service_client::RegistryServiceClient};
use rustix::process::Signal;
use service_kit::client::{self, Connection};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdout, Command},
};
use tonic::transport::Channel;

use crate::{failpoint::Failpoint, program::without_configuration, repository};

/// A running registry over `project` and `var` of a directory. It is killed when it is dropped.
#[derive(Debug)]
pub struct Program {
    pub address: SocketAddr,
    /// Calls with the token of the data directory.
    pub client: RegistryServiceClient<Connection>,
    /// From its start to its first answer.
    pub ready_in: Duration,
    child: Child,
    /// Kept open, so that it could go on printing.
    _stdout: BufReader<ChildStdout>,
}

/// A directory with an empty project, for [`Program::start`].
pub fn directory() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir_all(directory.path().join("project/.git")).expect("a project");
    fs::create_dir_all(directory.path().join("home")).expect("a home");
    directory
}

/// What the programs in this directory have logged so far, warnings and errors only.
pub fn log(directory: &Path) -> String {
    fs::read_to_string(log_file(directory)).unwrap_or_default()
}

/// From now on a process in this directory ends itself where it is told to.
pub fn arm(directory: &Path) {
    fs::write(armed_file(directory), "").expect("the disk works");
}

pub fn disarm(directory: &Path) {
    fs::remove_file(armed_file(directory)).expect("it was armed");
}

/// There while failpoints count.
pub fn armed_file(directory: &Path) -> PathBuf {
    directory.join("armed")
}

impl Program {
    /// Starts it and waits for its first answer.
    pub async fn start(directory: &Path) -> Self {
        let mut command = std::process::Command::new(repository::programs().join("registry-svc"));
        command.arg("serve");
        for (flag, place) in [("--data", "var"), ("--cwd", "project"), ("--home", "home")] {
            command.arg(flag).arg(directory.join(place));
        }
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        Self::run(directory, command).await
    }

    /// The same service, which ends itself at a place of its writes.
    pub async fn start_with(directory: &Path, failpoint: Failpoint) -> Self {
        let mut command = std::process::Command::new(repository::programs().join("registry-failpoint"));
        command.arg(directory).arg(failpoint.to_string());
        Self::run(directory, command).await
    }

    async fn run(directory: &Path, mut command: std::process::Command) -> Self {
        let log = File::options().append(true).create(true).open(log_file(directory)).expect("a log");
        without_configuration(&mut command);
        let mut command = Command::from(command);
        let started = Instant::now();
        let mut child = command
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).await.expect("readable");
        let address: SocketAddr = line
            .strip_prefix("listening grpc=")
            .and_then(|rest| rest.split(' ').next()?.parse().ok())
            .unwrap_or_else(|| panic!("an announcement, not `{line}`:\n{}", self::log(directory)));

        // The token is there once the service answers.
        let channel = Channel::from_shared(format!("http://{address}")).expect("a URL");
        let mut client = RegistryServiceClient::new(channel.connect().await.expect("it is bound"));
        let request = ByNameRequest { workspace: String::new(), name: "explore".to_owned() };
        let answer = client.by_name(request).await;
        answer.unwrap_or_else(|status| panic!("no answer: {status}\n{}", self::log(directory)));
        let ready_in = started.elapsed();
        let connection = client::connect(&address.to_string(), &directory.join("var")).await;
        let client = RegistryServiceClient::new(connection.expect("it answers"));
        Self { address, client, ready_in, child, _stdout: stdout }
    }

    /// Ends it by `kill -9`.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it runs until it is killed");
    }

    /// Waits until it has ended itself, by the same signal.
    pub async fn killed(mut self) {
        let status = self.child.wait().await.expect("a child can be waited for");
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{status}");
    }
}

fn log_file(directory: &Path) -> PathBuf {
    directory.join("log")
}
