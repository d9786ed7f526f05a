//! A server that runs as a child: no shell, an environment of its own, a process group of its own, and nothing left of it.

use std::{io, path::Path, process::Stdio, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinSet,
    time::timeout,
};
use uuid::Uuid;

use super::config::Server;
use crate::tool::leftovers::Leftovers;

/// Where programs are looked for, unless the server's `env` says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long a server may take to end after its input has ended, and again after SIGTERM. With the time that the protocol
/// has to close, it is gone within 5 s.
const END_TIME: Duration = Duration::from_millis(1_500);

/// How much of what a server writes to its standard error is kept: the end, where it says why it failed.
const COMPLAINT_MAX: usize = 2 * 1024;

/// A running server. Dropping it kills all of it at once.
pub(super) struct Process {
    child: Child,
    leftovers: Leftovers,
    complaint: Arc<Mutex<Vec<u8>>>,
    /// Reads the standard error for as long as the process is there.
    drain: JoinSet<()>,
}

impl Process {
    /// Starts a server with a pipe to its input and from its output.
    pub(super) fn start(server: &Server, directory: &Path) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let (program, arguments) = server.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mark = Uuid::now_v7().to_string();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(directory)
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .envs(server.env.iter().map(|(name, value)| (name, value.expose())))
            .env("ROSTER_MCP_SERVER", &mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let leftovers = Leftovers::new(child.id(), format!("ROSTER_MCP_SERVER={mark}"));
        let complaint = Arc::new(Mutex::new(Vec::new()));
        let mut drain = JoinSet::new();
        let (input, output) = (child.stdin.take(), child.stdout.take());
        if let Some(errors) = child.stderr.take() {
            drain.spawn(listen(errors, Arc::clone(&complaint)));
        }
        let output = output.expect("its output is piped");
        let input = input.expect("its input is piped");
        Ok((Self { child, leftovers, complaint, drain }, output, input))
    }

    /// Resolves when the process has ended.
    pub(super) async fn ended(&mut self) {
        let _ = self.child.wait().await;
    }

    /// The last words on its standard error.
    pub(super) fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.complaint.lock()).trim().to_owned()
    }

    /// Ends the server, whose input has ended: it gets time to go, is told to, and is killed with all it started.
    pub(super) async fn end(self) {
        let Self { mut child, leftovers, drain, .. } = self;
        if timeout(END_TIME, child.wait()).await.is_err() {
            if let Some(group) = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
                let _ = kill_process_group(group, Signal::TERM);
            }
            let _ = timeout(END_TIME, child.wait()).await;
        }
        drop(leftovers);
        // Killed, so there is nothing to wait for but its entry in the table of processes.
        let _ = timeout(END_TIME, child.wait()).await;
        drop(drain);
    }
}

/// Reads everything, so that the server never waits for a reader, and keeps the end.
async fn listen(mut errors: impl AsyncRead + Unpin, complaint: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; COMPLAINT_MAX];
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        tracing::trace!(text = %String::from_utf8_lossy(&buffer[..count]), "an MCP server wrote to its standard error");
        let mut kept = complaint.lock();
        kept.extend_from_slice(&buffer[..count]);
        let surplus = kept.len().saturating_sub(COMPLAINT_MAX);
        kept.drain(..surplus);
    }
}
