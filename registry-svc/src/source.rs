//! The sources of a workspace: where they are, what they hold, and what of it changed since they were read last.

pub(crate) mod authored;
mod boundary;
mod bundled;
mod cache;
mod family;
mod plan;
mod plugin;
mod read;
mod root;
mod split;
mod walk;
pub(crate) mod watch;

use std::{
    collections::{HashMap, HashSet},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tracing::warn;

use self::{
    boundary::Boundary,
    cache::{Cache, Item, Origin, Task},
    plan::{Part, Plan, Purpose, Slot},
    walk::{Fault, Found, Tree, Walked},
};
use crate::{
    agent::{Source, SourceKind},
    command::Command,
    definition::GuardedNames,
    diagnostic::{Code, Diagnostic},
    document::Document,
    error::StartError,
    merge::Policy,
    skill::Skill,
};

pub use self::plan::Interest;
pub(crate) use self::{
    cache::{is_no_document, stem},
    walk::unreadable,
};

/// Readings that are begun again because a mount was swapped meanwhile. Kubernetes swaps once a minute at most.
const SWAPS_MAX: usize = 4;

/// Where a workspace looks for definitions. Each part can be left out.
#[derive(Clone, Debug)]
pub struct Settings {
    pub cwd: Option<PathBuf>,
    pub home: Option<PathBuf>,
    pub families: Vec<String>,
    pub plugins: bool,
    pub roots: Vec<PathBuf>,
    pub bundled: bool,
    /// Families and roots whose documents without a name are called after their files.
    pub name_from_file: Vec<String>,
    /// Directories that links may lead to from anywhere.
    pub link_roots: Vec<PathBuf>,
}

/// What one reading of the sources found.
#[derive(Debug, Default)]
pub struct Scan {
    /// In merge order.
    pub documents: Vec<Arc<Document>>,
    /// What was found beside the documents.
    pub findings: Vec<Diagnostic>,
    pub commands: Vec<Arc<Command>>,
    pub skills: Vec<Arc<Skill>>,
    /// What to watch for changes.
    pub interests: Vec<Interest>,
}

/// Reads the sources, and again only what changed in them.
#[derive(Debug)]
pub struct Scanner {
    settings: Settings,
    guarded_names: GuardedNames,
    bundled: Vec<Arc<Document>>,
    cache: Cache,
    last_good: HashMap<(Purpose, PathBuf), Vec<Item>>,
}

/// Reads single documents again, for whoever wants their bytes.
#[derive(Debug)]
pub struct Reader {
    home: Option<PathBuf>,
    link_roots: Vec<PathBuf>,
}

/// What one directory of a source brought.
struct Group {
    key: (Purpose, PathBuf),
    content: Content,
}

enum Content {
    Walked {
        origin: Origin,
        files: Vec<Found>,
        boundary: Boundary,
    },
    /// It could not be read; what it held before stays.
    Kept(Vec<Item>),
    /// It changed while it was read; what it held before stays unless it can be read now.
    Torn(Vec<Item>),
}

/// Says in the log that the front matter of a document just read is no YAML, and only where: a log holds no contents.
pub(crate) fn warn_of_rescue(document: &Document) {
    let is_rescue = |diagnostic: &&Diagnostic| diagnostic.code == Code::FrontMatterRescued;
    if let Some(Diagnostic { code, path, line, agent, .. }) = document.diagnostics.iter().find(is_rescue) {
        warn!(code = code.as_str(), path, line, agent, "front matter is no YAML; it was read line by line");
    }
}

/// Names that another name must not be confusable with: protected ones, and those of the bundled set where it is asked.
pub(crate) fn guarded_names(protected: &[String], bundled: bool) -> GuardedNames {
    let mut guarded: Vec<&str> = protected.iter().map(String::as_str).collect();
    for name in bundled::names().filter(|_| bundled) {
        if !guarded.contains(&name) {
            guarded.push(name);
        }
    }
    GuardedNames::new(guarded)
}

impl Settings {
    /// The same with absolute paths, so that a later change of the current directory means nothing.
    fn absolute(&self) -> Self {
        let absolute = |path: &PathBuf| {
            let climbs = path.components().any(|component| component == std::path::Component::ParentDir);
            let resolved = climbs.then(|| path.canonicalize().ok()).flatten();
            resolved.or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.clone())
        };
        let name_from_file = self.name_from_file.iter().flat_map(|name| {
            let path = absolute(&PathBuf::from(name)).to_string_lossy().into_owned();
            [name.clone(), path]
        });
        Self {
            cwd: self.cwd.as_ref().map(absolute),
            home: self.home.as_ref().map(absolute),
            families: self.families.clone(),
            plugins: self.plugins,
            roots: self.roots.iter().map(absolute).collect(),
            bundled: self.bundled,
            name_from_file: name_from_file.collect(),
            link_roots: self.link_roots.iter().map(absolute).collect(),
        }
    }
}

