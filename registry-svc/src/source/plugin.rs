//! Installed plugins, as Claude Code records them: one file of the user, one of the project.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustix::fs::fstat;
use serde::Deserialize;
use serde_json::Value;

use super::{
    boundary::{Boundary, Outside},
    family,
    plan::{Part, Purpose},
    read::read_regular,
    walk::{Depth, Filter, finding, unreadable},
};
use crate::diagnostic::{Code, Diagnostic, Severity};

/// The file's name.
pub(super) const REGISTRY_FILE: &str = "installed_plugins.json";

/// Where it lies below a home or a project.
const REGISTRY_DIRECTORY: &str = ".claude/plugins";

/// Largest file of plugins: a thousand entries take 256 KiB.
const REGISTRY_BYTES_MAX: u64 = 1024 * 1024;

/// Plugins of one workspace; each is a source with a place in the order.
const PLUGINS_MAX: usize = 1000;

/// What is installed.
#[derive(Debug, Default)]
pub(super) struct Installed {
    /// In merge order.
    pub(super) plugins: Vec<Plugin>,
    pub(super) findings: Vec<Diagnostic>,
    /// Directories that hold, or could hold, a file of plugins.
    pub(super) registries: Vec<PathBuf>,
}

/// One plugin that counts here.
#[derive(Debug)]
pub(super) struct Plugin {
    /// `<plugin>@<marketplace>`.
    pub(super) id: String,
    pub(super) path: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    User,
    Project,
    Local,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    scope: Scope,
    install_path: PathBuf,
    project_path: Option<PathBuf>,
    enabled: Option<bool>,
}

/// Whose file it is: a project comes from somewhere else, so its file may not name any directory.
struct Registry<'a> {
    directory: PathBuf,
    /// The directory that the file is read below.
    owner: &'a Path,
    allowed: Option<Vec<PathBuf>>,
}

/// What a plugin holds for one purpose.
pub(super) fn parts(install_path: &Path, purpose: Purpose) -> Vec<Part> {
    let (name, depth, filter) = match purpose {
        Purpose::Agents => ("agents", Depth::Recursive, Filter::Markdown),
        Purpose::Commands => ("commands", Depth::Recursive, Filter::Markdown),
        Purpose::Skills => ("skills", Depth::Children, Filter::Named("SKILL.md")),
    };
    vec![Part {
        path: install_path.join(name),
        boundary: install_path.to_owned(),
        untrusted: None,
        depth,
        filter,
        excluded: &[],
    }]
}

/// Reads the user's file, then the project's.
pub(super) fn installed(cwd: Option<&Path>, home: Option<&Path>, ancestors: &[PathBuf]) -> Installed {
    let mut installed = Installed::default();
    let mut entries: Vec<(Scope, Plugin)> = Vec::new();
    for registry in registries(home, ancestors, &mut installed.registries) {
        entries.extend(registry.read(cwd, &mut installed.findings));
    }
    // A stable sort: project and local scope first, each in file order.
    entries.sort_by_key(|(scope, _)| *scope == Scope::User);
    installed.plugins = entries.into_iter().map(|(_, plugin)| plugin).take(PLUGINS_MAX).collect();
    installed
}

fn registries<'a>(
    home: Option<&'a Path>,
    ancestors: &'a [PathBuf],
    directories: &mut Vec<PathBuf>,
) -> Vec<Registry<'a>> {
    let of_user =
        home.map(|home| Registry { directory: home.join(REGISTRY_DIRECTORY), owner: home, allowed: None });
    let holds_registry = |ancestor: &&PathBuf| ancestor.join(REGISTRY_DIRECTORY).join(REGISTRY_FILE).exists();
    let of_project = ancestors.iter().find(holds_registry).map(|ancestor| Registry {
        directory: ancestor.join(REGISTRY_DIRECTORY),
        owner: ancestor,
        allowed: Some(
            std::iter::once(ancestor.clone()).chain(home.map(|home| home.join(REGISTRY_DIRECTORY))).collect(),
        ),
    });
    directories.extend(home.map(|home| home.join(REGISTRY_DIRECTORY)));
    directories.extend(ancestors.iter().map(|ancestor| ancestor.join(REGISTRY_DIRECTORY)));
    of_user.into_iter().chain(of_project).collect()
}

