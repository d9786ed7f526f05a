//! Front matter as most of it is written, read directly: `key: value` lines with plain or quoted scalars on one line, lists and
//! maps below their keys. Whatever else occurs, the YAML library reads the whole block.
//!
//! Ten times as fast as the library, which decides how long a start takes. That both say the same is a property test.

use super::{
    finding::Position,
    node::{self, Node, Text, Value},
};

/// Bytes of a key: YAML ends implicit ones at 1,024.
const KEY_MAX: usize = 128;

/// Maps and lists inside one another. Definitions have two or three; the library knows the real limit.
const DEPTH_MAX: usize = 8;

/// Lines of a block, below the limit on values.
const LINES_MAX: usize = 1_000;

/// The pairs of a block whose lines end with LF and which begins on `first_line`; nothing where it takes the library.
pub(super) fn read(block: &str, first_line: u32) -> Option<Vec<(Node, Node)>> {
    if !block.bytes().all(|byte| matches!(byte, b'\n' | b' '..=b'~')) {
        return None;
    }
    let mut reader = Reader { lines: lines(block, first_line)?, at: 0 };
    let pairs = reader.map(0, 0)?;
    (reader.at == reader.lines.len() && !pairs.is_empty()).then_some(pairs)
}

#[derive(Clone, Copy)]
struct Line<'a> {
    number: u32,
    indent: usize,
    /// Without the indentation, never empty.
    text: &'a str,
}

struct Reader<'a> {
    lines: Vec<Line<'a>>,
    at: usize,
}

/// The lines of a block without the blank ones in which nothing is left open, which are all there are at its end.
fn lines(block: &str, first_line: u32) -> Option<Vec<Line<'_>>> {
    let mut lines = Vec::with_capacity(16);
    for (text, number) in block.trim_end_matches('\n').split('\n').zip(first_line..) {
        let content = text.trim_start_matches(' ');
        // A blank line or a comment may belong to the value above; the library knows.
        if content.is_empty() || content.starts_with('#') || lines.len() == LINES_MAX {
            return None;
        }
        lines.push(Line { number, indent: text.len() - content.len(), text: content });
    }
    Some(lines)
}

impl<'a> Reader<'a> {
    fn next_at(&self, indent: usize) -> Option<Line<'a>> {
        self.lines.get(self.at).copied().filter(|line| line.indent == indent)
    }

    /// The pairs at `indent`, up to a line further out.
    fn map(&mut self, indent: usize, depth: usize) -> Option<Vec<(Node, Node)>> {
        let mut pairs: Vec<(Node, Node)> = Vec::new();
        while let Some(line) = self.next_at(indent) {
            let (key, value) = split_key(line.text)?;
            let at = Position::new(line.number as usize, indent + 1);
            let key = Node { at, value: node::plain(key) };
            // A key that occurs twice is said by those who know which one counts.
            if depth > 0 && pairs.iter().any(|(earlier, _)| earlier.value == key.value) {
                return None;
            }
            self.at += 1;
            let value = match value {
                Some(offset) => value_at(line, offset)?,
                None => self.below(line, depth)?,
            };
            pairs.push((key, value));
        }
        self.ends_outside(indent).then_some(pairs)
    }

    /// What stands below a key without a value.
    fn below(&mut self, key: Line<'a>, depth: usize) -> Option<Node> {
        let line = *self.lines.get(self.at)?;
        if depth + 1 >= DEPTH_MAX {
            return None;
        }
        let at = Position::new(line.number as usize, line.indent + 1);
        match line.text.starts_with("- ") {
            true if line.indent >= key.indent => {
                let items = self.list(line.indent, key.indent)?;
                // Of a list in its key's own column the library names the first item.
                let at = if line.indent == key.indent { items.first()?.at } else { at };
                Some(Node { at, value: Value::List(items) })
            }
            false if line.indent > key.indent => {
                Some(Node { at, value: Value::Map(self.map(line.indent, depth + 1)?) })
            }
            true | false => None,
        }
    }

    /// The scalars of a list at `indent`, which may be that of its key.
    fn list(&mut self, indent: usize, key_indent: usize) -> Option<Vec<Node>> {
        let mut items = Vec::new();
        while let Some(line) = self.next_at(indent).filter(|line| line.text.starts_with("- ")) {
            let offset = 2 + line.text[2..].len() - line.text[2..].trim_start_matches(' ').len();
            items.push(scalar(line, offset)?);
            self.at += 1;
        }
        let ends = self.ends_outside(indent) || indent == key_indent && self.next_at(indent).is_some();
        ends.then_some(items)
    }

    /// True where the block ends, or goes on further out: a line further in would continue the value above.
    fn ends_outside(&self, indent: usize) -> bool {
        self.lines.get(self.at).is_none_or(|line| line.indent < indent)
    }
}

