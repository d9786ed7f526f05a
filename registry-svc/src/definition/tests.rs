//! Whole documents: the corpus, tables for the sentences of the format, and properties that hold for every document.

mod corpus;
mod field;
mod foreign;
mod front;
mod outcome;
mod property;
mod rescue;
mod restriction;
mod role;

use serde_json::Value as Json;

use super::*;

fn origin() -> Origin<'static> {
    Origin {
        format: Format::Markdown,
        stem: None,
        name_from_stem: false,
        bundled: false,
        guarded_names: &UNGUARDED,
    }
}

/// Parses a document with `front` between its fences.
fn parse_front(front: &str) -> Parsed {
    parse(format!("---\n{front}---\nBody.\n").as_bytes(), &origin())
}

/// Parses a document that has a name, a description and `front`.
fn parse_fields(fields: &str) -> Parsed {
    parse_front(&format!("name: a\ndescription: d\n{fields}"))
}

/// The codes that were found, each once, in order of the alphabet.
fn codes(parsed: &Parsed) -> Vec<&'static str> {
    let mut codes: Vec<_> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.code.as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// The document is used, has at least these fields, and exactly these codes were found.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
fn used(parsed: Parsed, expected: Json, expected_codes: &[&str]) {
    let Some(agent) = &parsed.agent else {
        panic!("refused: {:?}", parsed.diagnostics);
    };
    let actual = corpus::as_json(agent);
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&actual[field], value, "{field}, {:?}", parsed.diagnostics);
    }
    assert_eq!(codes(&parsed), expected_codes, "{:?}", parsed.diagnostics);
    assert!(!parsed.blocks);
}

/// The document is refused, and exactly these codes were found.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
fn refused(parsed: Parsed, expected_codes: &[&str]) {
    assert!(parsed.agent.is_none(), "used: {:?}", parsed.agent);
    assert_eq!(codes(&parsed), expected_codes, "{:?}", parsed.diagnostics);
}
