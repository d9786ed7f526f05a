//! One process at a time: a lock on a file beside the database, which the kernel gives back however the process ends.

use std::{
    fs::{File, OpenOptions},
    path::Path,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::fault::OpenError;

/// Holds the directory until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock file's directory.
    ///
    /// # Errors
    ///
    /// At once, where another process holds it.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|source| OpenError::Directory { path: path.to_owned(), source })?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(OpenError::InUse { path: path.to_owned() }),
            Err(errno) => Err(OpenError::Directory { path: path.to_owned(), source: errno.into() }),
        }
    }
}