impl Scan {
    /// True when nothing of it differs from an earlier scan. Unchanged documents are shared, so this is cheap.
    pub fn same_as(&self, earlier: &Self) -> bool {
        let Self { documents, findings, commands, skills, interests: _ } = self;
        let same_documents = documents.len() == earlier.documents.len()
            && documents.iter().zip(&earlier.documents).all(|(left, right)| Arc::ptr_eq(left, right));
        same_documents
            && *findings == earlier.findings
            && *commands == earlier.commands
            && *skills == earlier.skills
    }
}

impl Scanner {
    pub fn new(settings: &Settings, policy: &Policy) -> Result<Self, StartError> {
        Ok(Self {
            settings: settings.absolute(),
            guarded_names: guarded_names(&policy.protected, settings.bundled),
            bundled: if settings.bundled { bundled::documents(0)? } else { Vec::new() },
            cache: Cache::default(),
            last_good: HashMap::new(),
        })
    }

    /// Names that another name must not be confusable with.
    pub fn guarded_names(&self) -> &GuardedNames {
        &self.guarded_names
    }

    /// Reads what changed since the last scan.
    pub fn scan(&mut self) -> Scan {
        for _ in 1..SWAPS_MAX {
            if let Some(scan) = self.scan_once(false) {
                return scan;
            }
        }
        self.scan_once(true).unwrap_or_default()
    }

    /// One pass; nothing where a file vanished while the pass went on, unless that is to be put up with.
    fn scan_once(&mut self, is_last: bool) -> Option<Scan> {
        let Plan { slots, findings, interests, last } = Plan::new(&self.settings);
        let mut scan = Scan { findings, interests, ..Scan::default() };
        let mut entered = HashSet::new();
        let mut groups = Vec::new();
        for slot in &slots {
            for (purpose, part) in &slot.parts {
                groups.extend(self.walk(slot, *purpose, part, &mut entered, &mut scan));
            }
        }

        // A file is read once, under its first path, whatever else leads to it.
        let mut seen = HashSet::new();
        for group in &mut groups {
            let purpose = group.key.0;
            if let Content::Walked { files, .. } = &mut group.content {
                files.retain(|found| seen.insert((purpose, found.identity.inode)));
            }
        }
        let tasks: Vec<Task<'_>> = groups.iter().flat_map(Group::tasks).collect();
        let items = self.cache.fill(&tasks, &self.guarded_names);
        let is_torn = groups.iter().any(|group| matches!(group.content, Content::Torn(_)))
            || items.iter().any(|item| matches!(item, Item::Vanished));
        if is_torn && !is_last {
            return None;
        }
        self.gather(groups, items, &mut scan);
        self.add_bundled(last, &mut scan);
        Some(scan)
    }

    /// Lists one directory of a source.
    fn walk(
        &self,
        slot: &Slot,
        purpose: Purpose,
        part: &Part,
        entered: &mut HashSet<(Purpose, u64, u64)>,
        scan: &mut Scan,
    ) -> Option<Group> {
        if let Some(diagnostic) = &part.untrusted {
            // A family's own directory is said once, not for each of its parts.
            if !scan.findings.contains(diagnostic) {
                scan.findings.push(diagnostic.clone());
            }
            return None;
        }
        let inode = part.path.metadata().ok().map(|metadata| (purpose, metadata.dev(), metadata.ino()));
        if inode.is_some_and(|inode| entered.contains(&inode)) {
            return None;
        }

        let link_roots = self.settings.link_roots.iter().map(PathBuf::as_path);
        let boundary = Boundary::open(std::iter::once(part.boundary.as_path()).chain(link_roots));
        let tree = Tree {
            path: part.path.clone(),
            boundary,
            depth: part.depth,
            filter: part.filter,
            excluded: part.excluded,
        };
        let key = (purpose, part.path.clone());
        let origin = Origin {
            purpose,
            kind: slot.kind,
            family: slot.family.clone(),
            plugin: slot.plugin.clone(),
            precedence: slot.precedence,
            directory: part.path.to_string_lossy().into(),
            name_from_stem: slot.name_from_stem,
        };
        match tree.walk() {
            Ok(Walked { files, findings, directories }) => {
                // Only what was read counts as read: a link that escapes must not hide the directory it leads to.
                entered.extend(inode);
                scan.findings.extend(findings);
                let whole = |directory| Interest { directory, names: None };
                scan.interests.extend(directories.into_iter().map(whole));
                Some(Group { key, content: Content::Walked { origin, files, boundary: tree.boundary } })
            }
            Err(Fault::Missing) => None,
            Err(Fault::Swapped) => {
                scan.interests.push(Interest { directory: part.path.clone(), names: None });
                let items = self.last_good(&key, &origin);
                Some(Group { key, content: Content::Torn(items) })
            }
            Err(Fault::Failed(diagnostic)) => {
                scan.findings.push(diagnostic);
                scan.interests.push(Interest { directory: part.path.clone(), names: None });
                let items = self.last_good(&key, &origin);
                Some(Group { key, content: Content::Kept(items) })
            }
        }
    }

