//! Refuses anchors, aliases, tags and merge keys before anything is expanded, by reading where values begin.
//!
//! A pass of its own, so that the answer does not depend on a YAML library. It also finds the characters that are text
//! although YAML would read them as indicators.

mod flow;

use std::ops::Range;

use super::{key::Meaning, line};

/// Bytes that may be read again behind quotes and flows that are not closed where they should be: sixteen times the
/// largest front matter. A block that needs more is made to cost time.
const LOOKAHEAD_MAX: usize = 1 << 20;

/// What the pass found in a block that it accepts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// Offsets of `*`, `&` and `!` that are text, in order.
    pub(super) literal: Vec<usize>,
    /// The first of them that YAML would have refused: the value of a text field.
    pub(super) first_repaired: Option<usize>,
    /// The first quote or flow that would swallow a key.
    pub(super) swallows_key: Option<usize>,
}

/// Why a block is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// An anchor, alias, tag or merge key at this offset.
    Unsupported(usize),
    /// Reading it would cost too much; the offset says from where on.
    TooCostly(usize),
}

/// Reads a block whose lines end with LF.
pub(super) fn scan(block: &str) -> Result<Marks, Refusal> {
    let mut scanner = Scanner::new(block);
    while scanner.line < scanner.lines.len() {
        scanner.read_line()?;
    }
    Ok(scanner.marks)
}

/// What a value belongs to.
#[derive(Clone, Copy, Debug)]
struct Owner {
    /// Column of the key or dash. Lines further in continue its value.
    column: usize,
    /// A text field at the top level.
    is_text_field: bool,
}

/// What the line above leaves open.
#[derive(Clone, Copy, Debug)]
enum Open {
    Nothing,
    /// A key or dash whose value may begin on a line below.
    Value(Owner),
    /// A plain scalar that may go on.
    Plain(Owner),
}

struct Scanner<'a> {
    block: &'a str,
    lines: Vec<Range<usize>>,
    /// Index of the line to be read.
    line: usize,
    open: Open,
    /// Column of the top-level keys: that of the first key.
    top: Option<usize>,
    marks: Marks,
    lookahead: usize,
}

impl<'a> Scanner<'a> {
    fn new(block: &'a str) -> Self {
        Self {
            block,
            lines: line::ranges(block),
            line: 0,
            open: Open::Nothing,
            top: None,
            marks: Marks::default(),
            lookahead: 0,
        }
    }

    /// Reads the line at hand and what its value takes with it.
    fn read_line(&mut self) -> Result<(), Refusal> {
        let range = self.lines[self.line].clone();
        let column = line::blanks(&self.block[range.clone()]);
        let content = &self.block[range.start + column..range.end];
        if content.is_empty() || content.starts_with('#') {
            self.line += 1;
            return Ok(());
        }
        let owner = match self.open {
            Open::Plain(owner) if column > owner.column => {
                self.line += 1;
                return Ok(());
            }
            Open::Value(owner) if column > owner.column => Some(owner),
            Open::Nothing | Open::Plain(_) | Open::Value(_) => None,
        };
        self.read_entry(range, column, owner)
    }

    /// Reads dashes, then a key, then the value.
    fn read_entry(
        &mut self,
        range: Range<usize>,
        column: usize,
        owner: Option<Owner>,
    ) -> Result<(), Refusal> {
        let mut at = range.start + column;
        let mut owner = owner.unwrap_or(Owner { column, is_text_field: false });
        let mut nested = false;
        loop {
            let rest = &self.block[at..range.end];
            let is_explicit_key = line::indicator(rest, b'?').is_some();
            let content = line::entry(rest)
                .or_else(|| line::indicator(rest, b'?'))
                .or_else(|| line::indicator(rest, b':'));
            let Some(content) = content else { break };
            owner = Owner { column: at - range.start, is_text_field: false };
            nested = true;
            at += content;
            if is_explicit_key && self.block[at..range.end].starts_with(['*', '&', '!']) {
                return Err(Refusal::Unsupported(at));
            }
        }

        let rest = &self.block[at..range.end];
        if let Some(key) = line::key(rest) {
            if !key.quoted && (key.text.starts_with(['*', '&', '!']) || key.text == "<<") {
                return Err(Refusal::Unsupported(at));
            }
            let column = at - range.start;
            let is_top = !nested && column <= *self.top.get_or_insert(column);
            owner = Owner { column, is_text_field: is_top && Meaning::of(key.text).is_text_field() };
            at += key.value;
        } else if self.top.is_none() && !nested {
            self.top = Some(0);
        }
        self.read_value(at, range, owner)
    }

