//! One workspace: wake, scan, merge, publish. One task owns it; everybody else reads the snapshot it published last.

mod authoring;
#[cfg(test)]
mod corpus;
mod debounce;
mod history;
mod owner;
mod publication;
mod reading;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{mpsc, oneshot};

use crate::{
    agent::{Digest, Source},
    definition::GuardedNames,
    diagnostic::Diagnostic,
    document::Definition,
    error::{Error, StartError},
    explain,
    merge::Policy,
    snapshot::Snapshot,
    source,
    store::{Store, Stored},
};

pub use self::{
    authoring::{Author, Remove, Removed, Replace, Replaced},
    history::{Change, Lagged, Resume, Start, Subscription},
    owner::Owner,
};

/// Commands that may wait for the owner. More than a few means that somebody calls in a loop; they wait at the door.
const COMMANDS_MAX: usize = 64;

/// What a workspace is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    pub name: String,
    pub sources: source::Settings,
    pub policy: Policy,
}

/// The way to a workspace: cheap to clone, and reads never wait.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
}

/// What the owner and the readers share.
struct Shared {
    name: String,
    guarded_names: GuardedNames,
    reader: source::Reader,
    snapshot: ArcSwap<Snapshot>,
    history: history::History,
}

/// What the owner is asked for.
enum Command {
    Reload(oneshot::Sender<Result<Arc<Reloaded>, Error>>),
    Replace(Box<Replace>, oneshot::Sender<Result<Replaced, Error>>),
    Remove(Remove, oneshot::Sender<Result<Removed, Error>>),
}

/// What a reading of the sources changed.
#[derive(Debug)]
pub struct Reloaded {
    /// The state now in force.
    pub snapshot: Arc<Snapshot>,
    /// Names that are new, in merge order.
    pub added: Vec<String>,
    /// Names whose definition or place changed, in merge order.
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    pub unchanged: usize,
    pub duration: Duration,
}

/// A document's bytes and where they came from.
#[derive(Debug)]
pub struct Fetched {
    pub document: Vec<u8>,
    pub digest: Digest,
    pub source: Arc<Source>,
}

/// What a document would be.
#[derive(Debug)]
pub struct Validated {
    /// Absent when the document cannot be used.
    pub definition: Option<Arc<Definition>>,
    pub diagnostics: Vec<Diagnostic>,
    /// Empty without a workspace.
    pub would_shadow: Vec<Arc<Source>>,
}

/// Loads a workspace for the first time. The owner does nothing until it is run; the handle reads at once.
pub async fn open(settings: Settings, store: Arc<dyn Store>) -> Result<(Handle, Owner), StartError> {
    let (sender, receiver) = mpsc::channel(COMMANDS_MAX);
    let owner = Owner::open(settings, store, receiver).await?;
    Ok((Handle { shared: owner.shared(), commands: sender }, owner))
}

/// Reads a workspace once, without a store: for command lines. Blocks while it reads.
pub fn read_once(settings: &Settings) -> Result<Snapshot, StartError> {
    let mut desk = reading::Desk::new(settings, None)?;
    let reading = desk.read(&reading::AuthoredDocuments::new()).expect("the first reading is always new");
    Ok(publication::first(&Stored::default(), reading, "").0)
}

/// Checks a document without a workspace.
pub fn validate(document: &[u8], guarded_names: &GuardedNames) -> Validated {
    let document = source::authored::parse(document, guarded_names);
    Validated {
        definition: document.definition().cloned(),
        diagnostics: document.diagnostics,
        would_shadow: Vec::new(),
    }
}

impl Handle {
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Names that another name must not be confusable with.
    pub fn guarded_names(&self) -> &GuardedNames {
        &self.shared.guarded_names
    }

    /// The state in force now. It never changes; hold it from the start of a call to its end.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// As [`Handle::snapshot`], without touching the reference count: for answers that are made at once.
    pub fn peek(&self) -> Guard<Arc<Snapshot>> {
        self.shared.snapshot.load()
    }

    /// Reads all sources again. Calls that arrive together are one reading, which begins after the last of them.
    pub async fn reload(&self) -> Result<Arc<Reloaded>, Error> {
        self.ask(Command::Reload).await
    }

    /// Inserts or updates an authored definition. When this answers, the definition is durable and in force.
    pub async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        self.ask(|reply| Command::Replace(Box::new(replace), reply)).await
    }

    /// Takes an authored definition away.
    pub async fn remove(&self, remove: Remove) -> Result<Removed, Error> {
        self.ask(|reply| Command::Remove(remove, reply)).await
    }

    /// Checks a document against this workspace without storing it.
    pub fn validate(&self, document: &[u8]) -> Validated {
        let mut validated = validate(document, &self.shared.guarded_names);
        if let Some(definition) = &validated.definition {
            let preview = explain::preview(&self.peek(), &definition.agent);
            validated.would_shadow = preview.would_shadow;
            validated.diagnostics.extend(preview.diagnostics);
        }
        validated
    }

    /// Reads the bytes of the definition in force, or of the candidate with this digest.
    ///
    /// Documents are not kept in memory: the file is read again, and counts only if its digest is still the same. Where it
    /// is not, the sources are read again first.
    pub async fn document(&self, name: &str, digest: Option<Digest>) -> Result<Fetched, Error> {
        if let Some(fetched) = self.shared.fetch(&self.snapshot(), name, digest).await? {
            return Ok(fetched);
        }
        let reloaded = self.reload().await?;
        let unknown = || Error::UnknownDigest {
            name: name.to_owned(),
            digest: digest.map(|digest| digest.to_string()).unwrap_or_default(),
        };
        self.shared.fetch(&reloaded.snapshot, name, digest).await?.ok_or_else(unknown)
    }

    /// Follows the workspace from a generation on, or from now.
    pub fn subscribe(&self, resume: Option<&Resume>) -> Subscription {
        self.shared.history.subscribe(resume, || self.snapshot())
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Command,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| Error::Stopping)?;
        answer.await.map_err(|_| Error::Stopping)?
    }
}

impl Shared {
    /// Reads one candidate's document; nothing where the bytes with its digest are no longer to be had.
    async fn fetch(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        name: &str,
        digest: Option<Digest>,
    ) -> Result<Option<Fetched>, Error> {
        let digest = match digest {
            Some(digest) => digest,
            None => snapshot.by_name(name)?.agent.digest,
        };
        snapshot.candidates(name)?;
        let Some(candidate) = snapshot.candidate(name, digest) else { return Ok(None) };
        let source = Arc::clone(&candidate.document.source);
        let read = match &candidate.document.authored {
            Some(authored) => Some(authored.document.to_vec()),
            None => self.read(Arc::clone(&source)).await?,
        };
        let document = read.filter(|document| Digest::of(document) == digest);
        Ok(document.map(|document| Fetched { document, digest, source }))
    }

    async fn read(self: &Arc<Self>, source: Arc<Source>) -> Result<Option<Vec<u8>>, Error> {
        let shared = Arc::clone(self);
        tokio::task::spawn_blocking(move || shared.reader.read(&source)).await.map_err(|_| Error::ScanFailed)
    }
}
