//! The directories that the reading of a source never leaves, whatever its links say and whoever changes them meanwhile.
//!
//! A path is first resolved to where it leads and compared; what is then opened is that resolved path, below the open
//! directory of its boundary and without following a single link. So a link swapped in between opens nothing.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};

/// Directories that may be read below.
#[derive(Debug)]
pub(super) struct Boundary {
    roots: Vec<Root>,
}

#[derive(Debug)]
struct Root {
    /// Without links.
    path: PathBuf,
    directory: OwnedFd,
}

/// A place inside a boundary, as resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Located {
    root: usize,
    /// Without links, below the root.
    relative: PathBuf,
}

/// Why a path is not inside.
#[derive(Debug)]
pub(super) enum Outside {
    /// It leads elsewhere.
    Escapes(PathBuf),
    /// It cannot be resolved: missing, a loop, no access.
    Unresolved(io::Error),
}

impl Boundary {
    /// Opens the directories; those that do not exist enclose nothing.
    pub(super) fn open<'a>(directories: impl IntoIterator<Item = &'a Path>) -> Self {
        let open = |directory: &Path| {
            let path = directory.canonicalize().ok()?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = openat(CWD, &path, flags, Mode::empty()).ok()?;
            Some(Root { path, directory })
        };
        Self { roots: directories.into_iter().filter_map(open).collect() }
    }

    /// Follows a path to where it leads.
    pub(super) fn locate(&self, path: &Path) -> Result<Located, Outside> {
        let resolved = path.canonicalize().map_err(Outside::Unresolved)?;
        for (root, Root { path, .. }) in self.roots.iter().enumerate() {
            if let Ok(relative) = resolved.strip_prefix(path) {
                return Ok(Located { root, relative: relative.to_owned() });
            }
        }
        Err(Outside::Escapes(resolved))
    }

    /// Opens a directory for listing.
    pub(super) fn open_directory(&self, located: &Located) -> io::Result<OwnedFd> {
        self.open_at(located, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens a file for reading, without waiting for a writer where it is a pipe.
    pub(super) fn open_file(&self, located: &Located) -> io::Result<OwnedFd> {
        self.open_at(located, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    fn open_at(&self, located: &Located, flags: OFlags) -> io::Result<OwnedFd> {
        let directory = &self.roots[located.root].directory;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = match located.relative.as_os_str().is_empty() {
            true => Path::new("."),
            false => &located.relative,
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(directory, path, flags, Mode::empty(), resolve) {
            // Kernels before 5.6, and sandboxes that do not know the call.
            Err(Errno::NOSYS | Errno::PERM) => open_stepwise(directory, path, flags),
            opened => opened.map_err(io::Error::from),
        }
    }
}

impl Located {
    /// An entry of this directory that is no link.
    pub(super) fn join(&self, name: &std::ffi::OsStr) -> Self {
        Self { root: self.root, relative: self.relative.join(name) }
    }
}

/// Opens a path one component after the other, so that none of them can be a link.
fn open_stepwise(directory: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut current = openat(directory, ".", step, Mode::empty())?;
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => ".".as_ref(),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        };
        let is_last = components.peek().is_none();
        current = openat(&current, name, if is_last { flags } else { step }, Mode::empty())?;
    }
    Ok(current)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn what_was_located_opens_and_a_link_swapped_in_does_not() {
        let place = tempfile::tempdir().unwrap();
        let inside = place.path().join("inside");
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::write(inside.join("sub/file"), "inside").unwrap();
        fs::create_dir(place.path().join("outside")).unwrap();
        fs::write(place.path().join("outside/file"), "outside").unwrap();
        let boundary = Boundary::open([inside.as_path()]);
        let located = boundary.locate(&inside.join("sub/file")).unwrap();
        assert!(boundary.open_file(&located).is_ok());

        fs::remove_dir_all(inside.join("sub")).unwrap();
        symlink("../outside", inside.join("sub")).unwrap();

        assert!(boundary.open_file(&located).is_err());
        let root = &boundary.roots[0].directory;
        assert!(open_stepwise(root, Path::new("sub/file"), OFlags::RDONLY | OFlags::NOFOLLOW).is_err());
    }

    #[test]
    fn opening_stepwise_reads_what_opening_at_once_reads() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/b")).unwrap();
        fs::write(place.path().join("a/b/file"), "x").unwrap();
        let boundary = Boundary::open([place.path()]);
        let root = &boundary.roots[0].directory;

        for path in [".", "a", "a/b/file"] {
            assert!(
                open_stepwise(root, Path::new(path), OFlags::RDONLY | OFlags::NOFOLLOW).is_ok(),
                "{path}"
            );
        }
        for path in ["..", "a/../a", "/etc/hostname"] {
            assert!(
                open_stepwise(root, Path::new(path), OFlags::RDONLY | OFlags::NOFOLLOW).is_err(),
                "{path}"
            );
        }
    }

    #[test]
    fn a_path_that_leads_elsewhere_escapes() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("inside")).unwrap();
        fs::write(place.path().join("secret"), "x").unwrap();
        symlink(place.path().join("secret"), place.path().join("inside/absolute")).unwrap();
        symlink("../secret", place.path().join("inside/relative")).unwrap();
        let boundary = Boundary::open([place.path().join("inside").as_path()]);

        for name in ["absolute", "relative"] {
            let located = boundary.locate(&place.path().join("inside").join(name));
            assert!(matches!(located, Err(Outside::Escapes(_))), "{name}");
        }
    }
}
