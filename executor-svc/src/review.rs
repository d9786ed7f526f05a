//! The review gate, as far as it is thought and not done: what is proposed, what its digest stands for, what the reviewer is
//! told, and what counts as its decision.

mod brief;
mod unambiguous;
mod verdict;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use self::{
    brief::{Brief, compose},
    unambiguous::unambiguous,
    verdict::{SCHEMA, Verdict, is_torn, read_text, verdict},
};
use crate::{
    tool::{Class, Target},
    worker::{SessionId, Time},
};

/// Who decides a call that the operator exempted.
pub const POLICY: &str = "policy";

/// Why a proposal is rejected whose session is gone.
pub const ENDED: &str = "its worker ended";

/// Longest arguments that are put before a reviewer: with them its brief stays well inside of any model's context.
pub const ARGUMENTS_BYTES_MAX: usize = 256 * 1024;

/// Most of what the worker said before the call that is kept, bytes.
pub const SAID_BYTES_MAX: usize = 1024;

/// Changes with the layout of the digest.
const LAYOUT: &str = "roster proposal 1";

/// One call of a write or destructive tool before the gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// `proposal-<uuid v7>`.
    pub id: String,
    pub session: SessionId,
    pub root: SessionId,
    pub workspace: String,
    pub operator: String,
    pub tool: String,
    pub class: Class,
    /// The exact bytes that would run.
    pub arguments: String,
    /// Lower-case hexadecimal. See [`digest`].
    pub digest: String,
    /// What the worker said before the call.
    pub said: String,
    pub blast_radius: String,
    pub decision: Decision,
    pub decision_reason: String,
    /// The reviewer's session, the person, or [`POLICY`]. While a person is awaited, the reviewer's.
    pub reviewer: String,
    pub create_time: Time,
    pub decide_time: Option<Time>,
    /// Set once, right before the tool runs: an approval is used up by it.
    pub execute_time: Option<Time>,
    /// The reviewer has approved, and a person must decide.
    pub awaits_person: bool,
}

/// What became of a proposal. The two last are never left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Pending,
    Approved,
    Rejected,
}

/// What a digest stands for: one field more or less, or one byte changed, is another digest.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub session: &'a SessionId,
    pub tool: &'a str,
    /// The schema of its arguments, as the worker was told.
    pub schema: &'a Value,
    pub arguments: &'a str,
    /// For tools that change one file.
    pub target: Option<&'a Target>,
}

/// SHA-256 over the fields of a subject, each with its length before it.
pub fn digest(subject: &Subject<'_>) -> String {
    let Subject { session, tool, schema, arguments, target } = subject;
    let mut hash = Sha256::new();
    for text in [LAYOUT, session.as_str(), tool, &schema.to_string(), arguments] {
        field(&mut hash, text.as_bytes());
    }
    match target {
        None => field(&mut hash, b"no target"),
        Some(Target { path, content }) => {
            field(&mut hash, b"target");
            field(&mut hash, path.as_bytes());
            // A file that is not there is not an empty one.
            field(&mut hash, content.as_ref().map_or(&[][..], |content| content));
        }
    }
    hex(&hash.finalize())
}

impl Proposal {
    /// The proposal as decided.
    #[must_use]
    pub fn decided(&self, decision: Decision, by: &str, reason: &str, now: Time) -> Self {
        Self {
            decision,
            decision_reason: reason.to_owned(),
            reviewer: by.to_owned(),
            decide_time: Some(now),
            awaits_person: false,
            ..self.clone()
        }
    }

    /// The proposal after its reviewer approved, where a person has the last word.
    #[must_use]
    pub fn before_person(&self, reviewer: &str, reason: &str) -> Self {
        Self {
            decision_reason: reason.to_owned(),
            reviewer: reviewer.to_owned(),
            awaits_person: true,
            ..self.clone()
        }
    }
}

/// How long a session waited for decisions, whatever was proposed side by side counted once.
pub fn waited(proposals: &[Proposal]) -> Duration {
    let mut spans: Vec<(i64, i64)> = proposals
        .iter()
        .filter_map(|proposal| Some((proposal.create_time.0, proposal.decide_time?.0)))
        .collect();
    spans.sort_unstable();
    let mut until = i64::MIN;
    let mut total = 0;
    for (begin, end) in spans {
        total += end.saturating_sub(begin.max(until)).max(0);
        until = until.max(end);
    }
    Duration::from_millis(u64::try_from(total).unwrap_or(0))
}

fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
