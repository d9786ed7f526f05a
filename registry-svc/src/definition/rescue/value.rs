//! The value of one rescued key: what stands on its line and on the lines below.

use super::{LineKind, Position, Reading, Rescue, Rescued, Section};
use crate::definition::{
    key::{Field, Meaning},
    line,
    node::{Node, Text, Value},
    yaml::{self, Fault, Fragment},
};

/// Collections around a value: the front matter's own mapping.
const DEPTH: usize = 1;

/// What a tab counts as in the indentation of a nested block.
const TAB: &str = "  ";

impl<'a> Rescue<'a> {
    /// The value of a section. What is YAML in it is taken by `rescued`.
    pub(super) fn value(&self, section: &Section<'a>, rescued: &mut Rescued) -> Result<Reading, Fault> {
        let restricts = matches!(section.meaning, Meaning::Field(field) if field.restricts());
        let stray = section.below.clone().find(|index| self.is_stray(section, *index));
        if let (true, Some(stray)) = (restricts, stray) {
            return Ok(Reading::Unreadable(self.position(stray, self.lines[stray].start)));
        }
        let value = self.first_line(section);
        if line::is_block_header(value) {
            return Ok(Reading::Value(self.block_scalar(section)));
        }
        if value.is_empty() {
            return self.below_a_bare_key(section, restricts, stray.is_some(), rescued);
        }
        if section.meaning.is_text_field() {
            return Ok(Reading::Value(self.text_value(section, value)));
        }
        if restricts {
            return self.restriction(section, value, rescued);
        }
        let joined = self.join(value, section);
        if joined == value
            && let Some(node) = self.on_one_line(section, rescued)?
        {
            return Ok(Reading::Value(node));
        }
        Ok(Reading::Value(Node::text(section.value_at, joined)))
    }

    /// A line at column 0 that is neither a key nor an item of a list below its key.
    fn is_stray(&self, section: &Section<'a>, index: usize) -> bool {
        match self.kind(index) {
            LineKind::Other => true,
            LineKind::Item => !self.first_line(section).is_empty(),
            LineKind::Nothing | LineKind::Indented => false,
        }
    }