impl Registry<'_> {
    fn read(&self, cwd: Option<&Path>, findings: &mut Vec<Diagnostic>) -> Vec<(Scope, Plugin)> {
        let path = self.directory.join(REGISTRY_FILE);
        let bytes = match self.bytes(&path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Vec::new(),
            Err(diagnostic) => {
                findings.push(diagnostic);
                return Vec::new();
            }
        };
        let invalid = |message: String| finding(Severity::Error, Code::PluginRegistryInvalid, &path, message);
        let registry: Value = match serde_json::from_slice(&bytes) {
            Ok(registry) => registry,
            Err(error) => {
                let mut diagnostic = invalid(format!("no valid JSON: {error}; correct or remove the file"));
                diagnostic.line = u32::try_from(error.line()).unwrap_or(0);
                diagnostic.column = u32::try_from(error.column()).unwrap_or(0);
                findings.push(diagnostic);
                return Vec::new();
            }
        };
        let Some(plugins) = registry.get("plugins").and_then(Value::as_object) else {
            findings.push(invalid(
                "`plugins` is no map of plugin to entries; correct or remove the file".to_owned(),
            ));
            return Vec::new();
        };

        let mut counting = Vec::new();
        for (id, entries) in plugins {
            let Some(entries) = entries.as_array() else {
                findings.push(entry_invalid(&path, id, "its value is no list of entries"));
                continue;
            };
            for entry in entries {
                match self.entry(id, entry, cwd) {
                    Ok(plugin) => counting.extend(plugin),
                    Err(reason) => findings.push(entry_invalid(&path, id, &reason)),
                }
            }
        }
        counting
    }

    /// The file's bytes; nothing where it does not exist.
    fn bytes(&self, path: &Path) -> Result<Option<Vec<u8>>, Diagnostic> {
        let base = self.owner.join(".claude");
        match path.metadata() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(unreadable(path, &error));
            }
            Err(_) => return Ok(None),
        }
        if let Some(diagnostic) = family::untrusted(&base).or_else(|| family::untrusted(&self.directory)) {
            return Err(diagnostic);
        }
        let boundary = Boundary::open([self.owner]);
        let located = match boundary.locate(path) {
            Ok(located) => located,
            Err(Outside::Unresolved(_)) => return Ok(None),
            Err(Outside::Escapes(target)) => {
                let message =
                    format!("the file leads to `{}`, outside its place; replace the link", target.display());
                return Err(finding(Severity::Error, Code::LinkEscapes, path, message));
            }
        };
        let file = boundary.open_file(&located).map_err(|error| unreadable(path, &error))?;
        let size = fstat(&file).map(|stat| u64::try_from(stat.st_size).unwrap_or(0));
        if size.is_ok_and(|size| size > REGISTRY_BYTES_MAX) {
            let message = format!("the file is larger than {REGISTRY_BYTES_MAX} bytes; remove entries");
            return Err(finding(Severity::Error, Code::PluginRegistryInvalid, path, message));
        }
        let reading = read_regular(file, REGISTRY_BYTES_MAX).map_err(|error| unreadable(path, &error))?;
        Ok(Some(reading.bytes))
    }

    /// The plugin of an entry, where it counts here.
    fn entry(&self, id: &str, entry: &Value, cwd: Option<&Path>) -> Result<Option<(Scope, Plugin)>, String> {
        match id.rsplit_once('@') {
            Some((plugin, marketplace)) if !plugin.is_empty() && !marketplace.is_empty() => {}
            Some(_) | None => return Err("its id is not `<plugin>@<marketplace>`".to_owned()),
        }
        let Entry { scope, install_path, project_path, enabled } =
            Entry::deserialize(entry).map_err(|error| error.to_string())?;
        if !install_path.is_absolute() {
            return Err(format!("its `installPath` `{}` is not absolute", install_path.display()));
        }
        match scope {
            Scope::User => {}
            Scope::Project | Scope::Local => {
                let project = project_path.ok_or("its `projectPath` is missing")?;
                if !cwd.is_some_and(|cwd| is_below(cwd, &project)) {
                    return Ok(None);
                }
            }
        }
        let is_allowed =
            |allowed: &Vec<PathBuf>| allowed.iter().any(|allowed| is_below(&install_path, allowed));
        if !self.allowed.as_ref().is_none_or(is_allowed) {
            return Err(format!(
                "its `installPath` `{}` is outside the project and the user's plugins",
                install_path.display()
            ));
        }
        let plugin = Plugin { id: id.to_owned(), path: install_path };
        Ok(enabled.unwrap_or(true).then_some((scope, plugin)))
    }
}

/// Whether a path lies below a directory, both resolved as far as they exist.
fn is_below(path: &Path, directory: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else { return false };
    match path.canonicalize() {
        Ok(path) => path.starts_with(directory),
        // What does not exist brings nothing; but it must not be a way round the rule once it does.
        Err(_) => {
            let climbs = path.components().any(|component| component == std::path::Component::ParentDir);
            let parent = path.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
            !climbs && parent.is_some_and(|parent| parent.starts_with(directory))
        }
    }
}

fn entry_invalid(path: &Path, id: &str, reason: &str) -> Diagnostic {
    let message = format!("plugin `{id}`: {reason}; correct or remove the entry");
    finding(Severity::Error, Code::PluginEntryInvalid, path, message)
}
