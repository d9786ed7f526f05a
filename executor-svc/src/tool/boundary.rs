//! The one door to a workspace's files: names are resolved and judged here, and what was judged is what is opened.
//!
//! Links are followed by name first; the path they lead to is judged, then opened with links forbidden. Whoever swaps a
//! directory for a link in between gets an error, not another file.

mod deny;
mod ignored;
mod walk;

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};

use self::deny::Deny;
pub(super) use self::{
    ignored::Ignored,
    walk::{Entry, Kind, Walk, Work},
};
use super::{Error, Workspace};

/// Directories whose content decides what agents may do. No tool changes what lies in them, at any depth.
const FROZEN: [&str; 10] = [
    ".git",
    ".xcsh",
    ".claude",
    ".codex",
    ".gemini",
    ".opencode",
    ".qwen",
    ".omp",
    ".kilo",
    ".github/agents",
];

/// An opened workspace.
pub(super) struct Boundary {
    root: PathBuf,
    directory: OwnedFd,
    hidden: Vec<PathBuf>,
    frozen: Vec<PathBuf>,
    deny: Deny,
    gitignore: bool,
}

/// A path inside the workspace that may be opened. Relative to the root, without links and `..`; empty for the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(PathBuf);

/// What a tool means to do with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    Write,
}

impl Boundary {
    /// Opens the workspace.
    pub(super) fn open(workspace: &Workspace) -> Result<Arc<Self>, Error> {
        let Workspace { name, cwd, hidden, frozen, read_deny, gitignore } = workspace;
        let unreadable =
            |error: io::Error| Error::Failed(format!("the workspace `{name}` cannot be opened: {error}"));

        let root = cwd.canonicalize().map_err(unreadable)?;
        let directory =
            rustix::fs::openat(CWD, &root, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH, Mode::empty())
                .map_err(|error| unreadable(error.into()))?;

        Ok(Arc::new(Self {
            hidden: below(&root, hidden),
            frozen: below(&root, frozen),
            root,
            directory,
            deny: Deny::new(read_deny).map_err(Error::Failed)?,
            gitignore: *gitignore,
        }))
    }

    /// Resolves a name that a model gave: relative to the workspace, or absolute inside it. What it leads to must exist.
    pub(super) fn locate(&self, name: &str, purpose: Purpose) -> Result<Place, Error> {
        let lexical = self.normalise(name)?;
        self.judge(&lexical, purpose)?;
        let place = self.resolve(&lexical).map_err(|error| self.missing(&lexical, &error))??;
        self.judge(&place.0, purpose)?;
        if purpose == Purpose::Read && self.gitignore && Ignored::covers(self, &place.0) {
            return Err(refused(&place.0, "is ignored by `.gitignore`, so tools leave it alone"));
        }
        Ok(place)
    }

