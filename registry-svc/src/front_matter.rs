//! Front matter of commands and skills: the same fences as an agent's, with a few plain fields and no rescue.

use serde::de::DeserializeOwned;

use crate::{
    definition::{FRONT_MATTER_MAX, fence},
    diagnostic::{Code, Diagnostic, Severity},
};

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
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let split = match fence::split(text) {
        Ok(split) => split,
        Err(fence::Fault::Missing) => return Ok((None, fence::body(text, 1).text)),
        Err(fence::Fault::Unclosed(at)) => {
            let message = "the front matter has no closing line `---`; add it";
            return Err(Fault::new(Code::UnclosedFrontMatter, at.line, at.column, message));
        }
    };
    if split.front_matter.len() > FRONT_MATTER_MAX {
        let message = format!("the front matter is longer than {FRONT_MATTER_MAX} bytes; shorten it");
        return Err(Fault::new(Code::TooLarge, split.front_matter_line, 1, message));
    }
    let fields = parse(&split.front_matter, split.front_matter_line - 1)?;
    Ok((Some(fields), split.body.text))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Fields = BTreeMap<String, String>;

    #[track_caller]
    fn check(document: &str, fields: Option<&[(&str, &str)]>, body: &str) {
        let expected = fields
            .map(|fields| fields.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect());
        assert_eq!(read::<Fields>(document.as_bytes()), Ok((expected, body.to_owned())), "{document:?}");
    }

    #[track_caller]
    fn refused(document: &[u8], code: Code, line: u32) {
        let fault = read::<Fields>(document).unwrap_err();
        assert_eq!((fault.code, fault.line), (code, line), "{document:?}");
    }

    #[test]
    fn front_matter_is_optional_and_may_be_empty() {
        check("Do it.\n", None, "Do it.");
        check("---\n---\nDo it.\n", Some(&[]), "Do it.");
        check(
            "\u{feff}---\r\ndescription: d\r\n---\r\n\r\nDo\r\nit.\r\n",
            Some(&[("description", "d")]),
            "Do\nit.",
        );
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_line() {
        refused(b"---\na: b\n", Code::UnclosedFrontMatter, 1);
        refused(b"\xff", Code::NotUtf8, 0);
        refused(b"\n---\na: b\nc: [\n---\n", Code::YamlInvalid, 4);
        refused(b"---\na: &x b\nc: *x\n---\n", Code::YamlInvalid, 2);
        refused(format!("---\na: {}\n---\n", "x".repeat(FRONT_MATTER_MAX)).as_bytes(), Code::TooLarge, 2);
    }
}
