//! The embedded store: one file a definition, and a log of changes, below one directory of one process.
//!
//! A change is one line of the log, then at most one file. The last line counts only if the file agrees with it, so
//! whatever moment the process or the machine ends, a change is there whole or not at all.

mod disk;
mod log;
mod shelf;

use std::{
    collections::HashMap,
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use tokio::task::spawn_blocking;

pub use self::disk::{Disk, RealDisk};
use self::shelf::Shelf;
use super::{Commit, Store, Stored};
use crate::{agent::Digest, error::StoreError};

/// Definitions may hold what is not for everybody's eyes.
const DIRECTORY_MODE: u32 = 0o700;

/// As for the directory.
const FILE_MODE: u32 = 0o600;

/// The file that says which store this is.
const ID_FILE: &str = "store-id";

/// Locked while a process has the store open.
const LOCK_FILE: &str = "lock";

/// Keeps workspaces in files.
pub struct DirectoryStore {
    root: PathBuf,
    id: String,
    disk: Arc<dyn Disk>,
    shelves: Mutex<HashMap<String, Arc<Mutex<Shelf>>>>,
    /// Holds the lock as long as the store lives.
    _lock: File,
}

impl DirectoryStore {
    /// Opens the store in a directory, which is created where it does not exist.
    pub async fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::open_on(root.into(), Arc::new(RealDisk)).await
    }

    /// The same on a disk of the caller's: one that fails, or one that ends the process.
    pub async fn open_on(root: PathBuf, disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let open = move || {
            create_directory(&root)?;
            let lock = lock(&root.join(LOCK_FILE))?;
            let id = read_or_make_id(&root, &*disk)?;
            Ok(Self { root, id, disk, shelves: Mutex::default(), _lock: lock })
        };
        spawn_blocking(open).await.map_err(|_| StoreError::Refusing)?
    }

    /// A workspace's own directory. Its name is a digest: no path is made from a name.
    fn directory(&self, workspace: &str) -> PathBuf {
        self.root.join("workspaces").join(Digest::of(workspace.as_bytes()).to_string())
    }
}

#[async_trait]
impl Store for DirectoryStore {
    fn id(&self) -> &str {
        &self.id
    }

    async fn load(&self, workspace: &str) -> Result<Stored, StoreError> {
        let directory = self.directory(workspace);
        let disk = Arc::clone(&self.disk);
        let open = move || {
            create_directory(&directory)?;
            // A definition is only as durable as the names of the directories above it.
            for above in directory.ancestors().skip(1).take(3) {
                disk.sync_directory(above).map_err(failed("write", above))?;
            }
            Shelf::open(directory, disk)
        };
        let (shelf, stored) = spawn_blocking(open).await.map_err(|_| StoreError::Refusing)??;
        self.shelves.lock().insert(workspace.to_owned(), Arc::new(Mutex::new(shelf)));
        Ok(stored)
    }

    async fn commit(&self, workspace: &str, commit: Commit) -> Result<(), StoreError> {
        let shelf = self.shelves.lock().get(workspace).cloned().ok_or(StoreError::Refusing)?;
        spawn_blocking(move || shelf.lock().commit(commit)).await.map_err(|_| StoreError::Refusing)?
    }
}

/// Says which file something failed at, and doing what.
fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StoreError + 'a {
    move |source| StoreError::File { action, path: path.display().to_string(), source: Arc::new(source) }
}

fn create_directory(path: &Path) -> Result<(), StoreError> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path).map_err(failed("create", path))
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(FILE_MODE);
    let file = options.open(path).map_err(failed("open", path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::InUse { path: path.display().to_string() }),
        Err(error) => Err(failed("lock", path)(error.into())),
    }
}

fn read_or_make_id(root: &Path, disk: &dyn Disk) -> Result<String, StoreError> {
    let path = root.join(ID_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => uuid::Uuid::parse_str(text.trim()).map(|id| id.to_string()).map_err(|_| {
            StoreError::Damaged { path: path.display().to_string(), line: 1, reason: "no UUID".to_owned() }
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = uuid::Uuid::now_v7().to_string();
            disk::write_durably(disk, &path, format!("{id}\n").as_bytes()).map_err(failed("write", &path))?;
            Ok(id)
        }
        Err(error) => Err(failed("read", &path)(error)),
    }
}

#[cfg(test)]
mod tests;
