//! Workflow commands: Markdown templates, found like agents but separate from them.

use std::{collections::HashMap, sync::Arc};

use serde::Deserialize;

use crate::{
    agent::{Digest, Source},
    diagnostic::{Code, Diagnostic, Severity},
    front_matter,
};

/// The place in a template that the arguments go to.
const ARGUMENTS: &str = "$@";

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The file's stem.
    pub name: String,
    /// Empty when the front matter has none.
    pub description: String,
    pub content: String,
    pub source: Arc<Source>,
    pub digest: Digest,
}

#[derive(Default, Deserialize)]
struct Fields {
    description: Option<String>,
}

impl Command {
    /// Reads a command document. Front matter is optional; a broken one is a finding and the document is not loaded.
    pub fn parse(document: &[u8], name: &str, source: &Arc<Source>) -> Result<Self, Diagnostic> {
        let (fields, body) =
            front_matter::read::<Fields>(document).map_err(|fault| fault.at(&source.path))?;
        Ok(Self {
            name: name.to_owned(),
            description: fields.unwrap_or_default().description.unwrap_or_default().trim().to_owned(),
            content: body,
            source: Arc::clone(source),
            digest: Digest::of(document),
        })
    }

    /// The content with the arguments put in for every `$@`.
    pub fn expand(&self, arguments: &str) -> String {
        self.content.replace(ARGUMENTS, arguments)
    }
}

/// Keeps the first of each name, in the order given; a second one in the same source is a finding.
pub fn first_wins(
    commands: impl IntoIterator<Item = Arc<Command>>,
    findings: &mut Vec<Diagnostic>,
) -> Vec<Arc<Command>> {
    first_of_each(commands, "command", |command| (&command.name, &command.source), findings)
}

/// As for commands, for anything that has a name and a source.
pub(crate) fn first_of_each<T>(
    items: impl IntoIterator<Item = Arc<T>>,
    kind: &str,
    key: impl Fn(&T) -> (&String, &Arc<Source>),
    findings: &mut Vec<Diagnostic>,
) -> Vec<Arc<T>> {
    let mut seen: HashMap<String, Arc<Source>> = HashMap::new();
    let is_first = |item: &Arc<T>| {
        let (name, source) = key(item);
        match seen.get(name) {
            Some(first) => {
                if first.precedence == source.precedence {
                    findings.push(duplicate(kind, name, first, source));
                }
                false
            }
            None => {
                seen.insert(name.clone(), Arc::clone(source));
                true
            }
        }
    };
    items.into_iter().filter(is_first).collect()
}

fn duplicate(kind: &str, name: &str, first: &Source, second: &Source) -> Diagnostic {
    let message = format!(
        "{kind} `{name}` is also defined in `{}`, which is asked first; rename one of them",
        first.path
    );
    let mut diagnostic = Diagnostic::new(Severity::Warning, Code::DuplicateName, 0, 0, message);
    diagnostic.path.clone_from(&second.path);
    diagnostic
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agent::SourceKind, document::tests::source};

    #[test]
    fn arguments_go_to_every_place() {
        let source = source(SourceKind::Root, 9, "/d/commands/fix.md");

        let command =
            Command::parse(b"---\ndescription: ' Fixes. '\n---\nFix $@, then test $@.\n", "fix", &source)
                .unwrap();

        assert_eq!((command.name.as_str(), command.description.as_str()), ("fix", "Fixes."));
        assert_eq!(command.expand("#7 $@"), "Fix #7 $@, then test #7 $@.");
    }

    #[test]
    fn a_command_needs_no_front_matter_but_no_broken_one_either() {
        let source = source(SourceKind::Root, 9, "/d/commands/fix.md");

        assert_eq!(Command::parse(b"Fix it.\n", "fix", &source).unwrap().description, "");
        let finding = Command::parse(b"---\ndescription: d\n", "fix", &source).unwrap_err();
        assert_eq!((finding.code, finding.path.as_str()), (Code::UnclosedFrontMatter, "/d/commands/fix.md"));
    }
}
