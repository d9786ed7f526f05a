//! The sources of a workspace in the order in which they are asked, as they lie in the file system right now.

use std::path::{Path, PathBuf};

use super::{
    Settings, family, plugin, root,
    walk::{Depth, Filter},
};
use crate::{agent::SourceKind, diagnostic::Diagnostic};

/// What a directory is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    Agents,
    Commands,
    Skills,
}

/// One source.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) kind: SourceKind,
    /// Empty outside families.
    pub(super) family: String,
    /// Empty outside plugins.
    pub(super) plugin: String,
    pub(super) precedence: u32,
    /// True where a document without a name has that of its file.
    pub(super) name_from_stem: bool,
    pub(super) parts: Vec<(Purpose, Part)>,
}

/// One directory of a source.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    /// Never left, but for `link_roots`.
    pub(super) boundary: PathBuf,
    /// Why it is not read.
    pub(super) untrusted: Option<Diagnostic>,
    pub(super) depth: Depth,
    pub(super) filter: Filter,
    pub(super) excluded: &'static [&'static str],
}

/// A directory whose entries decide what the sources are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    pub directory: PathBuf,
    /// The entries that matter; all but hidden ones where absent.
    pub names: Option<Vec<String>>,
}

/// All sources but the authored definitions, which are asked before all of these, and the bundled set.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) slots: Vec<Slot>,
    pub(super) findings: Vec<Diagnostic>,
    pub(super) interests: Vec<Interest>,
    /// The precedence of the bundled set, which comes last.
    pub(super) last: u32,
}

const PURPOSES: [Purpose; 3] = [Purpose::Agents, Purpose::Commands, Purpose::Skills];

impl Plan {
    /// Looks where the sources are.
    pub(super) fn new(settings: &Settings) -> Self {
        // Authored definitions have precedence 0.
        let mut plan = Self { last: 1, ..Self::default() };
        let home = settings.home.as_deref();
        let ancestors = settings.cwd.as_deref().map(|cwd| family::ancestors(cwd, home)).unwrap_or_default();

        for name in &settings.families {
            let project = |purpose| family::project(&ancestors, name, purpose);
            plan.push(settings, SourceKind::Project, name, "", project);
            let user = |purpose| home.map(|home| family::user(home, name, purpose)).unwrap_or_default();
            plan.push(settings, SourceKind::User, name, "", user);
        }
        plan.watch_families(settings, &ancestors);
        if settings.plugins {
            plan.push_plugins(settings, &ancestors);
        }
        for path in &settings.roots {
            plan.push(settings, SourceKind::Root, &path.to_string_lossy(), "", |purpose| {
                root::parts(path, purpose)
            });
            plan.watch_parent(path);
        }
        plan
    }

    /// Takes one source in. `family` is a root's own path where the source is a root.
    fn push(
        &mut self,
        settings: &Settings,
        kind: SourceKind,
        family: &str,
        plugin: &str,
        parts: impl Fn(Purpose) -> Vec<Part>,
    ) {
        let of_family = match kind {
            SourceKind::Project | SourceKind::User => family,
            SourceKind::Authored | SourceKind::Plugin | SourceKind::Root | SourceKind::Bundled => "",
        };
        let with_purpose = |purpose| parts(purpose).into_iter().map(move |part| (purpose, part));
        self.slots.push(Slot {
            kind,
            family: of_family.to_owned(),
            plugin: plugin.to_owned(),
            precedence: self.last,
            name_from_stem: settings.name_from_file.iter().any(|named| named == family),
            parts: PURPOSES.into_iter().flat_map(with_purpose).collect(),
        });
        self.last += 1;
    }

    fn push_plugins(&mut self, settings: &Settings, ancestors: &[PathBuf]) {
        let installed = plugin::installed(settings.cwd.as_deref(), settings.home.as_deref(), ancestors);
        self.findings.extend(installed.findings);
        for registry in installed.registries {
            self.interests
                .push(Interest { directory: registry, names: Some(vec![plugin::REGISTRY_FILE.to_owned()]) });
        }
        for plugin in installed.plugins {
            self.push(settings, SourceKind::Plugin, "", &plugin.id, |purpose| {
                plugin::parts(&plugin.path, purpose)
            });
            let names = ["agents", "commands", "skills"].map(str::to_owned).to_vec();
            self.interests.push(Interest { directory: plugin.path.clone(), names: Some(names) });
        }
    }

    /// A family's directory may appear in any ancestor, and its parts in any directory of the family.
    fn watch_families(&mut self, settings: &Settings, ancestors: &[PathBuf]) {
        let of_user = settings.home.iter().flat_map(|home| {
            let bases = settings.families.iter().map(|family| family::user_base(home, family));
            std::iter::once((home.clone(), settings.families.clone()))
                .chain(bases.map(|base| (base, part_names())))
        });
        let of_project = ancestors.iter().flat_map(|ancestor| {
            let mut names = settings.families.clone();
            names.push(".git".to_owned());
            let bases = settings.families.iter().map(|family| ancestor.join(family));
            std::iter::once((ancestor.clone(), names)).chain(bases.map(|base| (base, part_names())))
        });
        let interests =
            of_user.chain(of_project).map(|(directory, names)| Interest { directory, names: Some(names) });
        self.interests.extend(interests.collect::<Vec<_>>());
    }

    /// A root that is missing, or a link that is swapped, shows in the directory above it.
    fn watch_parent(&mut self, root: &Path) {
        if let (Some(parent), Some(name)) = (root.parent(), root.file_name()) {
            let names = Some(vec![name.to_string_lossy().into_owned()]);
            self.interests.push(Interest { directory: parent.to_owned(), names });
        }
    }
}

/// What matters in the directory of a family.
fn part_names() -> Vec<String> {
    ["agent", "agents", "commands", "skills", "plugins"].map(str::to_owned).to_vec()
}
