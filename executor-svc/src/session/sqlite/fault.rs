//! What can go wrong with the file, told apart as far as somebody can act on it.

use std::{io, path::PathBuf, sync::Arc};

use rusqlite::ErrorCode;

use crate::{
    session::StoreError,
    worker::{SessionId, Status},
};

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another process uses the store: it holds the lock `{path}`")]
    InUse { path: PathBuf },

    #[error("cannot use `{path}`")]
    Directory { path: PathBuf, source: io::Error },

    #[error("the store was written by a newer version: its schema is {found}, this one knows {known}")]
    NewerSchema { found: u64, known: u64 },

    #[error("`{path}` cannot have a write-ahead log: its journal is `{journal}`")]
    NoWriteAheadLog { path: PathBuf, journal: String },

    #[error("SQLite {version} is too old: it can damage the store")]
    OldSqlite { version: &'static str },

    #[error("cannot start the thread that writes")]
    Thread(#[source] io::Error),

    #[error(transparent)]
    File(#[from] Fault),
}

/// Why the store does not do what it is asked. The source of a [`StoreError`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum Fault {
    #[error("the disk is full")]
    DiskFull,

    #[error("the database file is broken")]
    Broken(#[source] Arc<rusqlite::Error>),

    #[error("the store is closed")]
    Closed,

    /// A defect of ours: the panic is in the log.
    #[error("a piece of the store's work panicked")]
    Panicked,

    #[error("`{session}` cannot go from {from:?} to {to:?}")]
    IllegalChange { session: SessionId, from: Status, to: Status },

    #[error("the row of `{row}` was given with a step of `{session}`")]
    ForeignRow { session: SessionId, row: SessionId },

    #[error("SQLite reports an error")]
    Sqlite(#[source] Arc<rusqlite::Error>),
}

/// Why a piece of work in a transaction is taken back.
#[derive(Debug)]
pub(super) enum Halt<E> {
    Refused(E),
    Failed(Fault),
}

impl Fault {
    pub(super) fn during(self, action: &'static str) -> StoreError {
        let transient = self.is_transient();
        StoreError { action, source: Box::new(self), transient }
    }

    fn is_transient(&self) -> bool {
        match self {
            Self::DiskFull => true,
            Self::Broken(_)
            | Self::Closed
            | Self::Panicked
            | Self::IllegalChange { .. }
            | Self::ForeignRow { .. } => false,
            // Somebody else holds the file, or its disk is away: both are mended without us.
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(
                    ErrorCode::DatabaseBusy
                        | ErrorCode::DatabaseLocked
                        | ErrorCode::FileLockingProtocolFailed
                        | ErrorCode::OutOfMemory
                        | ErrorCode::SystemIoFailure
                        | ErrorCode::CannotOpen
                        | ErrorCode::ReadOnly
                )
            ),
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Broken(Arc::new(error)),
            _ => Self::Sqlite(Arc::new(error)),
        }
    }
}

impl<E> From<rusqlite::Error> for Halt<E> {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl<E> From<Fault> for Halt<E> {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}
