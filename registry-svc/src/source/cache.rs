//! What was made of each file, so that a file is read and parsed again only when it changed.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    boundary::Boundary,
    plan::Purpose,
    read::{Reading, read_regular},
    split,
    walk::{Found, Identity, unreadable},
    warn_of_rescue,
};
use crate::{
    agent::{Digest, Source, SourceKind},
    command::Command,
    definition::{self, Format, GuardedNames},
    diagnostic::Diagnostic,
    document::Document,
    skill::Skill,
};

/// Largest document in bytes; the parser says so of a larger one.
pub(super) const DOCUMENT_BYTES_MAX: u64 = definition::DOCUMENT_MAX as u64;

/// A file changed this recently may change again without another time stamp: a tick of the kernel is up to 10 ms long.
const TICK: Duration = Duration::from_millis(100);

/// Files that are skipped without a word unless they are definitions.
const NO_DOCUMENTS: [&str; 3] = ["readme.md", "claude.md", "agents.md"];

/// The source that a file belongs to.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) purpose: Purpose,
    pub(super) kind: SourceKind,
    pub(super) family: String,
    pub(super) plugin: String,
    pub(super) precedence: u32,
    pub(super) directory: Arc<str>,
    pub(super) name_from_stem: bool,
}

/// One file to look at.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) origin: &'a Origin,
    pub(super) boundary: &'a Boundary,
    pub(super) found: &'a Found,
}

/// What was made of a file.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Agent(Arc<Document>),
    Command(Arc<Command>),
    Skill(Arc<Skill>),
    /// It could not be read, or is a broken command or skill.
    Finding(Diagnostic),
    /// No document, and nobody expects one.
    Ignored,
    /// It was gone when it was to be read.
    Vanished,
}

/// Files by their path and purpose.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<(Purpose, PathBuf), Cached>,
    pass: u64,
}

#[derive(Debug)]
struct Cached {
    identity: Identity,
    /// It may have changed since without another identity.
    is_racy: bool,
    item: Item,
    pass: u64,
}

impl Origin {
    fn source(&self, path: &Path) -> Source {
        Source {
            kind: self.kind,
            family: self.family.clone(),
            path: path.to_string_lossy().into_owned(),
            directory: Arc::clone(&self.directory),
            plugin: self.plugin.clone(),
            precedence: self.precedence,
        }
    }

    fn is_of(&self, source: &Source) -> bool {
        let Source { kind, family, path: _, directory, plugin, precedence } = source;
        self.kind == *kind
            && self.precedence == *precedence
            && self.family == *family
            && self.plugin == *plugin
            && self.directory == *directory
    }
}

impl Item {
    /// The same item where its source has moved in the order of sources.
    pub(super) fn at(&self, origin: &Origin) -> Self {
        let moved = |source: &Source| Arc::new(origin.source(Path::new(&source.path)));
        match self {
            Self::Agent(document) if !origin.is_of(&document.source) => {
                Self::Agent(Arc::new(document.moved_to(moved(&document.source))))
            }
            Self::Command(command) if !origin.is_of(&command.source) => {
                Self::Command(Arc::new(Command { source: moved(&command.source), ..Command::clone(command) }))
            }
            Self::Skill(skill) if !origin.is_of(&skill.source) => {
                Self::Skill(Arc::new(Skill { source: moved(&skill.source), ..Skill::clone(skill) }))
            }
            Self::Agent(_)
            | Self::Command(_)
            | Self::Skill(_)
            | Self::Finding(_)
            | Self::Ignored
            | Self::Vanished => self.clone(),
        }
    }
}

