//! Codex roles: a TOML document → the same entries as front matter, and the instructions as the body.

use std::ops::Range;

use toml_edit::{Document, Item, TableLike, Value as Toml};

use crate::diagnostic::Code;

use super::{
    fence::{self, Body},
    finding::{Findings, Position, shown},
    key,
    node::{self, Entry, Node, Number, Reading, Value},
    yaml::{DEPTH_MAX, NODES_MAX},
};

/// The key, as compared, that holds what is the body elsewhere.
const INSTRUCTIONS: &str = "developerinstructions";

/// A role in its two parts.
#[derive(Debug)]
pub(super) struct Role {
    pub(super) entries: Vec<Entry>,
    pub(super) body: Body,
}

/// Reads a role. `None` when it is refused.
pub(super) fn read(document: &str, findings: &mut Findings) -> Option<Role> {
    let places = Places::new(document);
    let parsed = match Document::parse(document) {
        Ok(parsed) => parsed,
        Err(error) => {
            let at = places.position(error.span().map_or(0, |span| span.start));
            // The library's own limit lies above ours; its words are all that tells it from other faults.
            if error.message().contains("recurs") {
                too_large(at, &format!("nesting deeper than {DEPTH_MAX}"), findings);
                return None;
            }
            let reason = error.message().lines().next().unwrap_or_default().to_owned();
            findings.refuse(Code::TomlInvalid, at, format!("the role is no TOML ({reason}), mend it"));
            return None;
        }
    };
    let mut reader = Reader { places: &places, nodes: 1, too_large: None };
    let mut entries = reader.entries(parsed.as_table());
    if let Some((at, limit)) = reader.too_large {
        too_large(at, &limit, findings);
        return None;
    }
    // Tables may be written in any order; findings and texts are looked up by their lines.
    entries.sort_by_key(|entry| entry.at);
    let body = take_instructions(&mut entries, findings);
    Some(Role { entries, body })
}

fn too_large(at: Position, limit: &str, findings: &mut Findings) {
    findings.refuse(Code::TooLarge, at, format!("the role has {limit}, make it smaller"));
}

fn take_instructions(entries: &mut Vec<Entry>, findings: &mut Findings) -> Body {
    let none = Body { text: String::new(), line: 1 };
    let mut found = entries.extract_if(.., |entry| key::fold(&entry.key) == INSTRUCTIONS);
    let Some(entry) = found.next() else { return none };
    for other in found {
        findings.refuse_duplicate(&other.key, entry.at, other.at);
    }
    match entry.value {
        Reading::Value(Node { value: Value::Text(text), at }) => fence::body(&text.text, at.line),
        Reading::Value(node) => {
            let message = format!(
                "`developer_instructions` is {}, {}, write text",
                node.kind(),
                shown(&node.written())
            );
            findings.refuse(Code::InvalidField, node.at, message);
            none
        }
        Reading::Unreadable(_) => none,
    }
}

struct Reader<'a> {
    places: &'a Places<'a>,
    nodes: usize,
    too_large: Option<(Position, String)>,
}

impl Reader<'_> {
    fn entries(&mut self, table: &toml_edit::Table) -> Vec<Entry> {
        let pairs = self.pairs(table, Position::START, 1);
        pairs
            .into_iter()
            .map(|(key, value)| Entry { key: key.written(), at: key.at, value: Reading::Value(value) })
            .collect()
    }

    fn pairs(&mut self, table: &dyn TableLike, around: Position, depth: usize) -> Vec<(Node, Node)> {
        let mut pairs = Vec::new();
        for (name, item) in table.iter() {
            let at = self.at(table.key(name).and_then(toml_edit::Key::span), around);
            self.count(at);
            if self.too_large.is_some() {
                break;
            }
            pairs.push((Node::text(at, name), self.item(item, at, depth)));
        }
        pairs
    }

    fn item(&mut self, item: &Item, around: Position, depth: usize) -> Node {
        let at = self.at(item.span(), around);
        self.count(at);
        if depth >= DEPTH_MAX
            && !item.as_value().is_some_and(|value| !value.is_array() && !value.is_inline_table())
        {
            self.refuse(at, format!("nesting deeper than {DEPTH_MAX}"));
            return Node { at, value: Value::Null };
        }
        let value = match item {
            Item::None => Value::Null,
            Item::Value(value) => self.value(value, at, depth),
            Item::Table(table) => Value::Map(self.pairs(table, at, depth + 1)),
            Item::ArrayOfTables(tables) => Value::List(
                tables
                    .iter()
                    .map(|table| {
                        let at = self.at(table.span(), at);
                        self.count(at);
                        Node { at, value: Value::Map(self.pairs(table, at, depth + 2)) }
                    })
                    .collect(),
            ),
        };
        Node { at, value }
    }

    fn value(&mut self, value: &Toml, at: Position, depth: usize) -> Value {
        match value {
            Toml::String(text) => Node::text(at, text.value().as_str()).value,
            Toml::Integer(number) => Value::Number(Number {
                written: number.value().to_string(),
                json: Some((*number.value()).into()),
            }),
            Toml::Float(number) => Value::Number(Number {
                written: number.value().to_string(),
                json: serde_json::Number::from_f64(*number.value()),
            }),
            Toml::Boolean(value) => Value::Bool(*value.value()),
            Toml::Datetime(time) => {
                Value::Text(node::Text { text: time.value().to_string(), cut_by_comment: false })
            }
            Toml::Array(items) => Value::List(
                items
                    .iter()
                    .map(|value| {
                        let at = self.at(value.span(), at);
                        self.nested(value, at, depth + 1)
                    })
                    .collect(),
            ),
            Toml::InlineTable(table) => Value::Map(self.pairs(table, at, depth + 1)),
        }
    }

    fn nested(&mut self, value: &Toml, at: Position, depth: usize) -> Node {
        self.count(at);
        if depth >= DEPTH_MAX && (value.is_array() || value.is_inline_table()) {
            self.refuse(at, format!("nesting deeper than {DEPTH_MAX}"));
        }
        if self.too_large.is_some() {
            return Node { at, value: Value::Null };
        }
        let value = self.value(value, at, depth);
        Node { at, value }
    }

    fn count(&mut self, at: Position) {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            self.refuse(at, format!("more than {NODES_MAX} values"));
        }
    }

    fn refuse(&mut self, at: Position, limit: String) {
        self.too_large.get_or_insert((at, limit));
    }

    /// Where `span` begins; implicit tables have none and stand where what is around them stands.
    fn at(&self, span: Option<Range<usize>>, around: Position) -> Position {
        span.map_or(around, |span| self.places.position(span.start))
    }
}

/// Offsets → lines and columns.
struct Places<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Places<'a> {
    fn new(text: &'a str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(offset, _)| offset + 1);
        Self { text, starts: std::iter::once(0).chain(ends).collect() }
    }

    fn position(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count());
        Position::new(line, column + 1)
    }
}
