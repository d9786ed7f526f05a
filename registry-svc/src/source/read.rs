//! Reads files that somebody else may be changing or may have prepared.

use std::{io, os::fd::OwnedFd};

use rustix::{
    buffer::spare_capacity,
    fs::{FileType, Stat, fstat},
    io::{Errno, read},
};

/// What a file held, and its state before and after it was read. Where the two differ the bytes may be of both.
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
    let size = usize::try_from(before.st_size).unwrap_or(0);
    let bytes = read_bytes(&file, size, usize::try_from(length_max).unwrap_or(usize::MAX))?;
    Ok(Reading { bytes, before, after: fstat(&file)? })
}

/// Takes one call where the file is as long as it said, since that asks for one byte more.
fn read_bytes(file: &OwnedFd, size: usize, length_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size.min(length_max) + 1);
    loop {
        let count = match read(file, spare_capacity(&mut bytes)) {
            Err(Errno::INTR) => continue,
            count => count?,
        };
        if count == 0 || bytes.len() == size || bytes.len() > length_max {
            return Ok(bytes);
        }
        if bytes.len() == bytes.capacity() {
            // It grows while it is read.
            bytes.reserve_exact(bytes.len().min(length_max - bytes.len()) + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn a_file_is_read_whole_or_to_one_byte_behind_the_limit() {
        let place = tempfile::tempdir().unwrap();
        for (size, length_max, expected) in
            [(0, 10, 0), (9, 10, 9), (10, 10, 10), (11, 10, 11), (5_000, 10, 11), (5_000, 5_000, 5_000)]
        {
            let path = place.path().join("file");
            fs::write(&path, vec![b'x'; size]).unwrap();
            let reading = read_regular(File::open(&path).unwrap().into(), length_max).unwrap();
            assert_eq!(reading.bytes.len(), expected, "{size} bytes, at most {length_max}");
        }
    }

    #[test]
    fn a_file_that_says_nothing_of_its_length_is_read_to_its_end() {
        let reading = read_regular(File::open("/proc/self/status").unwrap().into(), 1 << 20).unwrap();

        assert!(reading.bytes.len() > 100 && reading.bytes.ends_with(b"\n"));
    }

    #[test]
    fn a_directory_is_no_regular_file() {
        let place = tempfile::tempdir().unwrap();

        let outcome = read_regular(File::open(place.path()).unwrap().into(), 10);

        assert!(outcome.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput));
    }
}
