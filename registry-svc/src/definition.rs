//! Bytes of a definition document → a definition, if it can be used, and all that was found in it.

mod claim;
pub(crate) mod fence;
mod field;
mod finding;
mod front;
mod hidden;
mod key;
mod lexical;
mod line;
mod name;
mod node;
mod permission;
mod rescue;
mod simple;
mod toml;
mod tool;
mod unique;
mod yaml;

pub use self::name::{GuardedNames, UNGUARDED};
use crate::{
    agent::{Agent, AgentName, Digest},
    diagnostic::{Code, Diagnostic},
};

use self::{
    fence::{Body, Fault},
    field::{Frame, Outcome},
    finding::{Findings, Position, shown},
    node::{Entry, Reading},
};

/// Bytes of a whole document.
pub const DOCUMENT_MAX: usize = 1 << 20;

/// Bytes of its front matter.
pub const FRONT_MATTER_MAX: usize = 64 << 10;

/// The language a document is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Markdown with YAML front matter.
    Markdown,
    /// A Codex role.
    Toml,
}

/// What the parser has to know of the place a document comes from.
#[derive(Clone, Debug)]
pub struct Origin<'a> {
    pub format: Format,
    /// The file's stem (without `.agent` too): the name offered where the document has none, and for blocking.
    pub stem: Option<&'a str>,
    /// True where a missing `name` is taken from the stem.
    pub name_from_stem: bool,
    /// Bundled documents are never rescued.
    pub bundled: bool,
    /// Names that another name must not be confusable with: protected and bundled ones.
    pub guarded_names: &'a GuardedNames,
}

/// What one document is.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// Absent when the document cannot be used, or is disabled.
    pub agent: Option<Agent>,
    /// In order of line and column.
    pub diagnostics: Vec<Diagnostic>,
    pub digest: Digest,
    /// The document says of itself that it is not there.
    pub disabled: bool,
    /// The name an unusable document would have had, from its first line `name: …`.
    pub claimed_name: Option<String>,
    /// True when it cannot be used because of a fault in a restriction: it blocks its name whatever the configuration says.
    pub blocks: bool,
}

/// Reads one document. Never panics, never fails: what is wrong is among the diagnostics.
pub fn parse(document: &[u8], origin: &Origin<'_>) -> Parsed {
    let digest = Digest::of(document);
    let mut findings = Findings::default();
    let outcome = read(document, digest, origin, &mut findings);
    let disabled = matches!(outcome, Some(Outcome::Disabled));
    let mut agent = match outcome {
        Some(Outcome::Read(agent)) => agent,
        Some(Outcome::Disabled) | None => None,
    };
    let mut claimed_name = None;
    if agent.is_none() || findings.is_refused() {
        let parsed_name = agent.take().map(|agent| agent.name.as_str().to_owned());
        claimed_name = parsed_name.or_else(|| claim::name(document));
    }
    let name = agent.as_ref().map(|agent| agent.name.as_str()).or(claimed_name.as_deref());
    Parsed {
        blocks: !disabled && findings.concerns_restriction(),
        diagnostics: findings.into_diagnostics(name),
        agent: agent.map(|agent| *agent),
        digest,
        disabled,
        claimed_name,
    }
}

/// Makes a name of text that is one, such as a file's stem.
pub fn valid_name(text: &str) -> Option<AgentName> {
    name::check(text.trim()).ok().filter(|name| !name.is_empty()).map(|name| AgentName::new_valid(&name))
}

fn read(document: &[u8], digest: Digest, origin: &Origin<'_>, findings: &mut Findings) -> Option<Outcome> {
    if document.len() > DOCUMENT_MAX {
        let message = format!(
            "the document has {} bytes, at most {DOCUMENT_MAX} are read, make it smaller",
            document.len()
        );
        findings.refuse(Code::TooLarge, Position::START, message);
        return None;
    }
    let text = match std::str::from_utf8(document) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let (at, byte) = not_utf8(document, error.valid_up_to());
            findings.refuse(
                Code::NotUtf8,
                at,
                format!("byte 0x{byte:02x} is no UTF-8, save the file as UTF-8"),
            );
            return None;
        }
    };
    match origin.format {
        Format::Markdown => markdown(text, digest, origin, findings),
        Format::Toml => role(text, digest, origin, findings),
    }
}

