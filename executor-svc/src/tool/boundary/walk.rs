//! Walks a directory in the order of names, without what is hidden or ignored, inside bounds of time, depth and number.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, Dir, FileType};
use tokio_util::sync::CancellationToken;

use super::{Boundary, Ignored, Place};
use crate::tool::Error;

/// Most entries looked at in one call: a large monorepo's worth.
const ENTRIES_MAX: usize = 500_000;

/// Deepest directory entered below the start. Real trees stay below 30.
const DEPTH_MAX: usize = 64;

/// Longest a search runs, so that a model gets what was found rather than a time-out.
const TIME_MAX: Duration = Duration::from_secs(10);

/// What a blocking call may use up.
#[derive(Clone, Debug)]
pub(in crate::tool) struct Work {
    cancel: CancellationToken,
    end: Instant,
}

/// Something found.
#[derive(Clone, Debug)]
pub(in crate::tool) struct Entry {
    pub(in crate::tool) place: Place,
    pub(in crate::tool) kind: Kind,
    /// 1 for what lies directly in the start.
    pub(in crate::tool) depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tool) enum Kind {
    File,
    Directory,
    Link,
    /// Pipes, sockets, devices.
    Other,
}

/// The walk. After it ended, `incomplete` says why it ended early.
pub(in crate::tool) struct Walk {
    boundary: Arc<Boundary>,
    work: Work,
    depth_max: usize,
    /// In reverse: the next one is the last.
    pending: Vec<(Entry, Ignored)>,
    seen: usize,
    left_out: usize,
    unreadable: usize,
    stopped: Option<&'static str>,
}

impl Work {
    pub(in crate::tool) fn new(cancel: CancellationToken) -> Self {
        Self { cancel, end: Instant::now() + TIME_MAX }
    }

    pub(in crate::tool) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    pub(in crate::tool) fn check(&self) -> Result<(), Error> {
        match self.is_cancelled() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    pub(in crate::tool) fn is_late(&self) -> bool {
        Instant::now() >= self.end
    }
}

impl Walk {
    /// Starts at a directory. `depth_max` 1 lists only what lies directly in it.
    pub(in crate::tool) fn new(
        boundary: Arc<Boundary>,
        start: &Place,
        depth_max: usize,
        work: Work,
    ) -> Result<Self, Error> {
        let mut walk = Self {
            boundary,
            work,
            depth_max: depth_max.min(DEPTH_MAX),
            pending: Vec::new(),
            seen: 0,
            left_out: 0,
            unreadable: 0,
            stopped: None,
        };
        let ignored = Ignored::at(&walk.boundary, start.path());
        walk.enter(start, 1, &ignored)
            .map_err(|error| super::failed(start.path(), "listed", &error.into()))?;
        Ok(walk)
    }

    /// The next entry, directories before what lies in them. Ends at a bound or when cancelled.
    pub(in crate::tool) fn next(&mut self) -> Result<Option<Entry>, Error> {
        self.work.check()?;
        if self.work.is_late() {
            self.stopped = Some("the search took too long");
            return Ok(None);
        }
        let Some((entry, ignored)) = self.pending.pop() else { return Ok(None) };

        if entry.kind == Kind::Directory && self.stopped.is_none() {
            if entry.depth < self.depth_max {
                let inner = ignored.enter(&self.boundary, entry.place.path());
                if self.enter(&entry.place, entry.depth + 1, &inner).is_err() {
                    self.unreadable += 1;
                }
            } else if entry.depth == DEPTH_MAX {
                self.unreadable += 1;
            }
        }
        Ok(Some(entry))
    }

    /// How many entries were kept back as closed to tools or ignored.
    pub(in crate::tool) fn left_out(&self) -> usize {
        self.left_out
    }

    /// What the caller has to be told about entries that were not reached.
    pub(in crate::tool) fn incomplete(&self) -> Option<String> {
        match (self.stopped, self.unreadable) {
            (Some(reason), _) => Some(format!("{reason}: not everything was looked at, narrow `path`")),
            (None, 0) => None,
            (None, count) => Some(format!("directories that cannot be read or lie too deep: {count}")),
        }
    }

    fn enter(&mut self, directory: &Place, depth: usize, ignored: &Ignored) -> Result<(), rustix::io::Errno> {
        let opened = Dir::new(self.boundary.directory(directory)?)?;
        let mut entries = Vec::new();
        for entry in opened {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.seen += 1;
            if self.seen > ENTRIES_MAX {
                self.stopped = Some("there are too many entries");
                break;
            }
            let path = directory.path().join(OsStr::from_bytes(name));
            let kind = match entry.file_type() {
                FileType::Unknown => self.ask_kind(&path),
                known => kind_of(known),
            };
            if !self.boundary.shows(&path) || ignored.contains(&self.boundary, &path, kind == Kind::Directory)
            {
                self.left_out += 1;
                continue;
            }
            entries.push(Entry { place: Place::found(path), kind, depth });
        }
        entries.sort_unstable_by(|left, right| right.place.path().cmp(left.place.path()));
        self.pending.extend(entries.into_iter().map(|entry| (entry, ignored.clone())));
        Ok(())
    }

    /// Some file systems do not give the kind with the name.
    fn ask_kind(&self, path: &Path) -> Kind {
        let parent = Place::found(path.parent().map(PathBuf::from).unwrap_or_default());
        let asked = self.boundary.directory(&parent).and_then(|parent| {
            rustix::fs::statat(parent, path.file_name().unwrap_or_default(), AtFlags::SYMLINK_NOFOLLOW)
        });
        asked.map_or(Kind::Other, |stat| kind_of(FileType::from_raw_mode(stat.st_mode)))
    }
}

fn kind_of(kind: FileType) -> Kind {
    match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Kind::Other,
    }
}
