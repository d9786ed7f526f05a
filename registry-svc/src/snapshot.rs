//! The immutable result of one merge: lookup, order and generation. Every call reads exactly one.

use std::{fmt::Write as _, sync::Arc};

use crate::{
    agent::{AgentName, Digest},
    command::Command,
    diagnostic::Diagnostic,
    document::{Definition, Document},
    merge::{Candidate, Merged, Named, Resolution},
    skill::Skill,
};

/// At most this many names in the text about an unknown agent: more helps no model and no person.
const AVAILABLE_NAMES_MAX: usize = 20;

/// At most this many bytes of names there, since the whole status has to fit in 4 KiB of trailers.
const AVAILABLE_BYTES_MAX: usize = 1024;

/// A slip of at most this many letters is offered as a suggestion.
const SUGGESTION_DISTANCE_MAX: usize = 2;

/// One state of one workspace.
#[derive(Debug)]
pub struct Snapshot {
    generation: u64,
    store_id: Arc<str>,
    merged: Merged,
    commands: Vec<Arc<Command>>,
    skills: Vec<Arc<Skill>>,
    available: String,
}

/// Why a name resolves to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Miss {
    #[error("Unknown agent \"{name}\". Available: {available}")]
    Unknown {
        name: String,
        /// Names in merge order, cut to fit, or `none`.
        available: String,
        /// The nearest name in force, when one is near.
        suggestion: Option<String>,
        available_count: usize,
    },
    #[error("agent `{name}` is blocked by a broken definition in `{path}`")]
    Broken {
        name: String,
        /// The document that blocks the name; empty when it is authored.
        path: String,
        /// Codes of its faults.
        codes: Vec<&'static str>,
    },
}

impl Snapshot {
    pub fn new(
        generation: u64,
        store_id: Arc<str>,
        merged: Merged,
        commands: Vec<Arc<Command>>,
        skills: Vec<Arc<Skill>>,
    ) -> Self {
        let available = available(&merged.in_force);
        Self { generation, store_id, merged, commands, skills, available }
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The store that counts the generations.
    pub fn store_id(&self) -> &Arc<str> {
        &self.store_id
    }

    /// The definitions in force, in merge order.
    pub fn in_force(&self) -> &[Arc<Definition>] {
        &self.merged.in_force
    }

    /// The definition in force under exactly this name.
    pub fn by_name(&self, name: &str) -> Result<&Arc<Definition>, Miss> {
        match self.merged.names.get(name).map(|named| &named.resolution) {
            Some(Resolution::InForce(definition)) => Ok(definition),
            Some(Resolution::Blocked(document)) => Err(broken(name, document)),
            Some(Resolution::Nothing) | None => Err(self.unknown(name)),
        }
    }

    /// As [`Snapshot::by_name`], where the reason of a miss is of no interest.
    pub fn in_force_as(&self, name: &str) -> Option<&Arc<Definition>> {
        match &self.named(name)?.resolution {
            Resolution::InForce(definition) => Some(definition),
            Resolution::Blocked(_) | Resolution::Nothing => None,
        }
    }

    /// Every place that defines, or tried to define, a name. A name without any candidate is unknown.
    pub fn candidates(&self, name: &str) -> Result<&[Candidate], Miss> {
        match self.named(name) {
            Some(named) => Ok(&named.candidates),
            None => Err(self.unknown(name)),
        }
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Named> {
        self.merged.names.get(name)
    }

    /// The candidate of a name that has this digest.
    pub fn candidate(&self, name: &str, digest: Digest) -> Option<&Candidate> {
        self.named(name)?.candidates.iter().find(|candidate| candidate.document.digest == digest)
    }

    /// Sorted by path, then line.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.merged.diagnostics
    }

    /// In merge order, first wins by name.
    pub fn commands(&self) -> &[Arc<Command>] {
        &self.commands
    }

    /// In merge order, first wins by name.
    pub fn skills(&self) -> &[Arc<Skill>] {
        &self.skills
    }

    /// The answer about a name that nothing in force has.
    pub fn unknown(&self, name: &str) -> Miss {
        Miss::Unknown {
            name: name.to_owned(),
            available: self.available.clone(),
            suggestion: self.suggestion(name),
            available_count: self.merged.in_force.len(),
        }
    }

    /// True when the other snapshot has the same definitions in force, in the same order, and the same findings.
    pub fn same_state(&self, merged: &Merged) -> bool {
        self.merged.in_force == merged.in_force && self.merged.diagnostics == merged.diagnostics
    }

    fn suggestion(&self, name: &str) -> Option<String> {
        let folded = name.to_lowercase();
        let distance = |candidate: &AgentName| match candidate.as_str().len().abs_diff(folded.len()) {
            // Cheap refusal first: with thousands of agents most names are far away.
            difference if difference > 4 * SUGGESTION_DISTANCE_MAX => usize::MAX,
            _ => strsim::osa_distance(&candidate.folded(), &folded),
        };
        let names = self.merged.in_force.iter().map(|definition| &definition.agent.name);
        let (nearest, distance) =
            names.map(|candidate| (candidate, distance(candidate))).min_by_key(|(_, distance)| *distance)?;
        (distance <= SUGGESTION_DISTANCE_MAX && distance < folded.chars().count())
            .then(|| nearest.as_str().to_owned())
    }
}

fn broken(name: &str, document: &Document) -> Miss {
    let errors = document.diagnostics.iter().filter(|diagnostic| diagnostic.is_error());
    let mut codes: Vec<&'static str> = errors.map(|diagnostic| diagnostic.code.as_str()).collect();
    codes.dedup();
    Miss::Broken { name: name.to_owned(), path: document.source.path.clone(), codes }
}

/// `a, b, c` in merge order, `none` when empty, cut with `, … (<n> more)`.
fn available(in_force: &[Arc<Definition>]) -> String {
    if in_force.is_empty() {
        return "none".to_owned();
    }
    let mut text = String::new();
    for (shown, definition) in in_force.iter().enumerate() {
        let name = definition.agent.name.as_str();
        let separator = if shown == 0 { "" } else { ", " };
        if shown == AVAILABLE_NAMES_MAX || text.len() + separator.len() + name.len() > AVAILABLE_BYTES_MAX {
            let more = in_force.len() - shown;
            let _ = write!(text, ", … ({more} more)");
            break;
        }
        text.push_str(separator);
        text.push_str(name);
    }
    text
}

#[cfg(test)]
mod tests;
