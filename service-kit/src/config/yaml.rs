//! YAML 1.2 core schema → JSON values, with the place of every key. Anchors, aliases and tags are refused.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};

use super::tree::join;

/// Configuration is written by hand; deeper nesting is a mistake.
const DEPTH_MAX: usize = 32;

/// A line and a column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// A document and where its keys stand, by JSON pointer.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub value: Value,
    pub places: BTreeMap<String, Place>,
}

/// What is wrong with a document, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{}: {message}", place.line, place.column)]
pub struct Broken {
    pub place: Place,
    pub message: String,
}

/// Reads one document; empty text is an empty mapping.
///
/// # Errors
///
/// The first fault: a syntax error, a key found twice, an anchor, alias or tag, a second document, too deep a nesting.
pub fn parse(text: &str) -> Result<Document, Broken> {
    let mut reader = Reader { events: Parser::new_from_str(text), places: BTreeMap::new() };
    let mut value = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            Event::StreamEnd => break,
            _ if value.is_some() => return Err(broken(span, "only one document is allowed")),
            event => value = Some(reader.node(event, span, "", 0)?),
        }
    }
    let value = match value {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(value) => value,
    };
    Ok(Document { value, places: reader.places })
}

/// The value of a plain scalar in the core schema: `yes`, `no`, `on`, `off` and `1_000` are text.
pub fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        if let Ok(number) = unsigned.parse::<i64>() {
            return Value::from(number);
        }
        if let Ok(number) = unsigned.parse::<u64>() {
            return Value::from(number);
        }
    }
    let is_decimal = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(number) if is_decimal => Number::from_f64(number).map_or_else(|| Value::from(text), Value::Number),
        Ok(_) | Err(_) => Value::from(text),
    }
}

struct Reader<'input> {
    events: Parser<'input, granit_parser::StrInput<'input>>,
    places: BTreeMap<String, Place>,
}

impl<'input> Reader<'input> {
    fn next(&mut self) -> Result<(Event<'input>, Span), Broken> {
        loop {
            match self.events.next() {
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(item)) => return Ok(item),
                Some(Err(error)) => {
                    let place = Place { line: error.marker().line(), column: error.marker().col() + 1 };
                    return Err(Broken { place, message: error.info() });
                }
                None => {
                    let place = Place { line: 1, column: 1 };
                    return Err(Broken { place, message: "the document ends early".to_owned() });
                }
            }
        }
    }

    fn node(
        &mut self,
        event: Event<'input>,
        span: Span,
        pointer: &str,
        depth: usize,
    ) -> Result<Value, Broken> {
        if depth > DEPTH_MAX {
            return Err(broken(span, "nested too deeply"));
        }
        match event {
            Event::Scalar(text, style, 0, None) => Ok(match style {
                ScalarStyle::Plain => scalar(&text),
                _ => Value::from(text.into_owned()),
            }),
            Event::SequenceStart(_, 0, None) => self.sequence(pointer, depth),
            Event::MappingStart(_, 0, None) => self.mapping(pointer, depth),
            Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::MappingStart(..)
            | Event::Alias(_)
            | Event::Anchor(..)
            | Event::UnresolvedAlias(_) => Err(broken(span, "anchors, aliases and tags are not allowed")),
            _ => Err(broken(span, "a value is missing")),
        }
    }

    fn sequence(&mut self, pointer: &str, depth: usize) -> Result<Value, Broken> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(Value::Array(items));
            }
            let child = join(pointer, &items.len().to_string());
            self.places.insert(child.clone(), place(span));
            items.push(self.node(event, span, &child, depth + 1)?);
        }
    }

    fn mapping(&mut self, pointer: &str, depth: usize) -> Result<Value, Broken> {
        let mut map = Map::new();
        loop {
            let (event, span) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(Value::Object(map)),
                Event::Scalar(key, _, 0, None) => key.into_owned(),
                _ => return Err(broken(span, "a key must be plain text")),
            };
            let child = join(pointer, &key);
            if let Some(earlier) = self.places.get(&child).filter(|_| map.contains_key(&key)) {
                let message = format!("`{key}` is given twice, first on line {}", earlier.line);
                return Err(broken(span, &message));
            }
            self.places.insert(child.clone(), place(span));
            let (event, value_span) = self.next()?;
            let value = self.node(event, value_span, &child, depth + 1)?;
            map.insert(key, value);
        }
    }
}

fn place(span: Span) -> Place {
    Place { line: span.start.line(), column: span.start.col() + 1 }
}

fn broken(span: Span, message: &str) -> Broken {
    Broken { place: place(span), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_keeps_the_place_of_every_key() {
        let document = parse("# note\nlisten: 127.0.0.1:1\nlist:\n  - a\n  - {b: 2}\n").unwrap();

        assert_eq!(document.value, json!({"listen": "127.0.0.1:1", "list": ["a", {"b": 2}]}));
        assert_eq!(document.places["/listen"], Place { line: 2, column: 1 });
        assert_eq!(document.places["/list/1/b"], Place { line: 5, column: 6 });
    }

    #[test]
    fn scalars_follow_the_core_schema() {
        for (text, value) in [
            ("yes", json!("yes")),
            ("off", json!("off")),
            ("1_000", json!("1_000")),
            ("017", json!(17)),
            ("-3", json!(-3)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            (".5", json!(0.5)),
            ("true", json!(true)),
            ("~", Value::Null),
            ("nan", json!("nan")),
            ("127.0.0.1", json!("127.0.0.1")),
            ("15s", json!("15s")),
        ] {
            assert_eq!(scalar(text), value, "{text}");
        }
    }

    #[test]
    fn empty_text_and_json_are_documents() {
        assert_eq!(parse("").unwrap().value, json!({}));
        assert_eq!(parse("# nothing\n").unwrap().value, json!({}));
        assert_eq!(parse("{\"a\": [1, null]}").unwrap().value, json!({"a": [1, null]}));
    }

    #[test]
    fn faults_have_a_place() {
        for (text, line, word) in [
            ("a: 1\nb: [1, 2", 2, ""),
            ("a: 1\na: 2", 2, "twice"),
            ("a: &x 1\nb: *x", 1, "anchors"),
            ("a: !t 1", 1, "tags"),
            ("a: 1\n---\nb: 2", 3, "one document"),
            ("a: 1\n- b", 2, ""),
        ] {
            let fault = parse(text).unwrap_err();
            assert_eq!(fault.place.line, line, "{text}: {fault}");
            assert!(fault.message.contains(word), "{text}: {fault}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        assert!(parse(&"[".repeat(10_000)).is_err());
        assert!(parse(&format!("{}{}", "[".repeat(40), "]".repeat(40))).is_err());
    }
}
