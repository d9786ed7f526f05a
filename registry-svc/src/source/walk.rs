//! Lists the documents of a directory tree. Never leaves its boundary, always ends, and never waits.

use std::{
    collections::{HashSet, VecDeque},
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Stat, fstat, readlinkat, statat},
    io::Errno,
};

use super::{
    boundary::{Boundary, Located, Outside},
    split,
};
use crate::diagnostic::{Code, Diagnostic, Severity};

/// Documents of one tree. Ten times the largest set of agents we know of.
const FILES_MAX: usize = 50_000;

/// Entries looked at in one tree, documents or not: a source pointed at a home directory by mistake must end.
const ENTRIES_MAX: usize = 500_000;

/// Bytes of one tree, since what is read is kept in memory.
const BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Directories below each other: deeper than any tree that a person keeps.
const DEPTH_MAX: usize = 32;

/// The link that a ConfigMap mount swaps to change all its files at once.
pub(super) const GENERATION_LINK: &str = "..data";

/// A directory to list, and what counts in it.
#[derive(Debug)]
pub(super) struct Tree {
    /// As the configuration leads to it.
    pub(super) path: PathBuf,
    pub(super) boundary: Boundary,
    pub(super) depth: Depth,
    pub(super) filter: Filter,
    /// Directories directly below that belong to something else.
    pub(super) excluded: &'static [&'static str],
}

/// How far down a tree is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Only the directory itself.
    Flat,
    /// The directories directly below it.
    Children,
    Recursive,
}

/// Which files count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Markdown,
    /// Codex roles too.
    MarkdownAndToml,
    /// Files of exactly this name, below the tree's own directory.
    Named(&'static str),
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// In byte order of their paths.
    pub(super) files: Vec<Found>,
    pub(super) findings: Vec<Diagnostic>,
    /// The directories that were entered, for whoever watches for changes.
    pub(super) directories: Vec<PathBuf>,
}

/// One document.
#[derive(Debug)]
pub(super) struct Found {
    /// As the configuration leads to it, links not resolved.
    pub(super) path: PathBuf,
    pub(super) located: Located,
    pub(super) identity: Identity,
}

/// What tells one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) inode: Inode,
    pub(super) size: u64,
    modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

/// One file or directory, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inode(u64, u64);

/// Why nothing of a tree can be used.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is not there, which is no fault of anybody.
    Missing,
    /// The mount was swapped while it was listed.
    Swapped,
    Failed(Diagnostic),
}

/// One directory to enter.
struct Step {
    /// As the configuration leads to it.
    path: PathBuf,
    located: Located,
    depth: usize,
    pinned: bool,
}

struct Walk<'a> {
    tree: &'a Tree,
    entered: HashSet<Inode>,
    own: VecDeque<Step>,
    linked: Vec<Step>,
    entries: usize,
    walked: Walked,
}

impl Tree {
    /// Lists the tree.
    pub(super) fn walk(&self) -> Result<Walked, Fault> {
        let located = match self.boundary.locate(&self.path) {
            Ok(located) => located,
            Err(Outside::Escapes(target)) => return Err(Fault::Failed(escapes(&self.path, &target))),
            Err(Outside::Unresolved(error)) => return Err(fault(&self.path, &error)),
        };
        let mut walk = Walk {
            tree: self,
            entered: HashSet::new(),
            own: VecDeque::new(),
            linked: Vec::new(),
            entries: 0,
            walked: Walked::default(),
        };
        let generation = self.generation();
        walk.top(located, generation.clone())?;
        walk.rest()?;
        // A generation is removed as soon as it is no longer linked: only while it is, its listing is whole.
        if generation.is_some() && generation != self.generation() {
            return Err(Fault::Swapped);
        }

        let mut walked = walk.walked;
        walked.files.sort_by(|left, right| bytes(&left.path).cmp(bytes(&right.path)));
        let mut seen = HashSet::new();
        walked.files.retain(|found| seen.insert(found.identity.inode));
        let size: u64 = walked.files.iter().map(|found| found.identity.size).sum();
        match size > BYTES_MAX {
            true => Err(self.too_large(&format!("more than {} MiB", BYTES_MAX / 1024 / 1024))),
            false => Ok(walked),
        }
    }

