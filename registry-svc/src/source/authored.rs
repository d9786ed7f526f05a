//! Authored definitions: documents written through `Replace`, asked before every other source.

use std::sync::Arc;

use super::warn_of_rescue;
use crate::{
    agent::{AgentName, Digest, Source, SourceKind},
    definition::{self, Format, GuardedNames, Origin},
    diagnostic::{Code, Diagnostic, Severity},
    document::{Authored, Claim, Content, Document},
    store::Stored,
};

/// Parses a document as one that would be authored.
pub(crate) fn parse(document: &[u8], guarded_names: &GuardedNames) -> Document {
    let origin =
        Origin { format: Format::Markdown, stem: None, name_from_stem: false, bundled: false, guarded_names };
    Document::new(definition::parse(document, &origin), document.len() as u64, Arc::new(place()), None)
}

/// Adds what is kept of its writing.
pub(crate) fn with_record(document: Document, authored: Authored) -> Document {
    Document { authored: Some(authored), ..document }
}

/// The authored definitions that a store holds. A damaged one blocks its name: what it restricted is not known.
pub(crate) fn documents(
    stored: &Stored,
    guarded_names: &GuardedNames,
) -> std::collections::BTreeMap<AgentName, Arc<Document>> {
    let sound = stored.authored.iter().map(|(name, authored)| {
        let document = parse(&authored.document, guarded_names);
        warn_of_rescue(&document);
        (name.clone(), Arc::new(with_record(document, authored.clone())))
    });
    let damaged = stored.damaged.iter().map(|(name, reason)| (name.clone(), Arc::new(damaged(name, reason))));
    sound.chain(damaged).collect()
}

fn damaged(name: &AgentName, reason: &str) -> Document {
    let message = format!("the stored definition is damaged: {reason}; write it again or remove it");
    let mut diagnostic = Diagnostic::new(Severity::Error, Code::Unreadable, 0, 0, message);
    diagnostic.agent = name.as_str().to_owned();
    Document {
        source: Arc::new(place()),
        digest: Digest::of(&[]),
        size_bytes: 0,
        diagnostics: vec![diagnostic],
        content: Content::Broken { claim: Claim::Name(name.clone()), blocks: true },
        authored: Some(Authored {
            document: bytes::Bytes::new(),
            by_administrator: true,
            shadowed: Vec::new(),
        }),
    }
}

fn place() -> Source {
    Source {
        kind: SourceKind::Authored,
        family: String::new(),
        path: String::new(),
        directory: Arc::from(""),
        plugin: String::new(),
        precedence: 0,
    }
}