    /// Resolves the name of a file to be written, which need not exist; nor need its directories.
    pub(super) fn locate_target(&self, name: &str) -> Result<Place, Error> {
        let lexical = self.normalise(name)?;
        self.judge(&lexical, Purpose::Write)?;

        let mut existing = lexical.as_path();
        let place = loop {
            match self.resolve(existing) {
                Ok(place) => break place?,
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.missing(existing, &error));
                }
                // A link to nowhere would be written through.
                Err(_) if self.root.join(existing).is_symlink() => {
                    return Err(refused(existing, "is a link that leads nowhere"));
                }
                Err(_) => existing = existing.parent().unwrap_or_else(|| Path::new("")),
            }
        };
        let rest = lexical.strip_prefix(existing).expect("the loop only takes components off the end");
        let place = match rest.as_os_str().is_empty() {
            true => place,
            false => Place(place.0.join(rest)),
        };
        self.judge(&place.0, Purpose::Write)?;
        Ok(place)
    }

    /// Opens a regular file for reading. Pipes and devices are refused without being opened.
    pub(super) fn file(&self, place: &Place) -> Result<File, Error> {
        let failed = |error: rustix::io::Errno| failed(&place.0, "read", &error.into());
        let stat = self.stat(place).map_err(failed)?;
        check_regular(&place.0, FileType::from_raw_mode(stat.st_mode))?;

        // Without blocking, should the file have become a pipe by now.
        let file = self.open_inside(&place.0, OFlags::RDONLY | OFlags::NONBLOCK).map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        check_regular(&place.0, FileType::from_raw_mode(stat.st_mode))?;
        Ok(File::from(file))
    }

    /// Opens a directory for listing or as the start of further names.
    pub(super) fn directory(&self, place: &Place) -> Result<OwnedFd, rustix::io::Errno> {
        if place.0.as_os_str().is_empty() {
            return rustix::fs::openat(
                &self.directory,
                ".",
                OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            );
        }
        self.open_inside(&place.0, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// What a place is, links not followed.
    pub(super) fn stat(&self, place: &Place) -> Result<rustix::fs::Stat, rustix::io::Errno> {
        let Some(name) = place.0.file_name() else {
            return rustix::fs::fstat(&self.directory);
        };
        let parent = self.directory(&place.parent())?;
        rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Whether tools may know of an entry found below the root.
    pub(super) fn shows(&self, relative: &Path) -> bool {
        self.judge(relative, Purpose::Read).is_ok() && relative.file_name().is_none_or(|name| name != ".git")
    }

    pub(super) fn honours_gitignore(&self) -> bool {
        self.gitignore
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Opens below the root with every link on the way forbidden.
    fn open_inside(&self, relative: &Path, flags: OFlags) -> Result<OwnedFd, rustix::io::Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.directory, relative, flags, Mode::empty(), resolve) {
            // Kernels before 5.6 and some sandboxes do not have it.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                open_by_steps(&self.directory, relative, flags)
            }
            result => result,
        }
    }

    /// Takes `.` and `..` out by name, so that nothing is asked of the file system about what lies outside.
    fn normalise(&self, name: &str) -> Result<PathBuf, Error> {
        if name.contains('\0') {
            return Err(Error::Failed("a path cannot contain a NUL character".to_owned()));
        }
        let given = Path::new(name);
        let relative = match given.strip_prefix(&self.root) {
            Ok(relative) => relative,
            Err(_) if given.is_absolute() => return Err(outside(name)),
            Err(_) => given,
        };

        let mut normal = PathBuf::new();
        for component in relative.components() {
            match component {
                Component::Normal(part) => normal.push(part),
                Component::CurDir => {}
                Component::ParentDir if normal.pop() => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(outside(name));
                }
            }
        }
        Ok(normal)
    }

    /// Follows links by name. The outer error is the file system's, the inner one a refusal.
    fn resolve(&self, lexical: &Path) -> io::Result<Result<Place, Error>> {
        let real = self.root.join(lexical).canonicalize()?;
        Ok(match real.strip_prefix(&self.root) {
            Ok(relative) => Ok(Place(relative.to_owned())),
            Err(_) => Err(refused(lexical, "is a link that leads out of the workspace")),
        })
    }

    fn judge(&self, relative: &Path, purpose: Purpose) -> Result<(), Error> {
        if self.hidden.iter().any(|hidden| relative.starts_with(hidden)) {
            return Err(refused(relative, "belongs to the service and is closed to tools"));
        }
        if let Some(pattern) = self.deny.matching(relative) {
            return Err(refused(
                relative,
                &format!("is closed to tools by the operator's `tools.read_deny` (`{pattern}`)"),
            ));
        }
        if purpose == Purpose::Write && self.is_frozen(relative) {
            return Err(refused(
                relative,
                "holds agent definitions, plugins or version control, which tools never change",
            ));
        }
        Ok(())
    }

    fn is_frozen(&self, relative: &Path) -> bool {
        self.frozen.iter().any(|frozen| relative.starts_with(frozen))
            || relative.ancestors().any(|path| FROZEN.iter().any(|name| path.ends_with(name)))
    }

    /// Says what is missing, and which entry beside it was perhaps meant.
    fn missing(&self, lexical: &Path, error: &io::Error) -> Error {
        if error.kind() != io::ErrorKind::NotFound {
            return failed(lexical, "opened", error);
        }
        let near = self.near(lexical).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Error::Failed(format!("there is no `{}` in the workspace{near}", lexical.display()))
    }

    fn near(&self, lexical: &Path) -> Option<String> {
        const ENTRIES_MAX: usize = 2_000;
        const SIMILAR: f64 = 0.8;

        let name = lexical.file_name()?.to_str()?;
        let parent = lexical.parent()?;
        let place = self.resolve(parent).ok()?.ok()?;
        let entries = rustix::fs::Dir::new(self.directory(&place).ok()?).ok()?;
        entries
            .flatten()
            .take(ENTRIES_MAX)
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|entry| self.shows(&place.0.join(entry)))
            .map(|entry| (strsim::jaro_winkler(&entry.to_lowercase(), &name.to_lowercase()), entry))
            .filter(|(score, entry)| *score >= SIMILAR && !matches!(entry.as_str(), "." | ".."))
            .max_by(|left, right| left.0.total_cmp(&right.0))
            .map(|(_, entry)| parent.join(entry).display().to_string())
    }
}

