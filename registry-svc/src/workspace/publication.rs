//! From one state to the next: what changed, what is recorded of it, and how a restart finds its place again.

use std::{
    collections::HashSet,
    fmt::Write as _,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Reloaded, history::Change, reading::Reading};
use crate::{
    agent::{AgentName, Digest},
    diagnostic::Diagnostic,
    document::Definition,
    snapshot::Snapshot,
    store::{Entry, Mark, Request, Stored},
};

/// The first snapshot after a start, and the step to record where it differs from the last one recorded.
pub(super) fn first(stored: &Stored, reading: Reading, store_id: &str) -> (Snapshot, Option<Entry>) {
    let Reading { merged, commands, skills } = reading;
    let state = state(&merged.in_force, &merged.diagnostics);
    let unchanged = stored.state == Some(state);
    let generation = stored.generation + u64::from(!unchanged);
    let snapshot = Snapshot::new(generation, Arc::from(store_id), merged, commands, skills);
    if unchanged {
        return (snapshot, None);
    }

    let marks = snapshot.in_force().iter().map(|it| (it.agent.name.clone(), Mark::of(it)));
    let upserted = marks.filter(|(name, mark)| stored.in_force.get(name) != Some(mark)).collect();
    let gone = stored.in_force.keys().filter(|name| snapshot.in_force_as(name.as_str()).is_none());
    let removed = gone.cloned().collect();
    let entry = Entry { generation, time: SystemTime::now(), state, upserted, removed, request: None };
    (snapshot, Some(entry))
}

/// What is recorded of a change.
pub(super) fn entry(snapshot: &Snapshot, change: &Change, request: Option<Request>) -> Entry {
    Entry {
        generation: snapshot.generation(),
        time: change.time,
        state: state(snapshot.in_force(), snapshot.diagnostics()),
        upserted: change.upserted.iter().map(|it| (it.agent.name.clone(), Mark::of(it))).collect(),
        removed: change.removed.clone(),
        request,
    }
}

impl Change {
    pub(super) fn between(before: &Snapshot, after: &Snapshot, time: SystemTime) -> Self {
        let is_new = |definition: &&Arc<Definition>| match before.in_force_as(definition.agent.name.as_str())
        {
            Some(earlier) => earlier != *definition,
            None => true,
        };
        let upserted = after.in_force().iter().filter(is_new).cloned().collect();
        let is_gone = |name: &&AgentName| after.in_force_as(name.as_str()).is_none();
        let names = before.in_force().iter().map(|definition| &definition.agent.name);
        let mut removed: Vec<AgentName> = names.filter(is_gone).cloned().collect();
        removed.sort();
        Self::new(after.generation(), upserted, removed, time)
    }
}

/// What a reading changed, for whoever asked for it.
pub(super) fn difference(before: &Snapshot, after: Arc<Snapshot>, duration: Duration) -> Reloaded {
    let change = Change::between(before, &after, SystemTime::UNIX_EPOCH);
    let known: HashSet<&str> = before.in_force().iter().map(|it| it.agent.name.as_str()).collect();
    let names = change.upserted.iter().map(|definition| definition.agent.name.as_str().to_owned());
    let (changed, added): (Vec<String>, Vec<String>) = names.partition(|name| known.contains(name.as_str()));
    Reloaded {
        unchanged: after.in_force().len() - change.upserted.len(),
        added,
        changed,
        removed: change.removed.iter().map(|name| name.as_str().to_owned()).collect(),
        duration,
        snapshot: after,
    }
}

/// Digest of what is in force, in its order, and of the findings: equal digests are one generation.
fn state(in_force: &[Arc<Definition>], diagnostics: &[Diagnostic]) -> Digest {
    let mut text = String::new();
    for definition in in_force {
        let Mark { digest, place } = Mark::of(definition);
        let _ = writeln!(text, "{}\0{digest}{place}", definition.agent.name);
    }
    for diagnostic in diagnostics {
        let _ = writeln!(text, "{diagnostic:?}");
    }
    Digest::of(text.as_bytes())
}
