//! What the store does to files, and nothing else: few enough operations that each can be made to fail in a test.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::FILE_MODE;

/// What follows a file's name while it is written.
pub(super) const TEMPORARY: &str = ".new";

/// Operations on files. Contents are durable after [`Disk::sync`], names after [`Disk::sync_directory`].
pub trait Disk: Send + Sync {
    /// Writes a whole file, in place of one that is there.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Adds to the end of a file.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Makes a file's contents durable.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Cuts a file, durably.
    fn truncate(&self, path: &Path, length: u64) -> io::Result<()>;

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// The file system.
pub struct RealDisk;

impl Disk for RealDisk {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
        file.write_all(bytes)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(path)?.write_all(bytes)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        // Metadata that reading the data needs, such as the length, is synced with it.
        File::open(path)?.sync_data()
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// The temporary file beside a file.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(TEMPORARY);
    name.into()
}

/// Replaces a file whole: after this it is the new one, also after a loss of power.
pub(super) fn write_durably(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(path);
    disk.write(&temporary, bytes)?;
    disk.sync(&temporary)?;
    disk.rename(&temporary, path)?;
    disk.sync_directory(path.parent().unwrap_or_else(|| Path::new(".")))
}
