//! Flow collections: where their elements, keys and values begin.

use super::{Open, Owner, Refusal, Scanner, is_lone_star};
use crate::definition::{key::Meaning, line};

/// What the next character of a flow may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// The beginning of an element, or of a key.
    Element,
    /// The beginning of the value behind a key.
    Value,
    /// Anything behind a plain beginning.
    Rest,
    /// A separator: a quoted scalar or a collection has just ended.
    Separator,
}

/// What one reading of a flow found.
struct Reading {
    /// Behind the last bracket, where it is closed.
    end: Option<usize>,
    literal: Vec<usize>,
    refused: Option<usize>,
}

impl Scanner<'_> {
    /// Goes to the end of the flow collection that begins at `at`.
    pub(super) fn read_flow(&mut self, at: usize, owner: Owner) -> Result<(), Refusal> {
        let first = self.line - 1;
        let first_end = self.lines[first].end;
        let mut reading = read(self.block, at, first_end);
        let mut limit = self.lines.len();
        if reading.end.is_none() {
            limit = self.limit(owner);
            let end = self.lines.get(limit).map_or(self.block.len(), |line| line.start);
            self.spend(end - first_end, at)?;
            let whole = read(self.block, at, end);
            if whole.end.is_some() || limit == self.lines.len() {
                reading = whole;
            }
        }
        if let Some(refused) = reading.refused {
            return Err(Refusal::Unsupported(refused));
        }
        self.marks.literal.append(&mut reading.literal);
        match reading.end {
            Some(end) => {
                let last = self.line_of(end);
                self.close(end, last, owner);
            }
            None if limit < self.lines.len() => {
                self.spend(self.block.len() - first_end, at)?;
                let swallowed_to = read(self.block, at, self.block.len()).end;
                // Keys of a schema may look like ours; those that restrict are worth the refusal.
                self.note_swallowed(at, limit..self.lines.len(), swallowed_to, Meaning::concerns_restriction);
            }
            None => {
                self.line = self.lines.len();
                self.open = Open::Nothing;
            }
        }
        Ok(())
    }
}

/// Reads the flow that begins at `start`, at most to `limit`.
fn read(block: &str, start: usize, limit: usize) -> Reading {
    let bytes = &block.as_bytes()[..limit];
    let mut reading = Reading { end: None, literal: Vec::new(), refused: None };
    let mut brackets: Vec<u8> = Vec::new();
    let mut expect = Expect::Element;
    let mut key_star = false;
    let mut at = start;
    while at < limit && reading.refused.is_none() {
        let fresh = matches!(expect, Expect::Element | Expect::Value);
        match bytes[at] {
            b' ' | b'\t' | b'\n' => {}
            b'#' if at == 0 || bytes[at - 1].is_ascii_whitespace() => {
                at += bytes[at..].iter().take_while(|byte| **byte != b'\n').count();
                continue;
            }
            open @ (b'[' | b'{') => {
                brackets.push(open);
                expect = Expect::Element;
            }
            b']' | b'}' => {
                brackets.pop();
                expect = Expect::Separator;
                if brackets.is_empty() {
                    reading.end = Some(at + 1);
                    break;
                }
            }
            b',' => expect = Expect::Element,
            b'?' if fresh && bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace) => {}
            b':' if expect == Expect::Separator || ends_key(bytes, at) => {
                if key_star {
                    reading.refused = reading.literal.pop();
                }
                expect = Expect::Value;
            }
            b'"' | b'\'' if fresh => {
                let Some(length) = line::closing_quote(&block[at..limit]) else { break };
                at += length;
                expect = Expect::Separator;
            }
            b'*' if fresh && is_lone_star(&block[at + 1..]) && !is_map_key(&brackets, expect) => {
                reading.literal.push(at);
                key_star = expect == Expect::Element;
                expect = Expect::Rest;
                at += 1;
                continue;
            }
            b'*' | b'&' | b'!' if fresh => reading.refused = Some(at),
            b'<' if fresh && is_merge_key(&bytes[at..]) => reading.refused = Some(at),
            _ if fresh => expect = Expect::Rest,
            _ => {}
        }
        if !bytes[at].is_ascii_whitespace() {
            key_star = false;
        }
        at += 1;
    }
    reading
}

/// True where a colon at `at` stands behind a key.
fn ends_key(bytes: &[u8], at: usize) -> bool {
    bytes
        .get(at + 1)
        .is_none_or(|byte| byte.is_ascii_whitespace() || matches!(byte, b',' | b'[' | b']' | b'{' | b'}'))
}

fn is_map_key(brackets: &[u8], expect: Expect) -> bool {
    brackets.last() == Some(&b'{') && expect == Expect::Element
}

fn is_merge_key(rest: &[u8]) -> bool {
    let Some(behind) = rest.strip_prefix(b"<<") else {
        return false;
    };
    behind.trim_ascii_start().first() == Some(&b':')
}
