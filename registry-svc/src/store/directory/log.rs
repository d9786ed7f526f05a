//! The lines of the log: JSON behind a checksum, so that a line written in part is told from one that is whole.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::{
    agent::{AgentName, Digest},
    store::{Entry, Mark, Request, Stored, Write},
};

/// Hexadecimal digits of the checksum: against accidents, not against people.
const CHECKSUM_LENGTH: usize = 16;

/// One line.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// A change before the base, kept for watchers.
    Kept(Step),
    /// The state that the changes behind it add to.
    Base(Base),
    Step(Step),
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Base {
    generation: u64,
    state: Option<String>,
    in_force: Vec<(String, String, String)>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Step {
    generation: u64,
    /// Since 1970.
    time_ms: u64,
    state: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    upserted: Vec<(String, String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<RequestLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) write: Option<WriteLine>,
}

#[derive(Debug, Deserialize, Serialize)]
struct RequestLine {
    caller: String,
    id: String,
    content: String,
    created: bool,
}

/// What the step did to a file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WriteLine {
    Put { name: String, digest: String },
    Remove { name: String },
}

/// A log as read, without what was torn off its end.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) lines: Vec<Line>,
    /// Where each line begins.
    pub(super) starts: Vec<u64>,
    /// Bytes of whole lines.
    pub(super) length: u64,
}

/// Line number, from 1, and reason of a fault that no torn write explains.
pub(super) type Fault = (usize, String);

impl Line {
    pub(super) fn encode(&self) -> Vec<u8> {
        let json = serde_json::to_string(self).expect("numbers and text are always JSON");
        format!("{} {json}\n", checksum(json.as_bytes())).into_bytes()
    }

    fn decode(line: &[u8]) -> Result<Self, String> {
        let (sum, json) = line.split_at_checked(CHECKSUM_LENGTH).ok_or("too short")?;
        let json = json.strip_prefix(b" ").ok_or("no checksum")?;
        if checksum(json).as_bytes() != sum {
            return Err("the checksum does not match".to_owned());
        }
        serde_json::from_slice(json).map_err(|error| error.to_string())
    }
}

impl Log {
    /// Reads a log. Only its end may be torn.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let mut log = Self::default();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, tail) = (&rest[..end], &rest[end + 1..]);
            match Line::decode(line) {
                Ok(line) => log.lines.push(line),
                Err(_) if tail.is_empty() => break,
                Err(reason) => return Err((log.lines.len() + 1, reason)),
            }
            log.starts.push(log.length);
            log.length += u64::try_from(end + 1).expect("a line is shorter than memory");
            rest = tail;
        }
        Ok(log)
    }

    /// Puts the lines together. The reason of a fault names no line: it is in what a line says.
    pub(super) fn stored(self) -> Result<Stored, Fault> {
        let mut stored = Stored::default();
        for (index, line) in self.lines.into_iter().enumerate() {
            let in_line = |reason: String| (index + 1, reason);
            match line {
                Line::Kept(step) => stored.entries.push_back(step.entry().map_err(in_line)?),
                Line::Step(step) => stored.apply(step.entry().map_err(in_line)?),
                Line::Base(base) => {
                    stored.generation = base.generation;
                    stored.state = base.state.as_deref().map(digest).transpose().map_err(in_line)?;
                    stored.in_force = marks(base.in_force).map_err(in_line)?.into_iter().collect();
                }
            }
        }
        Ok(stored)
    }
}

impl Base {
    pub(super) fn of(generation: u64, state: Option<Digest>, in_force: &BTreeMap<AgentName, Mark>) -> Self {
        Self {
            generation,
            state: state.map(|state| state.to_string()),
            in_force: in_force.iter().map(|(name, mark)| mark_line(name, *mark)).collect(),
        }
    }
}

impl Step {
    pub(super) fn of(entry: &Entry, write: Option<&Write>) -> Self {
        let Entry { generation, time, state, upserted, removed, request } = entry;
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            generation: *generation,
            time_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            state: state.to_string(),
            upserted: upserted.iter().map(|(name, mark)| mark_line(name, *mark)).collect(),
            removed: removed.iter().map(|name| name.as_str().to_owned()).collect(),
            request: request.as_ref().map(RequestLine::of),
            write: write.map(WriteLine::of),
        }
    }

    fn entry(self) -> Result<Entry, String> {
        let Self { generation, time_ms, state, upserted, removed, request, write: _ } = self;
        Ok(Entry {
            generation,
            time: time(time_ms),
            state: digest(&state)?,
            upserted: marks(upserted)?,
            removed: removed.iter().map(|name| AgentName::new_valid(name)).collect(),
            request: request.map(RequestLine::request).transpose()?,
        })
    }
}

impl RequestLine {
    fn of(request: &Request) -> Self {
        let Request { caller, id, content, created } = request.clone();
        Self { caller, id, content: content.to_string(), created }
    }

    fn request(self) -> Result<Request, String> {
        let Self { caller, id, content, created } = self;
        Ok(Request { caller, id, content: digest(&content)?, created })
    }
}

impl WriteLine {
    fn of(write: &Write) -> Self {
        match write {
            Write::Put(name, authored) => {
                let digest = Digest::of(&authored.document).to_string();
                Self::Put { name: name.as_str().to_owned(), digest }
            }
            Write::Remove(name) => Self::Remove { name: name.as_str().to_owned() },
        }
    }
}

/// Reads a digest as the store writes it.
pub(super) fn digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text).ok_or_else(|| format!("`{text}` is no digest"))
}

fn time(time_ms: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(time_ms)).unwrap_or(UNIX_EPOCH)
}

fn mark_line(name: &AgentName, mark: Mark) -> (String, String, String) {
    (name.as_str().to_owned(), mark.digest.to_string(), mark.place.to_string())
}

fn marks(lines: Vec<(String, String, String)>) -> Result<Vec<(AgentName, Mark)>, String> {
    let mark = |(name, of_document, place): (String, String, String)| {
        Ok((AgentName::new_valid(&name), Mark { digest: digest(&of_document)?, place: digest(&place)? }))
    };
    lines.into_iter().map(mark).collect()
}

fn checksum(json: &[u8]) -> String {
    let mut text = Digest::of(json).to_string();
    text.truncate(CHECKSUM_LENGTH);
    text
}
