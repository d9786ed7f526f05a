//! Roots: directories of the operator, such as a mounted ConfigMap. They are trusted, but still not left.

use std::path::Path;

use super::{
    plan::{Part, Purpose},
    walk::{Depth, Filter},
};

/// Directories directly below a root that hold something else than agents.
const NO_AGENTS: &[&str] = &["commands", "skills"];

/// What a root holds for one purpose.
pub(super) fn parts(root: &Path, purpose: Purpose) -> Vec<Part> {
    let part = |path: &Path, depth, filter, excluded| Part {
        path: path.to_owned(),
        boundary: root.to_owned(),
        untrusted: None,
        depth,
        filter,
        excluded,
    };
    vec![match purpose {
        Purpose::Agents => part(root, Depth::Recursive, Filter::Markdown, NO_AGENTS),
        Purpose::Commands => part(&root.join("commands"), Depth::Recursive, Filter::Markdown, &[]),
        Purpose::Skills => part(&root.join("skills"), Depth::Children, Filter::Named("SKILL.md"), &[]),
    }]
}
