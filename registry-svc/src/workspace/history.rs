//! The changes that are kept for watchers. No generation is skipped, repeated or reordered, whoever follows.

use std::{collections::VecDeque, sync::Arc, time::SystemTime};

use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::{
    agent::AgentName,
    document::Definition,
    snapshot::Snapshot,
    store::{Entry, KEPT_FOR, KEPT_GENERATIONS_MAX, Mark},
};

/// Changes that a watcher may lag behind before it is sent away: half a minute of several changes a second.
const LAG_MAX: usize = 256;

/// Bytes of definitions kept for resuming. Only superseded ones cost memory, but each could be the only one left.
const KEPT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The difference between a generation and the one before.
#[derive(Clone, Debug)]
pub struct Change {
    pub generation: u64,
    /// Added, or with another digest or place, in merge order.
    pub upserted: Vec<Arc<Definition>>,
    /// Names that no longer resolve, sorted.
    pub removed: Vec<AgentName>,
    pub(super) time: SystemTime,
}

/// Where a watcher left off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    pub generation: u64,
    pub store_id: String,
}

/// What a watcher gets.
pub struct Subscription {
    pub start: Start,
    changes: broadcast::Receiver<Arc<Change>>,
}

/// What comes first.
#[derive(Debug)]
pub enum Start {
    /// The whole state: nothing to resume from, or it is no longer kept.
    Fresh(Arc<Snapshot>),
    /// The changes since, oldest first; empty where nothing changed. The generation is the one after them.
    Resumed { changes: Vec<Arc<Change>>, generation: u64 },
}

/// The watcher read too slowly and has missed changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lagged;

/// Keeps what changed between the snapshots that were published.
pub(super) struct History {
    kept: Mutex<Kept>,
}

struct Kept {
    changes: VecDeque<Arc<Change>>,
    bytes: u64,
    /// Absent once the owner has ended; then every watcher has ended too.
    sender: Option<broadcast::Sender<Arc<Change>>>,
}

impl Change {
    pub(super) fn new(
        generation: u64,
        upserted: Vec<Arc<Definition>>,
        removed: Vec<AgentName>,
        time: SystemTime,
    ) -> Self {
        Self { generation, upserted, removed, time }
    }

    fn bytes(&self) -> u64 {
        self.upserted.iter().map(|definition| definition.size_bytes).sum()
    }
}

impl History {
    pub(super) fn new(changes: Vec<Change>) -> Self {
        let (sender, _) = broadcast::channel(LAG_MAX);
        let history =
            Self { kept: Mutex::new(Kept { changes: VecDeque::new(), bytes: 0, sender: Some(sender) }) };
        let mut kept = history.kept.lock();
        changes.into_iter().for_each(|change| kept.push(Arc::new(change)));
        drop(kept);
        history
    }

    /// Makes a snapshot current. `swap` runs under the lock that subscribing takes, so that nobody sees the snapshot
    /// without the change, or the change twice.
    pub(super) fn publish(&self, change: Option<Change>, swap: impl FnOnce()) {
        let mut kept = self.kept.lock();
        swap();
        let Some(change) = change.map(Arc::new) else { return };
        kept.push(Arc::clone(&change));
        if let Some(sender) = &kept.sender {
            // Nobody listening is no fault.
            let _ = sender.send(change);
        }
    }

    pub(super) fn subscribe(
        &self,
        resume: Option<&Resume>,
        current: impl FnOnce() -> Arc<Snapshot>,
    ) -> Subscription {
        let kept = self.kept.lock();
        let snapshot = current();
        let changes = match &kept.sender {
            Some(sender) => sender.subscribe(),
            None => broadcast::channel(1).1,
        };
        let start = match resume.and_then(|resume| kept.since(resume, &snapshot)) {
            Some(changes) => Start::Resumed { changes, generation: snapshot.generation() },
            None => Start::Fresh(snapshot),
        };
        Subscription { start, changes }
    }

    /// Ends every watcher.
    pub(super) fn close(&self) {
        self.kept.lock().sender = None;
    }
}

impl Kept {
    fn push(&mut self, change: Arc<Change>) {
        let now = change.time;
        self.bytes += change.bytes();
        self.changes.push_back(change);
        while self.changes.front().is_some_and(|oldest| self.is_over(oldest, now)) {
            let oldest = self.changes.pop_front().expect("the front was just looked at");
            self.bytes -= oldest.bytes();
        }
    }

    fn is_over(&self, oldest: &Change, now: SystemTime) -> bool {
        self.changes.len() > KEPT_GENERATIONS_MAX
            || self.bytes > KEPT_BYTES_MAX
            || now.duration_since(oldest.time).is_ok_and(|age| age > KEPT_FOR)
    }

    /// The changes after a generation; nothing where they are not all kept.
    fn since(&self, resume: &Resume, snapshot: &Snapshot) -> Option<Vec<Arc<Change>>> {
        let current = snapshot.generation();
        if resume.store_id != **snapshot.store_id() || resume.generation == 0 || resume.generation > current {
            return None;
        }
        let later: Vec<_> =
            self.changes.iter().filter(|change| change.generation > resume.generation).cloned().collect();
        let is_complete = u64::try_from(later.len()).is_ok_and(|count| count == current - resume.generation);
        is_complete.then_some(later)
    }
}

/// The changes of recorded steps whose definitions are still at hand, which ends with the newest that is not.
pub(super) fn recall(entries: &VecDeque<Entry>, snapshot: &Snapshot) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut generation = snapshot.generation();
    let is_step = |window: &(&Entry, Option<&Entry>)| {
        window.1.is_none_or(|before| before.generation < window.0.generation)
    };
    let before = entries.iter().rev().skip(1).map(Some).chain([None]);
    for (entry, _) in entries.iter().rev().zip(before).filter(is_step) {
        if entry.generation != generation {
            break;
        }
        let find = |(name, mark): &(AgentName, Mark)| definition(snapshot, name, *mark);
        let Some(upserted) = entry.upserted.iter().map(find).collect::<Option<Vec<_>>>() else { break };
        changes.push(Change::new(entry.generation, upserted, entry.removed.clone(), entry.time));
        generation -= 1;
    }
    changes.reverse();
    changes
}

fn definition(snapshot: &Snapshot, name: &AgentName, mark: Mark) -> Option<Arc<Definition>> {
    let candidates = snapshot.candidates(name.as_str()).ok()?;
    let mut definitions = candidates.iter().filter_map(|candidate| candidate.document.definition());
    definitions.find(|definition| Mark::of(definition) == mark).cloned()
}

impl Subscription {
    /// The next change. Nothing when the workspace has stopped.
    pub async fn next(&mut self) -> Result<Option<Arc<Change>>, Lagged> {
        match self.changes.recv().await {
            Ok(change) => Ok(Some(change)),
            Err(broadcast::error::RecvError::Closed) => Ok(None),
            Err(broadcast::error::RecvError::Lagged(_)) => Err(Lagged),
        }
    }
}
