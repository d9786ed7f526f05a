//! `bash`: any command, when the operator has switched it on. It runs with the executor's own rights, so every call is
//! destructive and passes the review gate; what is promised is that nothing of it is left when the call is over.

use std::{io, os::fd::OwnedFd, path::Path, process::Stdio, time::Duration};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe::Receiver,
    process::{Child, Command},
};
use uuid::Uuid;

use crate::{
    model::ToolSpec,
    tool::{Class, Context, Error, Tool, arguments::Arguments, leftovers::Leftovers, limits::HeadTail, name},
};

/// Longest command in bytes: the kernel's bound for one argument.
const COMMAND_MAX: usize = 128 * 1024;

/// Most output a command may produce before it is killed: what is shown is far less.
const OUTPUT_MAX: usize = 64 * 1024 * 1024;

/// How long output may still come when the command and all it started are gone.
const DRAIN: Duration = Duration::from_secs(1);

/// Where commands are looked for. The executor's own `PATH` is the operator's business.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where each call gets a home directory of its own, which goes with it.
const HOMES: &str = "/tmp";

const DESCRIPTION: &str = "Runs a command with bash in the workspace's root and answers its output and exit status. There is no \
    terminal and no input, the environment is empty, and whatever is still running at the end is killed. To look at files use \
    `read`, `grep`, `find` and `ls`.";

pub(super) struct Bash {
    arguments: Arguments,
}

#[derive(Deserialize)]
struct Taken {
    command: String,
}

/// Bytes as text: characters that come in two pieces are put together.
#[derive(Default)]
struct Decoder {
    rest: Vec<u8>,
}

impl Bash {
    pub(super) fn new() -> Self {
        let properties = json!({
            "command": {
                "type": "string", "minLength": 1, "maxLength": COMMAND_MAX, "description": "the command line",
            },
            "description": {"type": "string", "description": "what it is for, for the people who review it"},
        });
        let synonyms = &[("cmd", "command"), ("script", "command")];
        Self { arguments: Arguments::new(name::BASH, DESCRIPTION, properties, &["command"], synonyms) }
    }
}

#[async_trait]
impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        self.arguments.spec()
    }

    fn class(&self) -> Class {
        Class::Destructive
    }

    async fn call(&self, context: &Context, arguments: &Value) -> Result<String, Error> {
        let taken: Taken = self.arguments.parse(arguments)?;
        let failed = |error: io::Error| Error::Failed(format!("the command cannot be run: {error}"));

        let home = tempfile::Builder::new().prefix("roster-").tempdir_in(HOMES).map_err(failed)?;
        let mark = format!("ROSTER_CALL={}", Uuid::now_v7());
        let (mut child, output) =
            start(&taken.command, &context.workspace.cwd, home.path(), &mark).map_err(failed)?;
        // From here on nothing is left behind, on whatever way this function is left.
        let leftovers = Leftovers::new(child.id(), mark);

        tokio::select! {
            () = context.cancel.cancelled() => Err(Error::Cancelled),
            result = run(&mut child, output, leftovers) => result.map_err(failed),
        }
    }
}

fn start(command: &str, directory: &Path, home: &Path, mark: &str) -> io::Result<(Child, Receiver)> {
    let (reader, writer) = io::pipe()?;
    let (key, value) = mark.split_once('=').expect("a mark has a name and a value");
    let mut shell = Command::new("/bin/bash");
    shell
        .args(["--noprofile", "--norc", "-c", command])
        .current_dir(directory)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", home)
        .env("TMPDIR", home)
        .env("LANG", "C.UTF-8")
        .env("TERM", "dumb")
        .env(key, value)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        // One pipe for both, so that errors stand where they occurred.
        .stderr(writer)
        .process_group(0)
        .kill_on_drop(true);
    let child = shell.spawn()?;
    Ok((child, Receiver::from_owned_fd(OwnedFd::from(reader))?))
}

async fn run(child: &mut Child, mut output: Receiver, leftovers: Leftovers) -> io::Result<String> {
    let mut kept = HeadTail::default();
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 64 * 1024];
    let mut total = 0;

    let status = loop {
        tokio::select! {
            read = output.read(&mut buffer) => match read? {
                0 => break Some(child.wait().await?),
                count => {
                    total += count;
                    kept.push(&decoder.decode(&buffer[..count]));
                }
            },
            status = child.wait() => break Some(status?),
        }
        if total > OUTPUT_MAX {
            break None;
        }
    };
    // What it started in the background ends with it, and lets go of the pipe.
    drop(leftovers);
    if status.is_some() {
        // Whoever holds the pipe still is not waited for.
        let rest = tokio::time::timeout(DRAIN, async {
            while let Ok(count @ 1..) = output.read(&mut buffer).await {
                kept.push(&decoder.decode(&buffer[..count]));
            }
        });
        let _ = rest.await;
    }
    kept.push(&decoder.finish());
    let end = match status.map(|status| (status.code(), status)) {
        Some((Some(code), _)) => format!("(exit status {code})"),
        Some((None, status)) => format!("({status})"),
        None => format!("(killed: more than {OUTPUT_MAX} bytes of output)"),
    };
    let gap = if kept.ends_line() { "" } else { "\n" };
    kept.push(&format!("{gap}{end}"));
    Ok(kept.finish("write it to a file and read that"))
}

impl Decoder {
    fn decode(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            // The end may be the beginning of a character.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // What is wrong further in is shown as such; only the very end can be unfinished.
            Err(_) => self.rest.len() - unfinished(&self.rest),
            Ok(_) => self.rest.len(),
        };
        let text = String::from_utf8_lossy(&self.rest[..whole]).into_owned();
        self.rest.drain(..whole);
        text
    }

    fn finish(self) -> String {
        String::from_utf8_lossy(&self.rest).into_owned()
    }
}

/// How many bytes at the end begin a character that is not complete.
fn unfinished(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|&count| {
            std::str::from_utf8(&bytes[bytes.len() - count..])
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