fn markdown(document: &str, digest: Digest, origin: &Origin<'_>, findings: &mut Findings) -> Option<Outcome> {
    let split = match fence::split(document) {
        Ok(split) => split,
        Err(Fault::Missing) => {
            let message = "the document has no front matter, begin it with a line `---`";
            findings.refuse(Code::NoFrontMatter, Position::START, message);
            return None;
        }
        Err(Fault::Unclosed(at)) => {
            let message = "the front matter is not closed, end it with a line `---`";
            findings.refuse(Code::UnclosedFrontMatter, at, message);
            return None;
        }
    };
    let start = Position { line: split.front_matter_line, column: 1 };
    if split.front_matter_size > FRONT_MATTER_MAX {
        let size = split.front_matter_size;
        let message = format!(
            "the front matter has {size} bytes, at most {FRONT_MATTER_MAX} are read, make it smaller"
        );
        findings.refuse(Code::TooLarge, start, message);
        return None;
    }
    let front = front::read(&split.front_matter, start.line, origin.bundled, findings)?;
    find_hidden(&front.entries, &split.front_matter, start.line, findings);
    find_hidden_in_body(&split.body, findings);
    let frame = Frame { origin, start, body: split.body, digest };
    let outcome = field::read(front.entries, frame, findings);
    if let Some((at, reason)) = front.rescued_from.filter(|_| findings.has_refused(Code::MissingField)) {
        let message =
            format!("the front matter is no YAML ({reason}), and too little of it could be read, mend it");
        findings.refuse(Code::YamlInvalid, at, message);
    }
    Some(outcome)
}

fn role(document: &str, digest: Digest, origin: &Origin<'_>, findings: &mut Findings) -> Option<Outcome> {
    let role = toml::read(document, findings)?;
    find_hidden(&role.entries, document, 1, findings);
    find_hidden_in_body(&role.body, findings);
    let frame = Frame { origin, start: Position::START, body: role.body, digest };
    Some(field::read(role.entries, frame, findings))
}

/// Refuses every entry that holds a hidden character, with the places in `source`, which begins on `first_line`.
fn find_hidden(entries: &[Entry], source: &str, first_line: u32, findings: &mut Findings) {
    let is_hidden = |text: &str| hidden::find(text, Position::START).is_some();
    for (index, entry) in entries.iter().enumerate() {
        let mut found = is_hidden(&entry.key);
        if let Reading::Value(node) = &entry.value {
            node.each_text(&mut |text| found |= is_hidden(text));
        }
        if !found {
            continue;
        }
        let end = entries.get(index + 1).map_or(u32::MAX, |next| next.at.line.max(entry.at.line + 1));
        let skipped = entry.at.line.saturating_sub(first_line) as usize;
        let length = (end - entry.at.line) as usize;
        let lines: Vec<&str> = source.split('\n').skip(skipped).take(length).collect();
        let hidden = hidden::find(&lines.join("\n"), Position { line: entry.at.line, column: 1 });
        // Without a place in the source they were written as escapes.
        let at = hidden.as_ref().map_or(entry.at, hidden::Hidden::first);
        let places = hidden.map_or_else(|| "written as escapes".to_owned(), |hidden| hidden.describe());
        let message = format!("{} holds hidden characters ({places}), remove them", shown(&entry.key));
        findings.refuse(Code::HiddenCharacters, at, message);
    }
}

fn find_hidden_in_body(body: &Body, findings: &mut Findings) {
    if let Some(hidden) = hidden::find(&body.text, Position { line: body.line, column: 1 }) {
        let message = format!("the body holds hidden characters ({}), remove them", hidden.describe());
        findings.warn(Code::HiddenCharacters, hidden.first(), message);
    }
}

/// Where a document stops being UTF-8, and the byte that stands there.
fn not_utf8(document: &[u8], valid: usize) -> (Position, u8) {
    let before = String::from_utf8_lossy(&document[..valid]);
    let line = fence::lines(&before).count().max(1) + usize::from(before.ends_with(['\n', '\r']));
    let column = before.rsplit(['\n', '\r']).next().unwrap_or_default().chars().count() + 1;
    (Position::new(line, column), document[valid])
}

#[cfg(test)]
mod tests;
