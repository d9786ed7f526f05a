//! Writing definitions: what is asked, what is refused, and what is answered when the same is asked again.

use std::sync::Arc;

use crate::{
    agent::{AgentName, Digest, Source, SourceKind},
    diagnostic::Diagnostic,
    document::{Authored, Definition, Document},
    error::Error,
    merge::{Candidate, Policy, Standing},
    snapshot::Snapshot,
};

/// Authored definitions that a workspace may hold. They are kept in memory, at most 1 MiB each.
const AUTHORED_MAX: usize = 4096;

/// Findings that a refusal carries. A status has to fit in 4 KiB of trailers, and nobody mends more at once.
const FINDINGS_MAX: usize = 16;

/// Who writes.
#[derive(Clone, Debug)]
pub struct Author {
    /// The caller's identity; request ids are his own.
    pub caller: String,
    pub is_administrator: bool,
}

/// Asks to insert or update an authored definition.
#[derive(Clone, Debug)]
pub struct Replace {
    pub author: Author,
    pub document: Vec<u8>,
    /// The digest that the authored definition must have; empty for none yet.
    pub expected_digest: Option<String>,
    pub expected_name: Option<String>,
    pub request_id: Option<String>,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Replaced {
    pub definition: Arc<Definition>,
    /// The generation that contains it.
    pub generation: u64,
    /// No authored definition had the name before.
    pub created: bool,
    /// Places whose definitions it keeps out of force, in merge order.
    pub shadowed: Vec<Arc<Source>>,
    /// Warnings about the document.
    pub diagnostics: Vec<Diagnostic>,
}

/// Asks to remove an authored definition.
#[derive(Clone, Debug)]
pub struct Remove {
    pub author: Author,
    pub name: String,
    /// The digest that the authored definition must have.
    pub expected_digest: Option<String>,
    pub request_id: Option<String>,
}

/// What is left.
#[derive(Clone, Debug)]
pub struct Removed {
    /// The generation without it.
    pub generation: u64,
    /// What came back into force under the name.
    pub now_in_force: Option<Arc<Definition>>,
}

impl Replace {
    /// All that makes two requests the same.
    pub(super) fn content(&self) -> Digest {
        let Self { author: _, document, expected_digest, expected_name, request_id: _ } = self;
        let asked = format!("replace\0{}\0{expected_digest:?}\0{expected_name:?}", Digest::of(document));
        Digest::of(asked.as_bytes())
    }

    /// Checks a parsed document against the rules for writing. `document` is what [`Replace::document`] parsed to.
    pub(super) fn admit(
        &self,
        document: &Document,
        snapshot: &Snapshot,
        policy: &Policy,
    ) -> Result<(), Error> {
        let Some(definition) = document.definition() else {
            let errors = document.diagnostics.iter().filter(|diagnostic| diagnostic.is_error());
            return Err(Error::InvalidDocument { diagnostics: errors.take(FINDINGS_MAX).cloned().collect() });
        };
        let name = definition.agent.name.as_str();
        if let Some(expected) = self.expected_name.as_deref().filter(|expected| *expected != name) {
            return Err(Error::NameMismatch { expected: expected.to_owned(), actual: name.to_owned() });
        }
        let candidates = candidates(snapshot, name);
        if !self.author.is_administrator {
            refuse_what_is_the_operators(name, candidates, policy)?;
        }
        compare(self.expected_digest.as_deref(), authored(candidates))
    }
}

impl Remove {
    /// All that makes two requests the same.
    pub(super) fn content(&self) -> Digest {
        let Self { author: _, name, expected_digest, request_id: _ } = self;
        Digest::of(format!("remove\0{name}\0{expected_digest:?}").as_bytes())
    }

    /// Checks the request against the rules for writing, and answers the name it means.
    pub(super) fn admit(&self, snapshot: &Snapshot, policy: &Policy) -> Result<AgentName, Error> {
        let candidates = snapshot.candidates(&self.name)?;
        let authored = authored(candidates);
        if authored.is_none() {
            return Err(match candidates.iter().any(|candidate| candidate.document.definition().is_some()) {
                true => Error::NotAuthored { name: self.name.clone() },
                false => snapshot.unknown(&self.name).into(),
            });
        }
        if is_protected(&self.name, policy) && !self.author.is_administrator {
            let action = "remove the definition of a protected name".to_owned();
            return Err(Error::AdministratorRequired { name: self.name.clone(), action });
        }
        compare(self.expected_digest.as_deref(), authored)?;
        Ok(AgentName::new_valid(&self.name))
    }
}

/// What is kept of the writing, taken from the snapshot just before it.
pub(super) fn record(replace: &Replace, name: &str, snapshot: &Snapshot) -> Authored {
    let below = candidates(snapshot, name).iter().map(|candidate| &candidate.document);
    let below = below.filter(|document| document.source.kind != SourceKind::Authored);
    Authored {
        document: replace.document.clone().into(),
        by_administrator: replace.author.is_administrator,
        shadowed: below.map(|document| (document.source.path.clone(), document.digest)).collect(),
    }
}

/// Refuses one more authored definition than a workspace may hold.
pub(super) fn require_room(count: usize, created: bool) -> Result<(), Error> {
    match created && count >= AUTHORED_MAX {
        true => Err(Error::TooManyAuthored { max: AUTHORED_MAX }),
        false => Ok(()),
    }
}

fn candidates<'a>(snapshot: &'a Snapshot, name: &str) -> &'a [Candidate] {
    snapshot.named(name).map(|named| named.candidates.as_slice()).unwrap_or_default()
}

fn authored(candidates: &[Candidate]) -> Option<Digest> {
    let is_authored = |candidate: &&Candidate| candidate.document.source.kind == SourceKind::Authored;
    candidates.iter().find(is_authored).map(|candidate| candidate.document.digest)
}

fn is_protected(name: &str, policy: &Policy) -> bool {
    policy.protected.iter().any(|protected| protected == name)
}

/// Protected names, and what the operator put in place, are an administrator's to change.
fn refuse_what_is_the_operators(name: &str, candidates: &[Candidate], policy: &Policy) -> Result<(), Error> {
    let refuse =
        |action: &str| Err(Error::AdministratorRequired { name: name.to_owned(), action: action.to_owned() });
    if is_protected(name, policy) {
        return refuse("define a protected name");
    }
    let is_operators = |candidate: &Candidate| {
        matches!(candidate.document.source.kind, SourceKind::Root | SourceKind::Bundled)
            && matches!(candidate.standing, Standing::InForce | Standing::Shadowed)
    };
    match candidates.iter().any(is_operators) {
        true => refuse("shadow a root or bundled definition"),
        false => Ok(()),
    }
}

fn compare(expected: Option<&str>, actual: Option<Digest>) -> Result<(), Error> {
    let actual = actual.map(|digest| digest.to_string()).unwrap_or_default();
    match expected {
        Some(expected) if expected != actual => {
            Err(Error::DigestMismatch { expected: expected.to_owned(), actual })
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_workspace_takes_changes_but_nothing_new() {
        assert!(require_room(AUTHORED_MAX - 1, true).is_ok());
        assert!(require_room(AUTHORED_MAX, false).is_ok());
        assert!(matches!(
            require_room(AUTHORED_MAX, true),
            Err(Error::TooManyAuthored { max: AUTHORED_MAX })
        ));
    }
}