/// A key, and the offset of its value where it has one on its line.
fn split_key(text: &str) -> Option<(&str, Option<usize>)> {
    let is_of_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let end = text.bytes().position(|byte| !is_of_key(byte))?;
    let starts_with_letter = text.as_bytes()[0].is_ascii_alphabetic();
    let rest = text[end..].strip_prefix(':')?;
    if !starts_with_letter || end > KEY_MAX || !(rest.is_empty() || rest.starts_with(' ')) {
        return None;
    }
    let value = rest.trim_start_matches(' ');
    let offset = (!value.is_empty()).then(|| text.len() - value.len());
    Some((&text[..end], offset))
}

/// The value that begins at `offset` of a line and ends with it.
fn value_at(line: Line<'_>, offset: usize) -> Option<Node> {
    match line.text[offset..].strip_prefix('[') {
        Some(items) => {
            let items = flow_items(line, offset + 1, items.trim_end_matches(' ').strip_suffix(']')?)?;
            Some(Node { at: place(line, offset), value: Value::List(items) })
        }
        None => scalar(line, offset),
    }
}

/// The words of a flow list, between its brackets.
fn flow_items(line: Line<'_>, offset: usize, items: &str) -> Option<Vec<Node>> {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
    let mut nodes = Vec::new();
    let mut at = offset;
    for item in items.split(',') {
        let word = item.trim_matches(' ');
        if !word.bytes().next()?.is_ascii_alphanumeric() || !word.bytes().all(is_of_word) {
            return None;
        }
        let before = item.len() - item.trim_start_matches(' ').len();
        nodes.push(Node { at: place(line, at + before), value: node::plain(word) });
        at += item.len() + 1;
    }
    Some(nodes)
}

/// A scalar that begins at `offset` of a line and ends with it: quoted without anything to be resolved, or plain.
fn scalar(line: Line<'_>, offset: usize) -> Option<Node> {
    let text = line.text[offset..].trim_end_matches(' ');
    let value = match text.bytes().next()? {
        quote @ (b'"' | b'\'') => {
            let inner = text[1..].strip_suffix(char::from(quote))?;
            if inner.bytes().any(|byte| byte == quote || byte == b'\\') {
                return None;
            }
            Value::Text(Text { text: inner.to_owned(), cut_by_comment: false })
        }
        byte if byte.is_ascii_alphanumeric() && is_plain(text) => node::plain(text),
        _ => return None,
    };
    Some(Node { at: place(line, offset), value })
}

/// True where no colon makes a key of a part of the text, and no `#` ends it.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(index, byte)| match byte {
        b':' => bytes.get(index + 1).is_some_and(|next| *next != b' '),
        b'#' => index > 0 && bytes[index - 1] != b' ',
        _ => true,
    })
}

