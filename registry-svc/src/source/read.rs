//! Reads files that somebody else may be changing or may have prepared.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::OwnedFd,
};

use rustix::fs::{FileType, Stat, fstat};

/// What a file held, and its state before and after it was read.
pub(super) struct Reading {
    pub(super) bytes: Vec<u8>,
    pub(super) before: Stat,
    pub(super) after: Stat,
}

/// Reads an open regular file, up to and including one byte more than `length_max`, so that a longer one shows.
pub(super) fn read_regular(file: OwnedFd, length_max: u64) -> io::Result<Reading> {
    let before = fstat(&file)?;
    if !FileType::from_raw_mode(before.st_mode).is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
    }
    let size = u64::try_from(before.st_size).unwrap_or(0).min(length_max);
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    let mut file = File::from(file).take(length_max + 1);
    file.read_to_end(&mut bytes)?;
    let after = fstat(file.get_ref())?;
    Ok(Reading { bytes, before, after })
}
