//! Events of the YAML library → nodes with their places. Limits and duplicate keys are ours.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput, options};

use super::{
    finding::Position,
    line,
    node::{self, Node, Text, Value},
};

/// Collections inside one another, the front matter's own mapping counted.
pub(super) const DEPTH_MAX: usize = 32;

/// Scalars and collections of one front matter, keys counted.
pub(super) const NODES_MAX: usize = 10_000;

/// A piece of YAML and where it stands in its document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment<'a> {
    /// Lines end with LF. Indicators that are text are masked by a letter.
    pub(super) text: &'a str,
    /// Offsets of masked characters with the characters, in order.
    pub(super) masked: &'a [(usize, char)],
    /// What `text` begins with, counted as `masked` is.
    pub(super) offset: usize,
    /// Where `text` begins in the document.
    pub(super) at: Position,
    /// Collections around the fragment.
    pub(super) depth: usize,
}

/// A fragment that is valid.
#[derive(Debug)]
pub(super) struct Tree {
    /// Absent when there is nothing but blanks and comments.
    pub(super) root: Option<Node>,
    /// Scalars and collections in it.
    pub(super) nodes: usize,
    /// Keys that occur twice in maps that are not the front matter itself.
    pub(super) duplicates: Vec<Duplicate>,
}

/// A key that occurs twice in one map.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Duplicate {
    pub(super) key: String,
    pub(super) first: Position,
    pub(super) second: Position,
}

/// Why a fragment cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Invalid {
        at: Position,
        reason: String,
    },
    TooLarge {
        at: Position,
        limit: String,
    },
    /// An anchor, alias, tag or merge key.
    Unsupported(Position),
}

impl Fault {
    pub(super) fn too_many_nodes(at: Position) -> Self {
        Self::TooLarge { at, limit: format!("more than {NODES_MAX} values") }
    }
}

/// Reads a fragment.
pub(super) fn parse(fragment: &Fragment<'_>) -> Result<Tree, Fault> {
    let mut builder = Builder {
        fragment,
        parser: Parser::new_from_str_with_options(fragment.text, parser_options()),
        nodes: 0,
        duplicates: Vec::new(),
    };
    let mut root = None;
    loop {
        let (event, span) = builder.next()?;
        match event {
            Event::StreamEnd => {
                return Ok(Tree { root, nodes: builder.nodes, duplicates: builder.duplicates });
            }
            Event::DocumentStart(..) if root.is_some() => {
                return Err(Fault::Invalid {
                    at: builder.position(&span),
                    reason: "a second document begins".to_owned(),
                });
            }
            event if event.is_node() => root = Some(builder.node(event, &span, fragment.depth)?),
            // Start and end of stream and document.
            _ => {}
        }
    }
}

fn parser_options() -> Options {
    let mut options = options! {
        // An alias must come as an event to be refused as one.
        emit_unresolved_aliases: true,
        block_scalar_eof_without_line_feed: false,
    };
    options.set_emit_comments(false);
    options
}

