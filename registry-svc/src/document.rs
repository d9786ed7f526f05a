//! One document as the merge sees it: what it says, where it stands, and whether it can be used.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::{
    agent::{Agent, AgentName, Digest, Source},
    definition::Parsed,
    diagnostic::Diagnostic,
};

/// One document at one place.
#[derive(Debug)]
pub struct Document {
    pub source: Arc<Source>,
    pub digest: Digest,
    pub size_bytes: u64,
    /// What the parser found, with the path and, where it is known, the agent filled in.
    pub diagnostics: Vec<Diagnostic>,
    pub content: Content,
    /// Present for documents written through `Replace`.
    pub authored: Option<Authored>,
}

/// What a document turned out to be.
#[derive(Debug)]
pub enum Content {
    Usable(Arc<Definition>),
    Broken {
        claim: Claim,
        /// True for a fault in a restriction: the name is blocked whatever the configuration says.
        blocks: bool,
    },
    /// It says of itself that it is not there.
    Disabled,
}

/// The name that a document which cannot be used would have had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Its first line `name: …` says so.
    Name(AgentName),
    /// Only the file is called so: good enough for blocking, for nothing else.
    Stem(AgentName),
    None,
}

/// What is kept of the writing of an authored document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authored {
    /// The bytes as they were written.
    pub document: Bytes,
    pub by_administrator: bool,
    /// The candidates below it when it was written, as path and digest; any other is a later change.
    pub shadowed: Vec<(String, Digest)>,
}

/// A definition that can be used, and the place it came from.
#[derive(Debug)]
pub struct Definition {
    pub agent: Arc<Agent>,
    pub source: Arc<Source>,
    pub size_bytes: u64,
    encoded: OnceLock<Bytes>,
    place: OnceLock<Digest>,
}

impl Definition {
    pub fn new(agent: Arc<Agent>, source: Arc<Source>, size_bytes: u64) -> Self {
        Self { agent, source, size_bytes, encoded: OnceLock::new(), place: OnceLock::new() }
    }

    /// Digest of all that is known of the place. Every change of a set asks for that of each definition in it.
    pub fn place(&self) -> Digest {
        *self.place.get_or_init(|| {
            let Source { kind, family, path, directory, plugin, precedence } = &*self.source;
            let place = format!("{kind:?}\0{family}\0{path}\0{directory}\0{plugin}\0{precedence}");
            Digest::of(place.as_bytes())
        })
    }

    /// What of the definition the edge keeps ready, made at the first call and kept as long as the definition.
    pub fn encoded(&self, encode: impl FnOnce(&Self) -> Bytes) -> &Bytes {
        self.encoded.get_or_init(|| encode(self))
    }
}

/// Two definitions are the same when digest and place are: the digest covers every other field.
impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        self.agent.digest == other.agent.digest
            && self.agent.name == other.agent.name
            && self.source == other.source
    }
}

impl Document {
    /// Puts a parsed document at its place. `stem` is its file's stem, already a valid name.
    pub fn new(parsed: Parsed, size_bytes: u64, source: Arc<Source>, stem: Option<AgentName>) -> Self {
        let Parsed { agent, mut diagnostics, digest, disabled, claimed_name, blocks } = parsed;
        let name = agent.as_ref().map(|agent| agent.name.as_str()).or(claimed_name.as_deref());
        for diagnostic in &mut diagnostics {
            diagnostic.path.clone_from(&source.path);
            if diagnostic.agent.is_empty() {
                diagnostic.agent = name.unwrap_or_default().to_owned();
            }
        }
        let content = match (agent, disabled) {
            (_, true) => Content::Disabled,
            (Some(agent), false) => {
                Content::Usable(Arc::new(Definition::new(Arc::new(agent), Arc::clone(&source), size_bytes)))
            }
            (None, false) => {
                let claim = match (claimed_name, stem) {
                    (Some(name), _) => Claim::Name(AgentName::new_valid(&name)),
                    (None, Some(stem)) => Claim::Stem(stem),
                    (None, None) => Claim::None,
                };
                Content::Broken { claim, blocks }
            }
        };
        Self { source, digest, size_bytes, diagnostics, content, authored: None }
    }

    /// The same document where its source has moved in the order of sources.
    pub fn moved_to(&self, source: Arc<Source>) -> Self {
        let content = match &self.content {
            Content::Usable(definition) => Content::Usable(Arc::new(Definition::new(
                Arc::clone(&definition.agent),
                Arc::clone(&source),
                definition.size_bytes,
            ))),
            Content::Broken { claim, blocks } => Content::Broken { claim: claim.clone(), blocks: *blocks },
            Content::Disabled => Content::Disabled,
        };
        Self {
            source,
            digest: self.digest,
            size_bytes: self.size_bytes,
            diagnostics: self.diagnostics.clone(),
            content,
            authored: self.authored.clone(),
        }
    }

    /// The definition, where the document can be used.
    pub fn definition(&self) -> Option<&Arc<Definition>> {
        match &self.content {
            Content::Usable(definition) => Some(definition),
            Content::Broken { .. } | Content::Disabled => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        agent::SourceKind,
        definition::{self, Format, Origin},
    };

    pub(crate) fn source(kind: SourceKind, precedence: u32, path: &str) -> Arc<Source> {
        Arc::new(Source {
            kind,
            family: String::new(),
            path: path.to_owned(),
            directory: Arc::from("/d"),
            plugin: String::new(),
            precedence,
        })
    }

    /// A document at a place, its stem being `stem`.
    pub(crate) fn document(source: Arc<Source>, text: &str) -> Document {
        let origin = Origin {
            format: Format::Markdown,
            stem: Some("stem"),
            name_from_stem: false,
            bundled: false,
            guarded_names: &definition::UNGUARDED,
        };
        let parsed = definition::parse(text.as_bytes(), &origin);
        Document::new(parsed, text.len() as u64, source, definition::valid_name("stem"))
    }

    pub(crate) fn definition(name: &str, description: &str) -> Arc<Definition> {
        let description = serde_json::to_string(description).unwrap();
        let text = format!("---\nname: {name}\ndescription: {description}\n---\nB\n");
        let document = document(source(SourceKind::Root, 9, &format!("/d/{name}.md")), &text);
        Arc::clone(document.definition().unwrap())
    }

    #[test]
    fn an_encoded_answer_is_made_once() {
        let definition = definition("a", "d");

        definition.encoded(|_| Bytes::from_static(b"first"));

        assert_eq!(definition.encoded(|_| unreachable!("it is there already")), &b"first"[..]);
    }

    #[test]
    fn a_document_that_moves_keeps_all_but_its_place() {
        let before =
            document(source(SourceKind::Root, 9, "/d/a.md"), "---\nname: a\ndescription: d\n---\nB\n");

        let after = before.moved_to(source(SourceKind::Root, 10, "/d/a.md"));

        assert_eq!(after.source.precedence, 10);
        let (before, after) = (before.definition().unwrap(), after.definition().unwrap());
        assert!(Arc::ptr_eq(&before.agent, &after.agent));
        assert_ne!(before, after);
    }
}
