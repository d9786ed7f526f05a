//! Reads files that somebody else may be changing or may have prepared.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::OwnedFd,
};

use rustix::fs::{FileType, fstat};

/// Reads an open regular file, up to and including one byte more than `length_max`, so that a longer one shows.
pub(super) fn read_regular(file: OwnedFd, length_max: u64) -> io::Result<Vec<u8>> {
    let stat = fstat(&file)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0).min(length_max);
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    File::from(file).take(length_max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
