//! What happens to a worker, as it is kept and as it is sent.

use serde::{Deserialize, Serialize};

use crate::{
    review::Proposal,
    tool::{Class, Outcome},
    worker::{SessionId, Status, Time, Usage, Worker},
};

/// One kept event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub session: SessionId,
    /// From 1, without gaps, per session.
    pub sequence: u64,
    pub time: Time,
    pub body: Body,
}

/// What happened. Text deltas are not here: they are sent live and never kept. The accepted and the closed record are
/// taken from the row when they are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Body {
    Accepted,
    StateChanged {
        status: Status,
    },
    TurnStarted {
        turn: u32,
    },
    /// `text` is cut at 64 KiB.
    TurnFinished {
        turn: u32,
        text: String,
        usage: Usage,
    },
    /// The intent: committed before the tool runs. `arguments` are cut at 64 KiB.
    ToolStarted {
        call_id: String,
        tool: String,
        class: Class,
        arguments: String,
    },
    /// The outcome. `preview` is at most 2 KiB.
    ToolFinished {
        call_id: String,
        outcome: Outcome,
        preview: String,
        duration_ms: u64,
    },
    /// The gate was asked, or answered. The arguments in it are cut at 64 KiB.
    Review {
        proposal: Box<Proposal>,
    },
    ChildSpawned {
        worker: SessionId,
        agent: String,
    },
    OutputRejected {
        attempt: u32,
        violations: String,
    },
    Finished,
    /// A coordinator's turn ended. Its row is the next turn's soon: the record of this one stands here.
    Answered {
        worker: Box<Worker>,
    },
}

/// Longest text and arguments kept in an event.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Longest preview of a tool's result kept in an event.
pub const PREVIEW_BYTES_MAX: usize = 2 * 1024;

/// The beginning of `text`, cut at a character, with a mark where something is missing.
pub fn cut(text: &str, bytes_max: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes_max - MARK.len());
    format!("{}{MARK}", &text[..end])
}
