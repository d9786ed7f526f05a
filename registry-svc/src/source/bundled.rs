//! The definitions compiled into the service. They are ours, so a fault in one stops the service at its start.

use std::sync::Arc;

use crate::{
    agent::{Source, SourceKind},
    definition::{self, Format, Origin},
    document::{Content, Document},
    error::StartError,
};

macro_rules! bundled {
    ($($name:literal),* $(,)?) => {
        &[$((
            concat!($name, ".md"),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agents/", $name, ".md")),
        )),*]
    };
}

/// In byte order of their names, as in a directory.
const DOCUMENTS: &[(&str, &str)] =
    bundled!["default", "designer", "explore", "plan", "quick_task", "reviewer", "task"];

/// What stands before the file's name in a bundled path.
const PREFIX: &str = "embedded:";

/// The names that the bundled set defines.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    DOCUMENTS.iter().map(|(file, _)| file.trim_end_matches(".md"))
}

/// Parses the bundled set.
pub(super) fn documents(precedence: u32) -> Result<Vec<Arc<Document>>, StartError> {
    DOCUMENTS.iter().map(|(file, text)| document(file, text, precedence)).collect()
}

/// The bytes of a bundled document, by its path.
pub(super) fn read(path: &str) -> Option<&'static [u8]> {
    let file = path.strip_prefix(PREFIX)?;
    DOCUMENTS.iter().find(|(name, _)| *name == file).map(|(_, text)| text.as_bytes())
}

fn document(file: &'static str, text: &str, precedence: u32) -> Result<Arc<Document>, StartError> {
    let origin = Origin {
        format: Format::Markdown,
        stem: None,
        name_from_stem: false,
        bundled: true,
        guarded_names: &definition::UNGUARDED,
    };
    let source = Source {
        kind: SourceKind::Bundled,
        family: String::new(),
        path: format!("{PREFIX}{file}"),
        directory: Arc::from(""),
        plugin: String::new(),
        precedence,
    };
    let parsed = definition::parse(text.as_bytes(), &origin);
    let document = Document::new(parsed, text.len() as u64, Arc::new(source), None);
    match &document.content {
        Content::Usable(_) => Ok(Arc::new(document)),
        Content::Broken { .. } | Content::Disabled => {
            let finding = document.diagnostics.first();
            let finding = finding.map_or_else(String::new, |it| {
                format!("{}:{}: {} {}", it.line, it.column, it.code.as_str(), it.message)
            });
            Err(StartError::Bundled { file, finding })
        }
    }
}