impl Cache {
    /// Makes an item of each file, in the order given, reading only what changed. Files not asked for are forgotten.
    pub(super) fn fill(&mut self, tasks: &[Task<'_>], guarded_names: &GuardedNames) -> Vec<Item> {
        self.pass += 1;
        let mut items: Vec<Option<Item>> = Vec::with_capacity(tasks.len());
        let mut missing: Vec<usize> = Vec::new();
        let mut key = (Purpose::Agents, PathBuf::new());
        for (index, task) in tasks.iter().enumerate() {
            key.0 = task.origin.purpose;
            key.1.clone_from(&task.found.path);
            let hit =
                self.entries.get_mut(&key).filter(|it| !it.is_racy && it.identity == task.found.identity);
            items.push(hit.map(|cached| {
                cached.pass = self.pass;
                cached.item = cached.item.at(task.origin);
                cached.item.clone()
            }));
            if items[index].is_none() {
                missing.push(index);
            }
        }

        let made = split::map(&missing, |index| self.make(&tasks[*index], guarded_names));
        for (index, made) in missing.into_iter().zip(made) {
            let Made { identity, is_racy, item } = made;
            items[index] = Some(item.clone());
            let Task { origin, found, .. } = tasks[index];
            let cached = Cached { identity, is_racy, item, pass: self.pass };
            self.entries.insert((origin.purpose, found.path.clone()), cached);
        }
        self.entries.retain(|_, cached| cached.pass == self.pass);
        items.into_iter().map(|item| item.expect("every file is a hit or was made")).collect()
    }
}

struct Made {
    identity: Identity,
    is_racy: bool,
    item: Item,
}

impl Cache {
    fn make(&self, task: &Task<'_>, guarded_names: &GuardedNames) -> Made {
        let Task { origin, boundary, found } = task;
        let file = boundary.open_file(&found.located);
        let (identity, is_racy, item) = match file.and_then(|file| read_regular(file, DOCUMENT_BYTES_MAX)) {
            Ok(Reading { bytes, before, after }) => {
                let (before, after) = (Identity::of(&before), Identity::of(&after));
                let item = self
                    .same(task, &bytes)
                    .unwrap_or_else(|| parse(origin, &found.path, &bytes, before.size, guarded_names));
                (before, before != after || is_recent(before), item)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (found.identity, true, Item::Vanished),
            // Rights may come back without any change to the file.
            Err(error) => (found.identity, true, Item::Finding(unreadable(&found.path, &error))),
        };
        Made { identity, is_racy, item }
    }

    /// What was made of the same bytes before: a file may look changed and not be.
    fn same(&self, task: &Task<'_>, bytes: &[u8]) -> Option<Item> {
        let cached = self.entries.get(&(task.origin.purpose, task.found.path.clone()))?;
        let digest = match &cached.item {
            Item::Agent(document) => document.digest,
            Item::Command(command) => command.digest,
            Item::Skill(skill) => skill.digest,
            Item::Finding(_) | Item::Ignored | Item::Vanished => return None,
        };
        (digest == Digest::of(bytes)).then(|| cached.item.at(task.origin))
    }
}

fn is_recent(identity: Identity) -> bool {
    let (seconds, nanoseconds) = identity.changed;
    let changed = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now < changed + TICK
}

fn parse(origin: &Origin, path: &Path, bytes: &[u8], size: u64, guarded_names: &GuardedNames) -> Item {
    let source = Arc::new(origin.source(path));
    let from = |made: Result<Item, Diagnostic>| made.unwrap_or_else(Item::Finding);
    match origin.purpose {
        Purpose::Agents | Purpose::Commands if is_no_document(path, bytes) => Item::Ignored,
        Purpose::Commands => from(
            Command::parse(bytes, stem(path).unwrap_or_default(), &source)
                .map(|command| Item::Command(Arc::new(command))),
        ),
        Purpose::Skills => from(Skill::parse(bytes, &source).map(|skill| Item::Skill(Arc::new(skill)))),
        Purpose::Agents => {
            let is_toml = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml"));
            let parsed = definition::parse(
                bytes,
                &definition::Origin {
                    format: if is_toml { Format::Toml } else { Format::Markdown },
                    stem: stem(path),
                    name_from_stem: origin.name_from_stem,
                    bundled: false,
                    guarded_names,
                },
            );
            let stem = stem(path).and_then(definition::valid_name);
            let document = Document::new(parsed, size, source, stem);
            warn_of_rescue(&document);
            Item::Agent(Arc::new(document))
        }
    }
}

/// The file's name without its ending, and without `.agent` before it.
pub(crate) fn stem(path: &Path) -> Option<&str> {
    let stem = path.file_stem()?.to_str()?;
    Some(stem.strip_suffix(".agent").unwrap_or(stem)).filter(|stem| !stem.is_empty())
}

/// True of a file that explains its directory. It counts only where it begins as a document does.
pub(crate) fn is_no_document(path: &Path, bytes: &[u8]) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
    NO_DOCUMENTS.contains(&name.as_str()) && !begins_with_fence(bytes)
}

fn begins_with_fence(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut lines = bytes.split(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii_end);
    lines.find(|line| !line.is_empty()).is_some_and(|line| line == b"---")
}
