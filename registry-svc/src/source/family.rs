//! Where the families of agent files lie: the nearest directory of the project, and the one of the user.

use std::{
    fs::Metadata,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{
    plan::{Part, Purpose},
    walk::{Depth, Filter, finding},
};
use crate::diagnostic::{Code, Diagnostic, Severity};

/// Ancestors looked at: a path of the kernel is at most 4,096 bytes long.
const ANCESTORS_MAX: usize = 2048;

/// Permission bits of everybody.
const WRITABLE_BY_EVERYBODY: u32 = 0o002;

/// Names of the directory of agents in a family, all of which are read.
fn agent_directories(family: &str) -> &'static [&'static str] {
    match family {
        ".opencode" => &["agent", "agents"],
        _ => &["agents"],
    }
}

fn names(family: &str, purpose: Purpose) -> &'static [&'static str] {
    match purpose {
        Purpose::Agents => agent_directories(family),
        Purpose::Commands => &["commands"],
        Purpose::Skills => &["skills"],
    }
}

/// The directories between a workspace and the root of its repository, nearest first.
pub(super) fn ancestors(cwd: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let home = home.map(|home| (home, home.metadata().ok().as_ref().map(inode)));
    let is_home = |directory: &Path| {
        home.is_some_and(|(path, of_home)| {
            let same_file = directory.metadata().ok().as_ref().map(inode);
            path == directory || (same_file.is_some() && same_file == of_home)
        })
    };
    let mut found = Vec::new();
    for directory in cwd.ancestors().take(ANCESTORS_MAX) {
        let is_file_system_root = directory.parent().is_none();
        if is_file_system_root || is_home(directory) {
            break;
        }
        found.push(directory.to_owned());
        if directory.join(".git").symlink_metadata().is_ok() {
            break;
        }
    }
    found
}

/// The project's directories for one purpose: those of the nearest ancestor that has any.
pub(super) fn project(ancestors: &[PathBuf], family: &str, purpose: Purpose) -> Vec<Part> {
    let find = |ancestor: &PathBuf| {
        let base = ancestor.join(family);
        let parts = parts(&base, family, purpose, ancestor);
        (!parts.is_empty()).then_some(parts)
    };
    ancestors.iter().find_map(find).unwrap_or_default()
}

/// The user's directories for one purpose.
pub(super) fn user(home: &Path, family: &str, purpose: Purpose) -> Vec<Part> {
    parts(&user_base(home, family), family, purpose, home)
}

/// The directory of a family below a home. `.xcsh` keeps its agents one level further down.
pub(super) fn user_base(home: &Path, family: &str) -> PathBuf {
    match family {
        ".xcsh" => home.join(family).join("agent"),
        _ => home.join(family),
    }
}

/// Says that a directory may have been filled by somebody else.
pub(super) fn untrusted(directory: &Path) -> Option<Diagnostic> {
    let metadata = directory.metadata().ok()?;
    let user = rustix::process::geteuid().as_raw();
    let message = if metadata.uid() != user && metadata.uid() != 0 {
        format!(
            "the directory belongs to user {}; it is not read until the service's user or root owns it",
            metadata.uid()
        )
    } else if metadata.mode() & WRITABLE_BY_EVERYBODY != 0 {
        "everybody may write to the directory; it is not read until `chmod o-w`".to_owned()
    } else {
        return None;
    };
    Some(finding(Severity::Error, Code::UntrustedOwner, directory, message))
}

fn first_untrusted(directories: &[&Path]) -> Option<Diagnostic> {
    directories.iter().find_map(|directory| untrusted(directory))
}

fn parts(base: &Path, family: &str, purpose: Purpose, boundary: &Path) -> Vec<Part> {
    let directories = names(family, purpose).iter().map(|name| base.join(name));
    let present = directories.filter(|directory| may_be_there(directory));
    let part = |directory: PathBuf| Part {
        untrusted: first_untrusted(&[&boundary.join(family), base, &directory]),
        boundary: boundary.to_owned(),
        depth: depth(family, purpose),
        filter: filter(family, purpose),
        excluded: &[],
        path: directory,
    };
    present.map(part).collect()
}

/// What may not be looked at counts as there: reading it then says why it brings nothing.
fn may_be_there(directory: &Path) -> bool {
    match directory.metadata() {
        Ok(metadata) => metadata.is_dir(),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

fn depth(family: &str, purpose: Purpose) -> Depth {
    match (purpose, family) {
        (Purpose::Skills, _) => Depth::Children,
        (Purpose::Agents | Purpose::Commands, ".claude") => Depth::Recursive,
        (Purpose::Agents | Purpose::Commands, _) => Depth::Flat,
    }
}

fn filter(family: &str, purpose: Purpose) -> Filter {
    match (purpose, family) {
        (Purpose::Skills, _) => Filter::Named("SKILL.md"),
        (Purpose::Agents, ".codex") => Filter::MarkdownAndToml,
        (Purpose::Agents | Purpose::Commands, _) => Filter::Markdown,
    }
}

fn inode(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
