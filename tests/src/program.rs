//! A program of the repository that runs beside a test and is ended with it.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use crate::repository;

/// Longer than anything that a test waits for takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Lines of output that nobody has looked at yet. A program that prints more waits for its reader.
const LINES_MAX: usize = 4096;

/// A running program whose two outputs are read as lines, in the order in which they came.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

/// `deploy/up` with the programs that were built beside the tests, on free ports, and without what the machine has configured.
pub fn deploy_up(data: &std::path::Path) -> Command {
    let mut command = Command::new("deploy/up");
    command.args(["--free-ports", "--data"]).arg(data).arg("--binaries").arg(repository::programs());
    without_configuration(&mut command);
    command
}

/// Takes away from a command what would configure it by the environment.
pub fn without_configuration(command: &mut Command) {
    for (name, _) in std::env::vars() {
        if name.starts_with("ROSTER") || name.ends_with("_API_KEY") {
            command.env_remove(name);
        }
    }
}

impl Running {
    /// Starts a command at the repository's root.
    pub fn start(command: &mut Command) -> Self {
        command
            .current_dir(repository::root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
        let (sender, lines) = mpsc::sync_channel(LINES_MAX);
        let outputs: [Box<dyn std::io::Read + Send>; 2] = [
            Box::new(child.stdout.take().expect("the output is piped")),
            Box::new(child.stderr.take().expect("the output is piped")),
        ];
        for output in outputs {
            let sender = sender.clone();
            // Ends with the output, or when nobody listens any more.
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line that contains `text` and returns it.
    pub fn line(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("no line with `{text}` in time:\n{}", self.seen.join("\n"))
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended without `{text}`:\n{}", self.seen.join("\n"))
                }
            }
        }
    }

    /// Sends a signal by its name, such as `INT`.
    pub fn signal(&self, name: &str) {
        repository::run(Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()));
    }

    /// Waits for the end and returns how it ended, with everything that was printed.
    pub fn end(mut self) -> (ExitStatus, String) {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push(line);
        }
        let status = self.child.wait().expect("a child can be waited for");
        (status, self.seen.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal("TERM");
            let _ = self.child.wait();
        }
    }
}
