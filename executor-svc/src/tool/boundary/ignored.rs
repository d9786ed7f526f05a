//! What `.gitignore` files leave out. They are read through the boundary, since a hostile one may be a pipe or a link to
//! a device, and by a bounded amount.

use std::{io::Read, path::Path, sync::Arc};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

use super::{Boundary, Place};

/// Most of a `.gitignore` that is read; git's own largest templates have a few KiB.
const FILE_MAX: u64 = 256 * 1024;

/// The rules in force in one directory: its own file's before those above it.
#[derive(Clone)]
pub(in crate::tool) struct Ignored {
    rules: Option<Arc<Rules>>,
}

struct Rules {
    matcher: Gitignore,
    above: Option<Arc<Rules>>,
}

impl Ignored {
    /// The rules in force in a directory below the root.
    pub(in crate::tool) fn at(boundary: &Boundary, directory: &Path) -> Self {
        let mut ancestors: Vec<&Path> = directory.ancestors().collect();
        ancestors.reverse();
        ancestors
            .into_iter()
            .fold(Self { rules: None }, |ignored, ancestor| ignored.enter(boundary, ancestor))
    }

    /// The rules in force one directory further down.
    pub(in crate::tool) fn enter(&self, boundary: &Boundary, directory: &Path) -> Self {
        if !boundary.honours_gitignore() {
            return Self { rules: None };
        }
        match read(boundary, directory) {
            Some(matcher) => Self { rules: Some(Arc::new(Rules { matcher, above: self.rules.clone() })) },
            None => self.clone(),
        }
    }

    /// Whether an entry of this directory is left out.
    pub(in crate::tool) fn contains(&self, boundary: &Boundary, entry: &Path, is_directory: bool) -> bool {
        let absolute = boundary.root().join(entry);
        let mut rules = self.rules.as_deref();
        while let Some(Rules { matcher, above }) = rules {
            match matcher.matched(&absolute, is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => rules = above.as_deref(),
            }
        }
        false
    }

    /// Whether a path or a directory above it is left out.
    pub(super) fn covers(boundary: &Boundary, relative: &Path) -> bool {
        let is_directory = boundary.directory(&Place::found(relative.to_owned())).is_ok();
        let mut ancestors: Vec<&Path> = relative.ancestors().collect();
        ancestors.reverse();
        let mut ignored = Self { rules: None };
        // Each directory with the one or the file below it, from the root on.
        ancestors.windows(2).any(|pair| {
            ignored = ignored.enter(boundary, pair[0]);
            ignored.contains(boundary, pair[1], is_directory || pair[1] != relative)
        })
    }
}

fn read(boundary: &Boundary, directory: &Path) -> Option<Gitignore> {
    let file = boundary.file(&Place::found(directory.join(".gitignore"))).ok()?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes).ok()?;

    let mut builder = GitignoreBuilder::new(boundary.root().join(directory));
    for line in String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').lines() {
        // A line that is no pattern ignores nothing, as in git.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|matcher| !matcher.is_empty())
}