impl Place {
    /// An entry found by walking, whose name has been judged.
    fn found(relative: PathBuf) -> Self {
        Self(relative)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn parent(&self) -> Self {
        Self(self.0.parent().map(Path::to_owned).unwrap_or_default())
    }

    /// As a model reads it: `.` for the root.
    pub(super) fn show(&self) -> String {
        show(&self.0)
    }
}

/// A path as a model reads it.
pub(super) fn show(relative: &Path) -> String {
    match relative.as_os_str().is_empty() {
        true => ".".to_owned(),
        false => relative.display().to_string(),
    }
}

/// The same promise as `openat2` without it: one component at a time, none of them a link.
fn open_by_steps(root: &OwnedFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, rustix::io::Errno> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = rustix::fs::openat(root, ".", step, Mode::empty())?;
    let mut components = relative.components().peekable();
    while let Some(component) = components.next() {
        let Component::Normal(name) = component else {
            return Err(rustix::io::Errno::XDEV);
        };
        match components.peek() {
            Some(_) => directory = rustix::fs::openat(&directory, name, step, Mode::empty())?,
            None => return rustix::fs::openat(&directory, name, flags, Mode::empty()),
        }
    }
    Ok(directory)
}

fn check_regular(relative: &Path, kind: FileType) -> Result<(), Error> {
    match kind {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(refused(relative, "is a directory: list it with `ls`")),
        FileType::Symlink => Err(refused(relative, "has just become a link")),
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Err(refused(relative, "is no regular file (a pipe, socket or device)")),
    }
}

/// The paths that lie below the root, relative to it. Links are resolved where the path exists.
fn below(root: &Path, paths: &[PathBuf]) -> Vec<PathBuf> {
    paths
        .iter()
        .filter_map(|path| {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            real.strip_prefix(root).ok().map(Path::to_owned)
        })
        .filter(|relative| !relative.as_os_str().is_empty())
        .collect()
}

fn outside(name: &str) -> Error {
    Error::Failed(format!(
        "`{name}` is outside of the workspace: give a path relative to its root, such as `src/main.rs`"
    ))
}

fn refused(relative: &Path, why: &str) -> Error {
    Error::Failed(format!("`{}` {why}", show(relative)))
}

fn failed(relative: &Path, action: &str, error: &io::Error) -> Error {
    Error::Failed(format!("`{}` cannot be {action}: {error}", show(relative)))
}

#[cfg(test)]
mod tests;
