//! What outlives the process: authored definitions, the generation, what changed, and requests already answered.

pub mod directory;
#[cfg(test)]
pub(crate) mod memory;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;

use crate::{
    agent::{AgentName, Digest},
    document::{Authored, Definition},
    error::StoreError,
};

/// Changes and requests are kept this long.
pub const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// At most this many generations are kept, whatever their age.
pub const KEPT_GENERATIONS_MAX: usize = 10_000;

/// Keeps the state of workspaces. Calls for one workspace never overlap: its owner makes them one after the other.
#[async_trait]
pub trait Store: Send + Sync {
    /// Identifies the store that counts the generations: another store counts its own.
    fn id(&self) -> &str;

    /// Reads all that is kept of a workspace. A workspace never seen before is empty, at generation 0.
    async fn load(&self, workspace: &str) -> Result<Stored, StoreError>;

    /// Records one change durably. After an error nothing of it is there, or the store refuses further writes.
    async fn commit(&self, workspace: &str, commit: Commit) -> Result<(), StoreError>;
}

/// All that is kept of one workspace.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// The last generation that was recorded; 0 when none was.
    pub generation: u64,
    /// Digest of what was in force then, in its order, and of the findings.
    pub state: Option<Digest>,
    /// What was in force then.
    pub in_force: BTreeMap<AgentName, Mark>,
    pub authored: BTreeMap<AgentName, Authored>,
    /// Oldest first, at most [`KEPT_GENERATIONS_MAX`] and none older than [`KEPT_FOR`].
    pub entries: VecDeque<Entry>,
    /// Authored definitions whose files are damaged, each with what is wrong.
    pub damaged: BTreeMap<AgentName, String>,
}

/// One definition in force, as far as the history needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub digest: Digest,
    /// Digest of the place: the same document at another place is a change.
    pub place: Digest,
}

/// One step of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The generation after it; that of the entry before where only a request was recorded.
    pub generation: u64,
    pub time: SystemTime,
    /// Digest of what is in force after it, in its order, and of the findings.
    pub state: Digest,
    /// Added, or with another digest or place.
    pub upserted: Vec<(AgentName, Mark)>,
    /// Names that no longer resolve.
    pub removed: Vec<AgentName>,
    pub request: Option<Request>,
}

/// A request that was answered, kept so that the same request gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub caller: String,
    pub id: String,
    /// Digest of all that was asked.
    pub content: Digest,
    /// No authored definition had the name before.
    pub created: bool,
}

/// One change to record.
#[derive(Clone, Debug)]
pub struct Commit {
    pub entry: Entry,
    pub write: Option<Write>,
}

/// What happens to an authored definition.
#[derive(Clone, Debug)]
pub enum Write {
    Put(AgentName, Authored),
    Remove(AgentName),
}

impl Mark {
    pub fn of(definition: &Definition) -> Self {
        Self { digest: definition.agent.digest, place: definition.place() }
    }
}

impl Stored {
    /// Takes one recorded change in.
    pub fn apply(&mut self, entry: Entry) {
        self.generation = entry.generation;
        self.state = Some(entry.state);
        for (name, mark) in &entry.upserted {
            self.in_force.insert(name.clone(), *mark);
        }
        for name in &entry.removed {
            self.in_force.remove(name);
        }
        self.entries.push_back(entry);
    }

    /// Takes a change of an authored definition in.
    pub fn apply_write(&mut self, write: Write) {
        match write {
            Write::Put(name, authored) => {
                self.authored.insert(name, authored);
            }
            Write::Remove(name) => {
                self.authored.remove(&name);
            }
        }
    }

    /// Forgets what is kept no longer. Returns how many entries went.
    pub fn forget(&mut self, now: SystemTime) -> usize {
        let before = self.entries.len();
        let is_old = |entry: &Entry| now.duration_since(entry.time).is_ok_and(|age| age > KEPT_FOR);
        while self.entries.len() > KEPT_GENERATIONS_MAX || self.entries.front().is_some_and(is_old) {
            self.entries.pop_front();
        }
        before - self.entries.len()
    }
}