    /// The text behind the key; empty where only a comment stands, but in a text, which may begin with `#`.
    fn first_line(&self, section: &Section<'a>) -> &'a str {
        let value = self.text(&section.value).trim();
        let is_prose = section.meaning.is_text_field() && section.meaning != Meaning::Field(Field::Name);
        if value.starts_with('#') && !is_prose { "" } else { value }
    }

    /// A value of a text field: unquoted where it is a whole quoted scalar, otherwise as it stands.
    fn text_value(&self, section: &Section<'a>, value: &str) -> Node {
        let mut cut_by_comment = false;
        let mut first = value;
        if let Some(quoted) = whole_quoted(value) {
            first = quoted;
        } else if section.meaning == Meaning::Field(Field::Name)
            && let Some(comment) = value.find(" #").or_else(|| value.find("\t#"))
        {
            first = value[..comment].trim_end();
            cut_by_comment = true;
        }
        let joined = self.join(first, section);
        let text = unquote(&joined).unwrap_or(joined);
        Node { at: section.value_at, value: Value::Text(Text { text, cut_by_comment }) }
    }

    /// A value of a restricting field that stands on the key's line: nothing of it may be guessed.
    fn restriction(
        &self,
        section: &Section<'a>,
        value: &str,
        rescued: &mut Rescued,
    ) -> Result<Reading, Fault> {
        let is_enclosed = value.starts_with(['[', '{', '"', '\'']);
        let lines = self.content_below(section);
        let Some(first) = lines.first() else {
            return Ok(match self.on_one_line(section, rescued)? {
                Some(node) => Reading::Value(node),
                None if is_enclosed => Reading::Unreadable(section.value_at),
                None => Reading::Value(Node::text(section.value_at, value)),
            });
        };
        let unreadable = Reading::Unreadable(self.position(*first, self.lines[*first].start));
        let looks_nested = lines.iter().any(|index| {
            let text = self.text(&self.lines[*index]).trim();
            line::entry(text).is_some() || line::key(text).is_some()
        });
        if is_enclosed || looks_nested {
            return Ok(if is_enclosed && self.on_one_line(section, rescued)?.is_none() {
                Reading::Unreadable(section.value_at)
            } else {
                unreadable
            });
        }
        Ok(Reading::Value(Node::text(section.value_at, self.join(without_comment(value), section))))
    }

    /// The key's line as YAML: a quoted or plain scalar, or a flow collection, that ends with the line.
    fn on_one_line(&self, section: &Section<'a>, rescued: &mut Rescued) -> Result<Option<Node>, Fault> {
        let fragment = Fragment {
            text: self.block.masked[section.value.clone()].trim_end(),
            masked: self.block.stars,
            offset: section.value.start,
            at: section.value_at,
            depth: DEPTH,
        };
        let begins_flow = fragment.text.starts_with(['[', '{']);
        rescued.take(&fragment, |root| root.is_scalar() || begins_flow)
    }

    /// What stands below a key without a value.
    fn below_a_bare_key(
        &self,
        section: &Section<'a>,
        restricts: bool,
        has_stray: bool,
        rescued: &mut Rescued,
    ) -> Result<Reading, Fault> {
        let lines = self.content_below(section);
        let Some(first) = lines.first() else {
            return Ok(Reading::Value(Node { at: section.at, value: Value::Null }));
        };
        let at = self.position(*first, self.lines[*first].start);
        let is_text_field = section.meaning.is_text_field();
        if !has_stray {
            let wanted = |root: &Node| !is_text_field || matches!(root.value, Value::Text(_));
            if let Some(node) = self.nested(section, wanted, rescued)? {
                return Ok(Reading::Value(node));
            }
            if !is_text_field && let Some(items) = self.items(&lines, restricts) {
                return Ok(match items {
                    Ok(items) => Reading::Value(Node { at, value: Value::List(items) }),
                    Err(at) => Reading::Unreadable(at),
                });
            }
        }
        if restricts {
            return Ok(Reading::Unreadable(at));
        }
        let joined = self.join("", section);
        let text = if is_text_field { unquote(&joined).unwrap_or(joined) } else { joined };
        Ok(Reading::Value(Node::text(at, text)))
    }

    /// The lines below as one nested YAML block, where that is valid.
    fn nested(
        &self,
        section: &Section<'a>,
        wanted: impl Fn(&Node) -> bool,
        rescued: &mut Rescued,
    ) -> Result<Option<Node>, Fault> {
        let mut text = String::new();
        let mut masked = Vec::new();
        for range in &self.lines[section.below.clone()] {
            let line = &self.block.masked[range.clone()];
            let indentation = line::blanks(line);
            text.push_str(&line[..indentation].replace('\t', TAB));
            // Only what stands behind the indentation can be masked.
            let moved = text.len();
            let content = range.start + indentation;
            let first = self.block.stars.partition_point(|(offset, _)| *offset < content);
            let here = self.block.stars[first..].iter().take_while(|(offset, _)| *offset < range.end);
            masked.extend(here.map(|(offset, character)| (offset - content + moved, *character)));
            text.push_str(&line[indentation..]);
            text.push('\n');
        }
        let at = Position::new(self.block.line as usize + section.below.start, 1);
        rescued.take(&Fragment { text: &text, masked: &masked, offset: 0, at, depth: DEPTH }, wanted)
    }

    /// The items where every line is `- item`. In a restricting field an item must be whole; else its place is returned.
    fn items(&self, lines: &[usize], restricts: bool) -> Option<Result<Vec<Node>, Position>> {
        let mut items = Vec::new();
        for index in lines {
            let range = &self.lines[*index];
            let text = self.text(range);
            let indentation = line::blanks(text);
            let content = indentation + line::entry(&text[indentation..])?;
            let item = text[content..].trim_end();
            let at = self.position(*index, range.start + content);
            let unquoted = unquote(item);
            if restricts && unquoted.is_none() && item.starts_with(['[', '{', '"', '\'']) {
                return Some(Err(at));
            }
            items.push(Node::text(at, unquoted.unwrap_or_else(|| item.to_owned())));
        }
        Some(Ok(items))
    }

    /// The lines below as a block scalar, and text that follows at column 0 joined to it.
    fn block_scalar(&self, section: &Section<'a>) -> Node {
        let end =
            section.below.clone().find(|index| self.is_stray(section, *index)).unwrap_or(section.below.end);
        let header = self.first_line(section);
        let content: Vec<&str> = (section.below.start..end)
            .map(|index| {
                let text = self.text(&self.lines[index]);
                // A comment at column 0 stands outside the scalar.
                if text.starts_with('#') { "" } else { text }
            })
            .collect();
        let mut text = block_text(header, &content);
        for index in end..section.below.end {
            if self.kind(index) != LineKind::Nothing {
                text.truncate(text.trim_end().len());
                text.push(' ');
                text.push_str(self.text(&self.lines[index]).trim());
            }
        }
        Node::text(section.value_at, text)
    }

    /// Indices of the lines below that are neither blank nor a comment.
    fn content_below(&self, section: &Section<'a>) -> Vec<usize> {
        section.below.clone().filter(|index| self.kind(*index) != LineKind::Nothing).collect()
    }

    /// `first` and the lines below, joined by one blank.
    fn join(&self, first: &str, section: &Section<'a>) -> String {
        let mut joined = first.to_owned();
        for index in self.content_below(section) {
            if !joined.is_empty() {
                joined.push(' ');
            }
            joined.push_str(self.text(&self.lines[index]).trim());
        }
        joined
    }
}

/// The text of a block scalar as YAML reads it, or by the smallest indentation where YAML does not.
fn block_text(header: &str, lines: &[&str]) -> String {
    let source = format!("k: {header}\n{}\n", lines.join("\n"));
    let fragment = Fragment { text: &source, masked: &[], offset: 0, at: Position::START, depth: 0 };
    if let Ok(tree) = yaml::parse(&fragment)
        && let Some(Node { value: Value::Map(pairs), .. }) = tree.root
        && let [(_, Node { value: Value::Text(text), .. })] = pairs.as_slice()
    {
        return text.text.clone();
    }
    let lines: Vec<String> = lines
        .iter()
        .map(|line| {
            let indentation = line::blanks(line);
            line[..indentation].replace('\t', TAB) + line[indentation..].trim_end()
        })
        .collect();
    let content = lines.iter().filter(|line| !line.trim().is_empty());
    let smallest = content.map(|line| line::blanks(line)).min().unwrap_or(0);
    let stripped = lines.iter().map(|line| line.get(smallest..).unwrap_or(""));
    let separator = if header.starts_with('>') { " " } else { "\n" };
    let mut text = stripped.collect::<Vec<_>>().join(separator).trim().to_owned();
    text.push('\n');
    text
}

/// The quoted scalar that `text` is, without the comment behind it.
fn whole_quoted(text: &str) -> Option<&str> {
    if !text.starts_with(['"', '\'']) {
        return None;
    }
    let end = line::closing_quote(text)? + 1;
    let rest = &text[end..];
    (rest.is_empty() || line::is_comment(rest)).then(|| &text[..end])
}

/// The text inside the quoted scalar that `text` is.
fn unquote(text: &str) -> Option<String> {
    let quoted = whole_quoted(text)?;
    let fragment = Fragment { text: quoted, masked: &[], offset: 0, at: Position::START, depth: DEPTH };
    match yaml::parse(&fragment).ok()?.root?.value {
        Value::Text(text) => Some(text.text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => None,
    }
}

/// A plain value without the comment behind it.
fn without_comment(value: &str) -> &str {
    let comment = value.find(" #").or_else(|| value.find("\t#"));
    comment.map_or(value, |at| value[..at].trim_end())
}
