//! Front matter of commands and skills: the same fences as an agent's, with a few plain fields and no rescue.

use serde::de::DeserializeOwned;

use crate::diagnostic::{Code, Diagnostic, Severity};

/// Largest front matter in bytes, as for agents.
const FRONT_MATTER_BYTES_MAX: usize = 64 * 1024;

/// Why a front matter cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    code: Code,
    line: u32,
    column: u32,
    message: String,
}

impl Fault {
    fn new(code: Code, line: u32, column: u32, message: impl Into<String>) -> Self {
        Self { code, line, column, message: message.into() }
    }

    pub(crate) fn at(self, path: &str) -> Diagnostic {
        let mut diagnostic =
            Diagnostic::new(Severity::Error, self.code, self.line, self.column, self.message);
        path.clone_into(&mut diagnostic.path);
        diagnostic
    }
}

/// Splits a document into its fields, absent without front matter, and its body.
pub(crate) fn read<T: DeserializeOwned>(document: &[u8]) -> Result<(Option<T>, String), Fault> {
    let text = std::str::from_utf8(document)
        .map_err(|_| Fault::new(Code::NotUtf8, 0, 0, "the file is not UTF-8; save it as UTF-8"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<&str> = text.split('\n').collect();

    let first = lines.iter().position(|line| !line.trim().is_empty()).unwrap_or(lines.len());
    if !lines.get(first).is_some_and(|line| is_fence(line)) {
        return Ok((None, body(&lines)));
    }
    let block = &lines[first + 1..];
    let length = block.iter().position(|line| is_fence(line)).ok_or_else(|| {
        Fault::new(
            Code::UnclosedFrontMatter,
            position(first),
            1,
            "the front matter has no closing line `---`; add it",
        )
    })?;
    let yaml = block[..length].join("\n");
    if yaml.len() > FRONT_MATTER_BYTES_MAX {
        let message = format!("the front matter is longer than {FRONT_MATTER_BYTES_MAX} bytes; shorten it");
        return Err(Fault::new(Code::TooLarge, position(first), 1, message));
    }
    Ok((Some(parse(&yaml, position(first))?), body(&block[length + 1..])))
}

fn parse<T: DeserializeOwned>(yaml: &str, offset: u32) -> Result<T, Fault> {
    let yaml = if yaml.trim().is_empty() { "{}" } else { yaml };
    let options = serde_yaml::options! {
        strict_booleans: true,
        merge_keys: serde_yaml::MergeKeyPolicy::AsOrdinary,
        with_snippet: false,
        budget: serde_yaml::budget! { max_depth: 32, max_nodes: 10_000, max_aliases: 0, max_anchors: 0, max_documents: 1 },
    };
    serde_yaml::from_str_with_options(yaml, options).map_err(|error| {
        let (line, column) = match error.location() {
            Some(location) => {
                (u32::try_from(location.line()).unwrap_or(0), u32::try_from(location.column()).unwrap_or(0))
            }
            None => (0, 0),
        };
        Fault::new(Code::YamlInvalid, offset + line, column, format!("{error}; correct the front matter"))
    })
}

/// A line of exactly `---`, trailing blanks allowed.
fn is_fence(line: &str) -> bool {
    line.trim_end() == "---"
}

/// Without the blank lines at both ends.
fn body(lines: &[&str]) -> String {
    let is_text = |line: &&str| !line.trim().is_empty();
    let Some(first) = lines.iter().position(is_text) else { return String::new() };
    let last = lines.iter().rposition(is_text).unwrap_or(first);
    lines[first..=last].join("\n")
}

/// The line number, from 1, of an index.
fn position(index: usize) -> u32 {
    u32::try_from(index + 1).unwrap_or(u32::MAX)
}