    /// The directory that a ConfigMap mount points to now. It is listed in place of the links that lead through
    /// `..data`, so that all files come from one generation even while it is swapped.
    fn generation(&self) -> Option<Located> {
        let link = self.path.join(GENERATION_LINK);
        link.symlink_metadata().ok().filter(|metadata| metadata.is_symlink())?;
        self.boundary.locate(&link).ok()
    }

    fn too_large(&self, what: &str) -> Fault {
        let message = format!("the directory holds {what}; name a smaller directory");
        Fault::Failed(finding(Severity::Error, Code::TooLarge, &self.path, message))
    }

    fn counts(&self, name: &OsStr, depth: usize) -> bool {
        let ends_in = |ending: &[u8]| {
            let name = name.as_bytes();
            name.len() > ending.len() && name[name.len() - ending.len()..].eq_ignore_ascii_case(ending)
        };
        match self.filter {
            Filter::Markdown => ends_in(b".md"),
            Filter::MarkdownAndToml => ends_in(b".md") || ends_in(b".toml"),
            Filter::Named(wanted) => depth > 0 && name == wanted,
        }
    }

    fn enters(&self, name: &OsStr, depth: usize) -> bool {
        let deep_enough = match self.depth {
            Depth::Flat => false,
            Depth::Children => depth == 0,
            Depth::Recursive => depth < DEPTH_MAX,
        };
        deep_enough && !(depth == 0 && self.excluded.iter().any(|excluded| name == *excluded))
    }
}