    /// Reads the value that begins at `at`, to its end.
    fn read_value(&mut self, at: usize, line: Range<usize>, owner: Owner) -> Result<(), Refusal> {
        let value = &self.block[at..line.end];
        self.line += 1;
        self.open = Open::Plain(owner);
        match value.as_bytes().first() {
            None | Some(b'#') => self.open = Open::Value(owner),
            Some(b'|' | b'>') if line::is_block_header(value) => self.skip_block_scalar(owner),
            Some(b'"' | b'\'') => self.read_quoted(at, owner)?,
            Some(b'[' | b'{') => self.read_flow(at, owner)?,
            Some(b'*') if is_lone_star(&value[1..]) => self.marks.literal.push(at),
            Some(b'*' | b'&' | b'!') if owner.is_text_field => {
                self.marks.literal.push(at);
                self.marks.first_repaired.get_or_insert(at);
            }
            Some(b'*' | b'&' | b'!') => return Err(Refusal::Unsupported(at)),
            Some(_) => {}
        }
        Ok(())
    }

    fn skip_block_scalar(&mut self, owner: Owner) {
        while let Some(range) = self.lines.get(self.line) {
            let text = &self.block[range.clone()];
            let column = line::blanks(text);
            if column < text.len() && column <= owner.column {
                break;
            }
            self.line += 1;
        }
        self.open = Open::Nothing;
    }

    /// Goes to the end of the quoted scalar that begins at `at`.
    fn read_quoted(&mut self, at: usize, owner: Owner) -> Result<(), Refusal> {
        let first = self.line - 1;
        let first_end = self.lines[first].end;
        if let Some(length) = line::closing_quote(&self.block[at..first_end]) {
            self.close(at + length + 1, first, owner);
            return Ok(());
        }
        let limit = self.limit(owner);
        let end = self.lines.get(limit).map_or(self.block.len(), |line| line.start);
        self.spend(end - first_end, at)?;
        match line::closing_quote(&self.block[at..end]) {
            Some(length) => {
                let close = at + length + 1;
                let last = self.line_of(close);
                self.close(close, last, owner);
            }
            None if limit < self.lines.len() => {
                self.spend(self.block.len() - end, at)?;
                let swallowed_to = line::closing_quote(&self.block[at..]).map(|length| at + length);
                self.note_swallowed(at, limit..self.lines.len(), swallowed_to, |meaning| {
                    meaning != Meaning::Unknown
                });
            }
            // Nothing behind it can begin a value: all of it is text inside the quotes.
            None => self.line = self.lines.len(),
        }
        Ok(())
    }

    /// Index of the first line below that would be a key at or left of `owner`; the number of lines if there is none.
    fn limit(&self, owner: Owner) -> usize {
        let below = &self.lines[self.line..];
        let limit = below.iter().position(|line| {
            let text = &self.block[line.clone()];
            let column = line::blanks(text);
            column <= owner.column && line::key(&text[column..]).is_some_and(|key| !key.quoted)
        });
        self.line + limit.unwrap_or(below.len())
    }

    /// Notes a quote or flow at `at` that ends at its first line, where a YAML library would read on to `end` and
    /// swallow a key for which `counts` holds.
    fn note_swallowed(
        &mut self,
        at: usize,
        lines: Range<usize>,
        end: Option<usize>,
        counts: impl Fn(Meaning) -> bool,
    ) {
        // What is never closed is a fault in any library.
        let Some(end) = end else { return };
        let swallows = self.lines[lines].iter().take_while(|line| line.start < end).any(|line| {
            let text = &self.block[line.clone()];
            line::key(text).is_some_and(|key| !key.quoted && counts(Meaning::of(key.text)))
        });
        if swallows {
            self.marks.swallows_key.get_or_insert(at);
        }
    }

    /// Goes on behind a quoted scalar or flow that ends at `end`, on the line of index `last`.
    fn close(&mut self, end: usize, last: usize, owner: Owner) {
        let rest = &self.block[end..self.lines[last].end];
        let is_clean = rest.trim().is_empty() || line::is_comment(rest);
        self.open = if is_clean { Open::Nothing } else { Open::Plain(owner) };
        self.line = last + 1;
    }

    /// Index of the line that holds the character before `end`.
    fn line_of(&self, end: usize) -> usize {
        self.lines.partition_point(|line| line.end < end)
    }

    fn spend(&mut self, bytes: usize, at: usize) -> Result<(), Refusal> {
        self.lookahead += bytes;
        if self.lookahead > LOOKAHEAD_MAX { Err(Refusal::TooCostly(at)) } else { Ok(()) }
    }
}

/// True where a star with `rest` behind it is text.
fn is_lone_star(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([' ', '\t', '\n', ',', ']', '}'])
}

#[cfg(test)]
mod tests;