fn place(line: Line<'_>, offset: usize) -> Position {
    Position::new(line.number as usize, line.indent + offset + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{
            lexical::{self, Marks},
            yaml::{self, Fragment},
        },
        *,
    };

    /// What the lexical pass and the library make of a block in which they find nothing to say.
    fn by_library(block: &str) -> Option<Vec<(Node, Node)>> {
        let is_marker = |line: &str| super::super::line::is_document_marker(line);
        if block.split('\n').any(is_marker) || lexical::scan(block).ok()? != Marks::default() {
            return None;
        }
        let at = Position { line: 2, column: 1 };
        let tree = yaml::parse(&Fragment { text: block, masked: &[], offset: 0, at, depth: 0 }).ok()?;
        match tree.root?.value {
            Value::Map(pairs) if tree.duplicates.is_empty() => Some(pairs),
            _ => None,
        }
    }

    #[track_caller]
    fn reads(block: &str) {
        let read = read(block, 2);
        assert!(read.is_some(), "{block:?} is left to the library");
        assert_eq!(read, by_library(block), "{block:?}");
    }

    #[track_caller]
    fn leaves(block: &str) {
        assert_eq!(read(block, 2), None, "{block:?}");
    }

    #[test]
    fn what_most_definitions_hold_is_read() {
        reads("name: a\n");
        reads("name: code-reviewer\ndescription: Use it after a change, it's \"quick\" (really).\n");
        reads("name:   a  \nmax_turns: 10\nblocking: true\nmodel: null\nx: 1.5\nurl: http://x/#a\n");
        reads("description: \"Use: when # things\"\nspawns: '*'\nempty: \"\"\n");
        reads("tools: [read, grep,find ,  ls ]\nnumbers: [1, true]\n");
        reads("tools:\n  - read\n  - 'grep'\nmodel: x\n");
        reads("tools:\n- read\n-   grep\nmodel: x\n");
        reads(
            "output:\n  properties:\n    summary:\n      type: string\n    files:\n      - a\n  b: c\nname: a\n",
        );
        reads("tools: read, grep, bash\nname: a b: c\n".split_at(24).0);
        reads("name: a\nname: b\n");
    }

    #[test]
    fn everything_else_is_left_to_the_library() {
        for block in [
            "",
            "\n",
            "name: a\n\nb: c\n",
            "name: a # b\n",
            "# a\nname: a\n",
            "name: a: b\n",
            "name: a:\n",
            "name: a\n  b\n",
            "name: |\n  a\n",
            "name:\n",
            "name:\nb: c\n",
            "name: 'it''s'\n",
            "name: \"a\\n\"\n",
            "name: \"a\n  b\"\n",
            "name: 'a' b\n",
            "name: *a\n",
            "name: - a\n",
            "name: é\n",
            "name:\ta\n",
            "tools: []\n",
            "tools: [a\n",
            "tools: [a b]\n",
            "tools: [a, [b]]\n",
            "tools: [a,]\n",
            "tools:\n  - a: b\n",
            "tools:\n  - a\n   - b\n",
            "tools:\n  - a\n    b\n",
            "tools:\n  - a\n b: c\n",
            "tools:\n  -\n",
            "a:\n  b: 1\n  b: 2\n",
            "a:\n  b: 1\n   c: 2\n",
            "  a: 1\nb: 2\n",
            "- a\n",
            "a b: c\n",
            "'a': b\n",
            "<<: b\n",
            "---\n",
        ] {
            leaves(block);
        }
    }

    const PIECES: &[&str] = &[
        "name",
        "tools",
        "a",
        "b",
        ":",
        ": ",
        ":  ",
        "\n",
        "\n  ",
        "\n    ",
        "\n- ",
        "\n  - ",
        "- ",
        "[",
        "]",
        ", ",
        ",",
        "'",
        "\"",
        "\\",
        " ",
        "  ",
        "#",
        " # ",
        "|",
        ">",
        "*",
        "&",
        "!",
        "{",
        "}",
        "?",
        "%",
        "1",
        "true",
        "null",
        "~",
        "x: y\n",
        "tools:\n  - read\n",
        "m:\n  k: v\n",
        "...",
        "---",
        "read, grep",
        "it's",
        "http://x",
        "<<",
        "-",
        ".",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn what_is_read_directly_is_what_the_library_reads(
            pieces in prop::collection::vec(prop::sample::select(PIECES), 1..16),
        ) {
            let block = format!("{}\n", pieces.concat());
            if let Some(pairs) = read(&block, 2) {
                prop_assert_eq!(Some(pairs), by_library(&block), "{:?}", block);
            }
        }
    }
}
