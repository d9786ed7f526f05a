//! A front matter block → its top-level entries: the simple ones directly, of others refusals first, then YAML, then the rescue.

use crate::diagnostic::Code;

use super::{
    finding::{Findings, Position, shown},
    lexical::{self, Marks, Refusal},
    line,
    node::{Entry, Node, Reading, Value},
    rescue::{self, Block},
    simple,
    yaml::{self, Fault, Fragment, Tree},
};

/// The entries of a block and how they were found.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) entries: Vec<Entry>,
    /// The fault of YAML for which the block had to be read line by line.
    pub(super) rescued_from: Option<(Position, String)>,
}

/// Reads a block whose lines end with LF and which begins on `line`. `None` when it is refused.
pub(super) fn read(block: &str, line: u32, bundled: bool, findings: &mut Findings) -> Option<Front> {
    if let Some(pairs) = simple::read(block, line) {
        return Some(Front { entries: named(pairs), rescued_from: None });
    }
    let place = |offset: usize| position(block, line, offset);
    refuse_document_markers(block, line, findings);
    let marks = match lexical::scan(block) {
        Ok(marks) => marks,
        Err(Refusal::Unsupported(offset)) => {
            unsupported(block, offset, place(offset), findings);
            return None;
        }
        Err(Refusal::TooCostly(offset)) => {
            too_large(place(offset), "more unclosed quotes and brackets than can be read", findings);
            return None;
        }
    };
    if findings.is_refused() {
        return None;
    }
    if let (true, Some(offset)) = (bundled, marks.first_repaired) {
        unsupported(block, offset, place(offset), findings);
        return None;
    }

    let (masked, stars) = mask(block, &marks);
    let block = Block { text: block, masked: &masked, stars: &stars, line };
    match parse(&block, &marks) {
        Ok(tree) => {
            if let Some(offset) = marks.first_repaired {
                let message =
                    "a text that begins with `*`, `&` or `!` is no YAML and was read as it stands, quote it";
                findings.warn(Code::FrontMatterRescued, place(offset), message);
            }
            let entries = entries(tree, Position { line, column: 1 }, findings)?;
            Some(Front { entries, rescued_from: None })
        }
        Err(Fault::Invalid { at, reason }) if bundled => {
            findings.refuse(
                Code::YamlInvalid,
                at,
                format!("{} is no YAML ({reason}), mend it", line_at(block, at)),
            );
            None
        }
        Err(Fault::Invalid { at, reason }) => rescue(block, at, reason, findings),
        Err(fault @ (Fault::TooLarge { .. } | Fault::Unsupported(_))) => {
            refuse(fault, findings);
            None
        }
    }
}

/// Parses the whole block; a quote that swallows a key is a fault although libraries take it.
fn parse(block: &Block<'_>, marks: &Marks) -> Result<Tree, Fault> {
    let start = Position { line: block.line, column: 1 };
    let tree =
        yaml::parse(&Fragment { text: block.masked, masked: block.stars, offset: 0, at: start, depth: 0 })?;
    match marks.swallows_key {
        None => Ok(tree),
        Some(offset) => Err(Fault::Invalid {
            at: position(block.text, block.line, offset),
            reason: "a quote or bracket is not closed before the next key".to_owned(),
        }),
    }
}

fn rescue(block: Block<'_>, at: Position, reason: String, findings: &mut Findings) -> Option<Front> {
    let rescued = match rescue::read(block) {
        Ok(rescued) => rescued,
        Err(fault) => {
            refuse(fault, findings);
            return None;
        }
    };
    let line = line_at(block, at);
    let message = format!("{line} is no YAML ({reason}), all was read line by line, quote what holds `: `");
    findings.warn(Code::FrontMatterRescued, at, message);
    for duplicate in rescued.duplicates {
        findings.refuse_duplicate(&duplicate.key, duplicate.first, duplicate.second);
    }
    Some(Front { entries: rescued.entries, rescued_from: Some((at, reason)) })
}

/// The entries of a valid block; an empty one has none.
fn entries(tree: Tree, start: Position, findings: &mut Findings) -> Option<Vec<Entry>> {
    for duplicate in tree.duplicates {
        findings.refuse_duplicate(&duplicate.key, duplicate.first, duplicate.second);
    }
    let Some(root) = tree.root else { return Some(Vec::new()) };
    let Value::Map(pairs) = root.value else {
        let at = root.at.max(start);
        let message = format!(
            "the front matter is {}, {}, write `key: value` lines",
            root.kind(),
            shown(&root.written())
        );
        findings.refuse(Code::NotAMapping, at, message);
        return None;
    };
    Some(named(pairs))
}

fn named(pairs: Vec<(Node, Node)>) -> Vec<Entry> {
    let entry =
        |(key, value): (Node, Node)| Entry { key: key.written(), at: key.at, value: Reading::Value(value) };
    pairs.into_iter().map(entry).collect()
}

fn refuse_document_markers(block: &str, first_line: u32, findings: &mut Findings) {
    for (text, line) in block.split('\n').zip(first_line..) {
        if line::is_document_marker(text) {
            let message =
                format!("{} begins or ends a document inside the front matter, remove it", shown(text));
            findings.refuse(Code::YamlInvalid, Position { line, column: 1 }, message);
            return;
        }
    }
}

/// Puts a letter where an indicator is text, so that YAML reads a plain scalar there.
fn mask(block: &str, marks: &Marks) -> (String, Vec<(usize, char)>) {
    let mut masked = String::with_capacity(block.len());
    let mut stars = Vec::with_capacity(marks.literal.len());
    let mut behind = 0;
    for &offset in &marks.literal {
        masked.push_str(&block[behind..offset]);
        masked.push('x');
        behind = offset + 1;
        stars.extend(block[offset..].chars().next().map(|character| (offset, character)));
    }
    masked.push_str(&block[behind..]);
    (masked, stars)
}

fn refuse(fault: Fault, findings: &mut Findings) {
    match fault {
        Fault::Invalid { at, reason } => findings.refuse(Code::YamlInvalid, at, format!("{reason}, mend it")),
        Fault::TooLarge { at, limit } => too_large(at, &limit, findings),
        Fault::Unsupported(at) => {
            let message =
                "anchors, aliases, tags and merge keys are not supported, write the value out or quote it";
            findings.refuse(Code::YamlUnsupported, at, message);
        }
    }
}

/// The line of a fault, for a message.
fn line_at(block: Block<'_>, at: Position) -> String {
    let index = at.line.saturating_sub(block.line) as usize;
    shown(block.text.split('\n').nth(index).unwrap_or_default().trim())
}

fn unsupported(block: &str, offset: usize, at: Position, findings: &mut Findings) {
    let value = block[offset..].split('\n').next().unwrap_or_default();
    let message = format!(
        "{} would be an anchor, alias, tag or merge key, which are not supported, quote it or write the value out",
        shown(value.trim_end()),
    );
    findings.refuse(Code::YamlUnsupported, at, message);
}

fn too_large(at: Position, limit: &str, findings: &mut Findings) {
    findings.refuse(Code::TooLarge, at, format!("the front matter has {limit}, make it smaller"));
}

/// The place of `offset` in a block that begins on `first_line`.
fn position(block: &str, first_line: u32, offset: usize) -> Position {
    let before = &block[..offset];
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let lines = before.bytes().filter(|byte| *byte == b'\n').count();
    Position::new(first_line as usize + lines, before[start..].chars().count() + 1)
}
