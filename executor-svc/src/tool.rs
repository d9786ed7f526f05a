//! Tools behind one trait.

mod arguments;
mod boundary;
pub mod builtin;
pub mod calls;
#[cfg(fuzzing)]
pub mod fuzz;
mod leftovers;
pub mod limits;
pub mod mcp;
pub mod name;
pub mod redirect;
pub mod settings;
pub mod spawn_spec;

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{model::ToolSpec, worker::SessionId};

/// How dangerous a tool is. The derived order is from harmless to dangerous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Looks, and changes nothing.
    Read,
    /// Changes something in a way that can be undone.
    Write,
    /// May do harm that cannot be undone.
    Destructive,
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok,
    Error,
    Denied,
    Rejected,
    Timeout,
    OverLimit,
    Unknown,
}

/// One tool.
#[async_trait]
pub trait Tool: Send + Sync {
    fn spec(&self) -> &ToolSpec;

    /// The class before the operator's table is asked.
    fn class(&self) -> Class;

    /// The MCP server it comes from; empty when built in.
    fn server(&self) -> &str {
        ""
    }

    /// The one file that a call would change, as it is now; absent for tools that change something else. Changes nothing.
    async fn target(&self, _: &Context, _: &Value) -> Result<Option<Target>, Error> {
        Ok(None)
    }

    /// Runs one call. `arguments` are JSON of any shape: the tool answers bad ones with an error that tells the mend. The
    /// caller bounds the time; the tool ends soon after `context.cancel`.
    async fn call(&self, context: &Context, arguments: &Value) -> Result<String, Error>;
}

/// A file that a call would change. An approval holds for the file as it is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Relative to the workspace, links resolved.
    pub path: String,
    /// SHA-256 of what is in it; absent where there is no file.
    pub content: Option<[u8; 32]>,
}

/// What a call runs in.
#[derive(Clone, Debug)]
pub struct Context {
    pub session: SessionId,
    pub workspace: Arc<Workspace>,
    pub cancel: CancellationToken,
    /// For tools that change one file: the file as it was approved. Where it is another by now, nothing is changed.
    pub approved: Option<Target>,
}

/// Where the built-in tools may look.
#[derive(Clone, Debug)]
pub struct Workspace {
    pub name: String,
    /// Absolute, links resolved: nothing outside is ever opened.
    pub cwd: PathBuf,
    /// Absolute paths that are never opened though they lie inside: data directory, configuration and secret files.
    pub hidden: Vec<PathBuf>,
    /// Absolute paths of directories that no tool changes: where definitions and plugins come from. Those known by name,
    /// such as `.git` and `.claude`, need not be among them.
    pub frozen: Vec<PathBuf>,
    /// File name patterns that are never opened (`tools.read_deny`).
    pub read_deny: Vec<String>,
    /// Whether what `.gitignore` leaves out is left out (`tools.gitignore`).
    pub gitignore: bool,
}

/// Why a call has no result. The text goes to the model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Failed(String),
    /// The tool may have done its work or not. Of a call that changes something nobody knows the outcome.
    #[error("{0}")]
    Lost(String),
    #[error("the call was cancelled")]
    Cancelled,
    /// The file is not the approved one any more.
    #[error("what was reviewed has changed since: look again, then propose the call again")]
    Changed,
}