impl Walk<'_> {
    /// Enters the tree's own directory, where a failure is one of the whole tree.
    fn top(&mut self, located: Located, generation: Option<Located>) -> Result<(), Fault> {
        let path = &self.tree.path;
        let step = Step { path: path.clone(), located, depth: 0, pinned: generation.is_some() };
        self.enter(step).map_err(|error| fault(path, &error))?;

        let Some(located) = generation else { return Ok(()) };
        let step = Step { path: path.clone(), located, depth: 0, pinned: false };
        self.enter(step).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Fault::Swapped,
            _ => fault(path, &error),
        })
    }

    /// Directories of the tree's own come before those that links lead to: a loop then enters nothing twice.
    fn rest(&mut self) -> Result<(), Fault> {
        loop {
            let step = match self.own.pop_front() {
                Some(step) => step,
                None if self.linked.is_empty() => return Ok(()),
                None => {
                    self.linked.sort_by(|left, right| bytes(&right.path).cmp(bytes(&left.path)));
                    self.linked.pop().expect("the list was not empty")
                }
            };
            if self.entries > ENTRIES_MAX {
                return Err(self.tree.too_large(&format!("more than {ENTRIES_MAX} entries")));
            }
            if self.walked.files.len() > FILES_MAX {
                return Err(self.tree.too_large(&format!("more than {FILES_MAX} documents")));
            }
            let path = step.path.clone();
            match self.enter(step) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.walked.findings.push(unreadable(&path, &error)),
            }
        }
    }

    fn enter(&mut self, step: Step) -> io::Result<()> {
        let directory = self.tree.boundary.open_directory(&step.located)?;
        if !self.entered.insert(Inode::of(&fstat(&directory)?)) {
            return Ok(());
        }
        self.walked.directories.push(step.path.clone());

        let mut entries = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                break;
            }
            if !name.as_bytes().starts_with(b".") {
                entries.push((name, entry.file_type()));
            }
        }
        let counts = |name: &OsStr| self.tree.counts(name, step.depth);
        let is_file = |kind: FileType| matches!(kind, FileType::RegularFile | FileType::Unknown);
        let stats = split::map(&entries, |(name, kind)| {
            let is_asked = is_file(*kind) && (*kind == FileType::Unknown || counts(name));
            match is_asked.then(|| statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)) {
                Some(Ok(stat)) => Ok(Some(stat)),
                // It does not count, or is gone since it was listed.
                None | Some(Err(Errno::NOENT)) => Ok(None),
                // The directory may be listed, but not what it holds.
                Some(Err(error)) => Err(error),
            }
        });
        for ((name, kind), stat) in entries.into_iter().zip(stats) {
            let stat = stat?;
            let kind = match &stat {
                Some(stat) => FileType::from_raw_mode(stat.st_mode),
                None if is_file(kind) => continue,
                None => kind,
            };
            match (kind, stat) {
                (FileType::RegularFile, Some(stat)) => {
                    self.found(&step, &name, step.located.join(&name), &stat)
                }
                (FileType::Directory, _) if self.tree.enters(&name, step.depth) => self.own.push_back(Step {
                    path: step.path.join(&name),
                    located: step.located.join(&name),
                    depth: step.depth + 1,
                    pinned: false,
                }),
                (FileType::Symlink, _) if step.pinned && leads_through_generation(&directory, &name) => {}
                (FileType::Symlink, _) => self.follow(&step, &name),
                _ => {}
            }
        }
        Ok(())
    }

    fn found(&mut self, step: &Step, name: &OsStr, located: Located, stat: &Stat) {
        if self.tree.counts(name, step.depth) {
            let identity = Identity::of(stat);
            self.walked.files.push(Found { path: step.path.join(name), located, identity });
        }
    }

    /// Takes a link for what it leads to, where that is inside.
    fn follow(&mut self, step: &Step, name: &OsStr) {
        let path = step.path.join(name);
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                if self.tree.counts(name, step.depth) || self.tree.enters(name, step.depth) {
                    self.walked.findings.push(unreadable(&path, &error));
                }
                return;
            }
            // Dangling, or a loop of links: there is nothing to read.
            Err(_) => return,
        };
        let is_document = metadata.is_file() && self.tree.counts(name, step.depth);
        let is_directory = metadata.is_dir() && self.tree.enters(name, step.depth);
        if !is_document && !is_directory {
            return;
        }
        match self.tree.boundary.locate(&path) {
            Ok(located) if is_directory => {
                self.linked.push(Step { path, located, depth: step.depth + 1, pinned: false });
            }
            Ok(located) => {
                let stat = self.tree.boundary.open_file(&located).and_then(|file| Ok(fstat(&file)?));
                match stat {
                    Ok(stat) => self.found(step, name, located, &stat),
                    Err(error) => self.walked.findings.push(unreadable(&path, &error)),
                }
            }
            Err(Outside::Escapes(target)) => self.walked.findings.push(escapes(&path, &target)),
            Err(Outside::Unresolved(_)) => {}
        }
    }
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            inode: Inode::of(stat),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            changed: (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0)),
        }
    }
}

impl Inode {
    pub(super) fn of(stat: &Stat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }
}

/// Paths are ordered by their bytes; `Path` would compare component by component.
pub(super) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

pub(super) fn finding(severity: Severity, code: Code, path: &Path, message: String) -> Diagnostic {
    let mut diagnostic = Diagnostic::new(severity, code, 0, 0, message);
    diagnostic.path = path.to_string_lossy().into_owned();
    diagnostic
}

pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Diagnostic {
    let message = format!("cannot be read: {error}; give the service's user access to it");
    finding(Severity::Error, Code::Unreadable, path, message)
}

fn escapes(path: &Path, target: &Path) -> Diagnostic {
    let message = format!(
        "the link leads to `{}`, outside its source; move the file, or name its directory in `link_roots`",
        target.display()
    );
    finding(Severity::Error, Code::LinkEscapes, path, message)
}

fn fault(path: &Path, error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::NotFound => Fault::Missing,
        _ => Fault::Failed(unreadable(path, error)),
    }
}

fn leads_through_generation(directory: &impl std::os::fd::AsFd, name: &OsStr) -> bool {
    readlinkat(directory, name, Vec::new()).is_ok_and(|target| {
        target.to_bytes().strip_prefix(GENERATION_LINK.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
    })
}
