//! An agent definition as the rest of the service knows it: parsed once, with its invariants in its types.

use std::{borrow::Cow, fmt, sync::Arc};

/// An agent's exact, case-sensitive key. Made by [`crate::definition`], which enforces the rules for names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentName(Arc<str>);

/// One definition, complete but for the place it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    pub name: AgentName,
    pub description: String,
    /// Empty when the front matter has none.
    pub when_to_use: String,
    pub system_prompt: String,
    pub tools: ToolSelection,
    pub disallowed_tools: Vec<String>,
    pub spawns: SpawnPolicy,
    /// Model patterns in order of preference; empty inherits.
    pub models: Vec<String>,
    pub thinking_level: Option<ThinkingLevel>,
    /// JSON text of the front matter's `output`, keys as written.
    pub output_schema: Option<String>,
    pub permission_mode: Option<PermissionMode>,
    /// 1 to 10,000.
    pub max_turns: Option<u32>,
    pub critical_reminder: String,
    pub skills: Vec<String>,
    pub mcp_servers: Vec<String>,
    pub blocking: bool,
    /// JSON text of the keys that are not interpreted; empty when there are none.
    pub extra_json: String,
    pub digest: Digest,
}

/// Which tools an agent may use. Absent, empty and all are three different things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolSelection {
    /// The front matter has no `tools`.
    Inherit,
    /// `tools: "*"`.
    All,
    /// Exactly these, in the order written.
    Listed(Vec<String>),
}

/// Which agents may be spawned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpawnPolicy {
    None,
    All,
    Listed(Vec<String>),
}

/// Reasoning effort asked of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingLevel {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

/// What an agent may do to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionMode {
    ReadOnly,
    DualSign,
    MutatingWithReview,
}

/// SHA-256 of a document's original bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

/// Where a definition came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub kind: SourceKind,
    /// The family with its dot; empty outside families.
    pub family: String,
    /// The file as the configuration leads to it; `embedded:<file>` when bundled, empty when authored.
    pub path: String,
    /// The directory of the source, which `path` lies below; empty when bundled or authored.
    pub directory: Arc<str>,
    /// `<plugin>@<marketplace>`; empty outside plugins.
    pub plugin: String,
    /// Place among the workspace's sources; 0 is asked first.
    pub precedence: u32,
}

/// The kind of place a definition came from, in merge order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    Authored,
    Project,
    User,
    Plugin,
    Root,
    Bundled,
}

impl AgentName {
    /// Wraps text that already satisfies the rules for names.
    pub(crate) fn new_valid(text: &str) -> Self {
        Self(Arc::from(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// In lower case, which most names are in already.
    pub(crate) fn folded(&self) -> Cow<'_, str> {
        match self.0.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
            true => Cow::Borrowed(&self.0),
            false => Cow::Owned(self.0.to_lowercase()),
        }
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for AgentName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Digest {
    /// Digests a document.
    pub fn of(document: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(document).into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one piece: a snapshot of thousands is written down at each change.
        let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
        let digits: String = self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        formatter.write_str(&digits)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
