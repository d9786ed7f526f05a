//! Everything a caller can learn of a failure. Knows nothing of gRPC; the edge has the one table to status codes.

use std::{io, sync::Arc};

use crate::{diagnostic::Diagnostic, snapshot::Miss};

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("workspace `{workspace}` does not exist")]
    WorkspaceNotFound { workspace: String },

    /// The name resolves to nothing: unknown, or blocked by a broken document.
    #[error(transparent)]
    Miss(#[from] Miss),

    #[error("no candidate of `{name}` has the digest `{digest}`")]
    UnknownDigest { name: String, digest: String },

    #[error("command `{name}` does not exist")]
    UnknownCommand { name: String },

    /// The document cannot be used. At least one of the findings is an error.
    #[error("the document cannot be used")]
    InvalidDocument { diagnostics: Vec<Diagnostic> },

    #[error("the document defines `{actual}`, not `{expected}`")]
    NameMismatch { expected: String, actual: String },

    /// `actual` is empty where no authored definition has the name.
    #[error("the authored definition has the digest `{actual}`, not `{expected}`")]
    DigestMismatch { expected: String, actual: String },

    #[error("request id `{request_id}` was used with other content")]
    RequestIdReused { request_id: String },

    /// Only files define the name, so there is nothing to remove.
    #[error("`{name}` is not an authored definition")]
    NotAuthored { name: String },

    /// The change needs an administrator.
    #[error("only an administrator may {action}")]
    AdministratorRequired { name: String, action: String },

    /// The store holds as many authored definitions as it may.
    #[error("the workspace already holds {max} authored definitions")]
    TooManyAuthored { max: usize },

    /// Nothing was written.
    #[error("the store failed")]
    Store(#[from] StoreError),

    /// The workspace has stopped, which it does when the service ends.
    #[error("the service is stopping")]
    Stopping,

    /// Reading the sources panicked: a bug, reported to whoever asked for the reading.
    #[error("reading the sources ended unexpectedly")]
    ScanFailed,
}

/// Why the service cannot start.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    #[error("bundled definition `{file}` cannot be used: {finding}")]
    Bundled { file: &'static str, finding: String },

    #[error("the store cannot be opened")]
    Store(#[from] StoreError),

    #[error("the first reading of workspace `{workspace}` ended unexpectedly")]
    Scan { workspace: String },
}

/// Why a store could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    #[error("failed to {action} `{path}`")]
    File { action: &'static str, path: String, source: Arc<io::Error> },

    /// Another process has the store open.
    #[error("`{path}` is in use by another process")]
    InUse { path: String },

    #[error(
        "`{path}` is damaged in line {line}: {reason}; restore it from a backup, or remove it to begin anew"
    )]
    Damaged { path: String, line: usize, reason: String },

    /// An earlier failure could not be undone, so the store takes no more writes until the service is restarted.
    #[error("the store refuses writes after an earlier failure; restart the service")]
    Refusing,
}