struct Builder<'a> {
    fragment: &'a Fragment<'a>,
    parser: Parser<'a, StrInput<'a>>,
    nodes: usize,
    duplicates: Vec<Duplicate>,
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Fault> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(self.fault(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// Builds the node that `event` begins, inside `depth` collections.
    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Node, Fault> {
        let at = self.position(span);
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(Fault::too_many_nodes(at));
        }
        if depth >= DEPTH_MAX && !matches!(event, Event::Scalar(..)) {
            return Err(Fault::TooLarge { at, limit: format!("nesting deeper than {DEPTH_MAX}") });
        }
        let value = match event {
            Event::Scalar(text, style, 0, None) => self.scalar(&text, style, span),
            Event::SequenceStart(_, 0, None) => Value::List(self.list(depth)?),
            Event::MappingStart(_, 0, None) => Value::Map(self.map(depth)?),
            // Aliases, and nodes with an anchor or tag. The lexical pass has refused them; this is the second lock.
            _ => return Err(Fault::Unsupported(at)),
        };
        Ok(Node { at, value })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Fault> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, &span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(Node, Node)>, Fault> {
        let mut pairs = Vec::new();
        let mut seen: HashMap<String, Position> = HashMap::new();
        loop {
            let (event, span) = match self.next()? {
                (Event::MappingEnd | Event::StreamEnd, _) => return Ok(pairs),
                next => next,
            };
            let is_merge_key = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
            let key = self.node(event, &span, depth + 1)?;
            if is_merge_key {
                return Err(Fault::Unsupported(key.at));
            }
            // The front matter's own keys are compared by meaning, elsewhere.
            if depth > 0 {
                let first = *seen.entry(key.written()).or_insert(key.at);
                if first != key.at {
                    self.duplicates.push(Duplicate { key: key.written(), first, second: key.at });
                }
            }
            let (event, span) = self.next()?;
            let value = self.node(event, &span, depth + 1)?;
            pairs.push((key, value));
        }
    }

    fn scalar(&self, text: &str, style: ScalarStyle, span: &Span) -> Value {
        if style != ScalarStyle::Plain {
            return Value::Text(Text { text: text.to_owned(), cut_by_comment: false });
        }
        let range = span.byte_range().unwrap_or_default();
        let masked = &self.fragment.masked;
        let offset = self.fragment.offset + range.start;
        let mut value = match masked.binary_search_by_key(&offset, |(offset, _)| *offset) {
            Ok(index) if !range.is_empty() => {
                let mut original = String::from(masked[index].1);
                original.extend(text.chars().skip(1));
                return self.cut(Text { text: original, cut_by_comment: false }, range.end);
            }
            Ok(_) | Err(_) => node::plain(text),
        };
        if let Value::Text(text) = value {
            value = self.cut(text, range.end);
        }
        value
    }

    /// Notes whether a comment ended the plain scalar before `end`.
    fn cut(&self, mut text: Text, end: usize) -> Value {
        let source = self.fragment.text;
        let end = source[..end.min(source.len())].trim_end().len();
        text.cut_by_comment = line::is_comment(&source[end..]);
        Value::Text(text)
    }

    fn position(&self, span: &Span) -> Position {
        self.place(span.start.line(), span.start.col())
    }

    /// `line` counts from 1, `column` from 0, both inside the fragment.
    fn place(&self, line: usize, column: usize) -> Position {
        let start = self.fragment.at;
        let before = if line <= 1 { start.column as usize } else { 1 };
        Position::new(start.line as usize + line.max(1) - 1, before + column)
    }

    fn fault(&self, error: &ScanError) -> Fault {
        let at = self.place(error.marker().line(), error.marker().col());
        match error.kind() {
            ErrorKind::RecursionLimitExceeded => {
                Fault::TooLarge { at, limit: format!("nesting deeper than {DEPTH_MAX}") }
            }
            _ => Fault::Invalid { at, reason: error.info() },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn fragment(text: &str) -> Fragment<'_> {
        Fragment { text, masked: &[], offset: 0, at: Position::new(2, 1), depth: 0 }
    }

    #[track_caller]
    fn check(text: &str, expected: &Json) {
        let tree = parse(&fragment(text)).unwrap();
        assert_eq!(&tree.root.map_or(Json::Null, |root| root.to_json()), expected, "{text:?}");
    }

    #[test]
    fn quoted_scalars_are_text_and_plain_ones_follow_the_core_schema() {
        check("a: 1\nb: '1'\nc: yes\nd: true\n", &json!({"a": 1, "b": "1", "c": "yes", "d": true}));
        check("a: |\n  true\n", &json!({"a": "true\n"}));
        check("[1_000, 017, ~, no]\n", &json!(["1_000", 17, null, "no"]));
    }

    #[test]
    fn collections_may_continue_at_column_0_and_tabs_may_separate() {
        check("a: [b,\nc]\nd: {\n\"e\": f\n}\n", &json!({"a": ["b", "c"], "d": {"e": "f"}}));
        check("a: \"b\nc\"\n", &json!({"a": "b c"}));
        check("a:\tb\n-\tc\n".split_at(5).0, &json!({"a": "b"}));
    }

    #[test]
    fn nothing_but_comments_has_no_root() {
        for text in ["", "\n\n", "# comment\n"] {
            assert_eq!(parse(&fragment(text)).unwrap().root, None, "{text:?}");
        }
    }

    #[test]
    fn a_masked_character_comes_back() {
        let masked = [(3, '*')];
        let fragment = Fragment { masked: &masked, ..fragment("a: x*b* c # d\ne: f\n") };

        let root = parse(&fragment).unwrap().root.unwrap();

        let Value::Map(pairs) = root.value else { panic!("no map") };
        assert_eq!(pairs[0].1.value, Value::Text(Text { text: "**b* c".to_owned(), cut_by_comment: true }));
    }

    #[test]
    fn places_are_counted_from_the_fragments_beginning() {
        let fragment = Fragment { at: Position::new(7, 5), ..fragment("é: b\nc:\n  - d\n") };

        let root = parse(&fragment).unwrap().root.unwrap();

        let Value::Map(pairs) = root.value else { panic!("no map") };
        let Value::List(items) = &pairs[1].1.value else { panic!("no list") };
        assert_eq!((pairs[0].0.at, pairs[0].1.at), (Position::new(7, 5), Position::new(7, 8)));
        assert_eq!(items[0].at, Position::new(9, 5));
    }

    #[test]
    fn duplicates_are_found_below_the_top() {
        let tree = parse(&fragment("a:\n  b: 1\n  b: 2\na: 3\n")).unwrap();

        let expected =
            Duplicate { key: "b".to_owned(), first: Position::new(3, 3), second: Position::new(4, 3) };
        assert_eq!(tree.duplicates, [expected]);
    }

    #[test]
    fn nesting_and_size_are_limited() {
        let nested = |depth: usize| format!("a: {}{}\n", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&fragment(&nested(DEPTH_MAX - 1))).is_ok());
        for depth in [DEPTH_MAX, 200, 1_000, 10_000] {
            let fault = parse(&fragment(&nested(depth))).unwrap_err();
            assert!(matches!(fault, Fault::TooLarge { .. }), "{depth}: {fault:?}");
        }
        let wide = |nodes: usize| format!("a: [{}]\n", "b,".repeat(nodes - 3));
        assert!(parse(&fragment(&wide(NODES_MAX))).is_ok());
        assert!(matches!(parse(&fragment(&wide(NODES_MAX + 1))), Err(Fault::TooLarge { .. })));
    }

    #[test]
    fn what_the_lexical_pass_refuses_is_refused_here_too() {
        for text in ["a: &b c\n", "a: *b\n", "a: !b c\n", "<<: {a: b}\n", "a: {<<: b}\n", "a: !!str b\n"] {
            assert!(matches!(parse(&fragment(text)), Err(Fault::Unsupported(_))), "{text:?}");
        }
    }

    #[test]
    fn a_fault_has_its_place_and_reason() {
        let Err(Fault::Invalid { at, reason }) = parse(&fragment("a: b\nc: d: e\n")) else {
            panic!("accepted");
        };
        assert_eq!(at.line, 3);
        assert!(!reason.is_empty());
    }
}
