//! Reads front matter that is no YAML line by line, as generators write it, without losing a restriction.

mod value;

use std::ops::Range;

use super::{
    finding::Position,
    key::{Field, Meaning},
    line,
    node::{Entry, Node, Reading},
    yaml::{self, Duplicate, Fault, Fragment, NODES_MAX},
};

/// A front matter block; its lines end with LF.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    pub(super) text: &'a str,
    /// The same length, with a letter for every indicator that is text.
    pub(super) masked: &'a str,
    /// Offsets of the masked characters with the characters, in order.
    pub(super) stars: &'a [(usize, char)],
    /// The document's line with which it begins.
    pub(super) line: u32,
}

/// What a rescue saved.
#[derive(Debug)]
pub(super) struct Rescued {
    pub(super) entries: Vec<Entry>,
    /// Keys that occur twice in one nested map.
    pub(super) duplicates: Vec<Duplicate>,
    /// Scalars and collections of all values that are YAML; together they have the limit of one block.
    nodes: usize,
}

impl Rescued {
    /// Takes `fragment` if it is valid YAML and its root is wanted.
    fn take(
        &mut self,
        fragment: &Fragment<'_>,
        wanted: impl Fn(&Node) -> bool,
    ) -> Result<Option<Node>, Fault> {
        let tree = match yaml::parse(fragment) {
            Ok(tree) => tree,
            Err(Fault::Invalid { .. }) => return Ok(None),
            Err(fault @ (Fault::TooLarge { .. } | Fault::Unsupported(_))) => return Err(fault),
        };
        self.nodes += tree.nodes;
        if self.nodes > NODES_MAX {
            return Err(Fault::too_many_nodes(fragment.at));
        }
        let root = tree.root.filter(wanted);
        if root.is_some() {
            self.duplicates.extend(tree.duplicates);
        }
        Ok(root)
    }
}

/// Reads what can be read of `block`.
///
/// Fails only where a nested block is too large or holds what is not supported: that is not rescued.
pub(super) fn read(block: Block<'_>) -> Result<Rescued, Fault> {
    let rescue = Rescue::new(block);
    let mut rescued = Rescued { entries: Vec::new(), duplicates: Vec::new(), nodes: 0 };
    for section in rescue.sections() {
        let value = rescue.value(&section, &mut rescued)?;
        rescued.entries.push(Entry { key: section.key.to_owned(), at: section.at, value });
    }
    Ok(rescued)
}

/// What a line is to the key above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    /// Blank, or a comment.
    Nothing,
    Indented,
    /// `- item` at column 0.
    Item,
    /// Anything else at column 0.
    Other,
}

/// A key with everything that belongs to it.
#[derive(Debug)]
struct Section<'a> {
    key: &'a str,
    at: Position,
    meaning: Meaning,
    /// The rest of the key's line.
    value: Range<usize>,
    value_at: Position,
    /// Indices of the lines below.
    below: Range<usize>,
}

struct Rescue<'a> {
    block: Block<'a>,
    lines: Vec<Range<usize>>,
}

impl<'a> Rescue<'a> {
    fn new(block: Block<'a>) -> Self {
        Self { block, lines: line::ranges(block.text) }
    }

    /// Cuts the block at its keys. What stands before the first one belongs to nothing.
    fn sections(&self) -> Vec<Section<'a>> {
        let mut sections: Vec<Section<'a>> = Vec::new();
        for (index, range) in self.lines.iter().enumerate() {
            let above = sections.last().map(|section| section.meaning);
            let Some(key) = column_0_key(self.text(range), above) else {
                if let Some(section) = sections.last_mut() {
                    section.below.end = index + 1;
                }
                continue;
            };
            let value = range.start + key.value..range.end;
            sections.push(Section {
                key: key.text,
                at: self.position(index, range.start),
                meaning: Meaning::of(key.text),
                value_at: self.position(index, value.start),
                value,
                below: index + 1..index + 1,
            });
        }
        sections
    }

    fn text(&self, range: &Range<usize>) -> &'a str {
        &self.block.text[range.clone()]
    }

    fn kind(&self, index: usize) -> LineKind {
        let text = self.text(&self.lines[index]);
        let content = text.trim_start_matches([' ', '\t']);
        if content.is_empty() || content.starts_with('#') {
            LineKind::Nothing
        } else if content.len() < text.len() {
            LineKind::Indented
        } else if line::entry(text).is_some() {
            LineKind::Item
        } else {
            LineKind::Other
        }
    }

    /// The place of `offset` on the line of `index`.
    fn position(&self, index: usize, offset: usize) -> Position {
        let start = self.lines[index].start;
        Position::new(self.block.line as usize + index, self.block.text[start..offset].chars().count() + 1)
    }
}

/// The key with which a line at column 0 begins, below a key that means `above`.
fn column_0_key(text: &str, above: Option<Meaning>) -> Option<line::Key<'_>> {
    // Characters with which no plain key of YAML begins; a quoted key is recognised as a whole.
    const NO_KEY: &[char] = &[' ', '\t', '#', '[', ']', '{', '}', ',', '|', '>', '@', '%', '`'];
    if text.starts_with(NO_KEY)
        || line::indicator(text, b'?').is_some()
        || line::indicator(text, b':').is_some()
    {
        return None;
    }
    let key = line::key(text)?;
    let holds_prose = match above {
        Some(Meaning::Field(field)) => field.is_text() && field != Field::Name,
        _ => false,
    };
    // Generators put `Context:`, `user:` and `<example>` at column 0 below a text.
    (!holds_prose || Meaning::of(key.text) != Meaning::Unknown).then_some(key)
}