    /// What a directory held when it was last read whole.
    fn last_good(&self, key: &(Purpose, PathBuf), origin: &Origin) -> Vec<Item> {
        let kept = self.last_good.get(key).into_iter().flatten();
        kept.map(|item| item.at(origin)).collect()
    }

    /// Sorts the items of all directories into the scan, and keeps them for the time when a directory cannot be read.
    fn gather(&mut self, groups: Vec<Group>, items: Vec<Item>, scan: &mut Scan) {
        let mut items = items.into_iter();
        let mut last_good = HashMap::new();
        for Group { key, content } in groups {
            let of_group: Vec<Item> = match content {
                Content::Walked { origin, files, .. } => {
                    let read: Vec<Item> = items.by_ref().take(files.len()).collect();
                    let is_torn = read.iter().any(|item| matches!(item, Item::Vanished));
                    // It changes faster than it can be read; half of it would be worse than the last whole.
                    match is_torn && self.last_good.contains_key(&key) {
                        true => self.last_good(&key, &origin),
                        false => read,
                    }
                }
                Content::Kept(items) | Content::Torn(items) => items,
            };
            for item in &of_group {
                match item {
                    Item::Agent(document) => scan.documents.push(Arc::clone(document)),
                    Item::Command(command) => scan.commands.push(Arc::clone(command)),
                    Item::Skill(skill) => scan.skills.push(Arc::clone(skill)),
                    Item::Finding(diagnostic) => scan.findings.push(diagnostic.clone()),
                    Item::Ignored | Item::Vanished => {}
                }
            }
            last_good.insert(key, of_group);
        }
        self.last_good = last_good;
    }

    fn add_bundled(&mut self, precedence: u32, scan: &mut Scan) {
        for document in &mut self.bundled {
            if document.source.precedence != precedence {
                let source = Source { precedence, ..Source::clone(&document.source) };
                *document = Arc::new(document.moved_to(Arc::new(source)));
            }
        }
        scan.documents.extend(self.bundled.iter().cloned());
    }
}

impl Group {
    fn tasks(&self) -> impl Iterator<Item = Task<'_>> {
        let walked = match &self.content {
            Content::Walked { origin, files, boundary } => Some((origin, files, boundary)),
            Content::Kept(_) | Content::Torn(_) => None,
        };
        walked.into_iter().flat_map(|(origin, files, boundary)| {
            files.iter().map(move |found| Task { origin, boundary, found })
        })
    }
}

impl Reader {
    pub fn new(settings: &Settings) -> Self {
        let Settings { home, link_roots, .. } = settings.absolute();
        Self { home, link_roots }
    }

    /// The bytes at a source now; nothing where they can no longer be read. Authored documents are not files.
    pub fn read(&self, source: &Source) -> Option<Vec<u8>> {
        let directory = Path::new(&*source.directory);
        let boundary = match source.kind {
            SourceKind::Authored => return None,
            SourceKind::Bundled => return bundled::read(&source.path).map(<[u8]>::to_vec),
            SourceKind::Project => directory.parent()?.parent()?,
            SourceKind::User => self.home.as_deref()?,
            SourceKind::Plugin => directory.parent()?,
            SourceKind::Root => directory,
        };
        let link_roots = self.link_roots.iter().map(PathBuf::as_path);
        let boundary = Boundary::open(std::iter::once(boundary).chain(link_roots));
        let located = boundary.locate(Path::new(&source.path)).ok()?;
        let file = boundary.open_file(&located).ok()?;
        read::read_regular(file, cache::DOCUMENT_BYTES_MAX).ok().map(|reading| reading.bytes)
    }
}

#[cfg(test)]
mod tests;
