//! A benchmark takes its parts from its own program: each is the same file started again with a role, so that what a part
//! costs is what its process costs.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdout, Command, Stdio},
};

/// Says which part a process is.
const ROLE: &str = "--role";

/// A process that is a part of this benchmark. It ends when this is dropped.
#[derive(Debug)]
pub struct Part {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// The role this process was started with, and what belongs to it. None for the benchmark itself.
pub fn role() -> Option<(String, Vec<String>)> {
    let mut arguments = env::args().skip(1).skip_while(|argument| argument != ROLE).skip(1);
    Some((arguments.next()?, arguments.collect()))
}

/// Tells the benchmark a line: an address where a part listens, or figures.
pub fn announce(line: &str) {
    let mut output = std::io::stdout().lock();
    // Whoever started this is gone where it cannot be told; then there is nothing left to do either.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// Waits until the benchmark lets go of this part, in whatever way it ends, and passes on each line it is told. Blocks.
pub fn until_left(mut told: impl FnMut(&str)) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        told(&line);
    }
}

impl Part {
    /// Starts a part.
    pub fn start(role: &str, arguments: &[&str]) -> Self {
        let program = env::current_exe().expect("a running program has a path");
        let mut child = Command::new(program)
            .args([ROLE, role])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start `{role}`: {error}"));
        let output = child.stdout.take().expect("the output is piped");
        Self { child, output: BufReader::new(output) }
    }

    /// The next line that it tells.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the output is text");
        assert!(!line.is_empty(), "a part ended before it told what was asked of it");
        line.trim_end().to_owned()
    }

    /// Tells it a line.
    pub fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("the input is piped");
        writeln!(input, "{line}").expect("the part listens");
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It ends with its input; one that does not has nothing worth keeping.
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
