//! A value of front matter, whatever language it was written in, with its place.

use serde_json::{Map, Value as Json};

use super::finding::Position;

/// A value and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(Text),
    List(Vec<Node>),
    /// In the order written. Keys are nodes too: a schema may not have one that is no text.
    Map(Vec<(Node, Node)>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Number {
    pub(super) written: String,
    /// Absent where JSON has no such number: infinite, or none at all.
    pub(super) json: Option<serde_json::Number>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    pub(super) text: String,
    /// A plain value that a ` #` ended.
    pub(super) cut_by_comment: bool,
}

/// A top-level key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) at: Position,
    pub(super) value: Reading,
}

/// What stands at a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reading {
    Value(Node),
    /// A restriction that a rescue would have to guess, and the place where that begins.
    Unreadable(Position),
}

/// A key that is no text, or a number JSON does not know.
#[derive(Debug, PartialEq)]
pub(super) struct NotJson {
    pub(super) at: Position,
    pub(super) written: String,
}

impl Node {
    pub(super) fn text(at: Position, text: impl Into<String>) -> Self {
        Self { at, value: Value::Text(Text { text: text.into(), cut_by_comment: false }) }
    }

    /// What kind of value it is, for a message.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a bool",
            Value::Number(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The value as text: a scalar as written, anything else as JSON.
    pub(super) fn written(&self) -> String {
        match &self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Number(number) => number.written.clone(),
            Value::Text(text) => text.text.clone(),
            Value::List(_) | Value::Map(_) => self.to_json().to_string(),
        }
    }

    pub(super) fn is_scalar(&self) -> bool {
        match &self.value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => true,
            Value::List(_) | Value::Map(_) => false,
        }
    }

    /// The value as JSON; what JSON cannot say becomes text.
    pub(super) fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(Number { json: Some(number), .. }) => Json::Number(number.clone()),
            Value::Number(Number { written, json: None }) => Json::String(written.clone()),
            Value::Text(text) => Json::String(text.text.clone()),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(pairs) => {
                Json::Object(pairs.iter().map(|(key, value)| (key.written(), value.to_json())).collect())
            }
        }
    }

    /// The value as JSON, or the first part of it that JSON cannot say.
    pub(super) fn to_strict_json(&self) -> Result<Json, NotJson> {
        let refusal = |node: &Self| NotJson { at: node.at, written: node.written() };
        match &self.value {
            Value::Number(Number { json: None, .. }) => Err(refusal(self)),
            Value::List(items) => {
                items.iter().map(Self::to_strict_json).collect::<Result<_, _>>().map(Json::Array)
            }
            Value::Map(pairs) => {
                let mut object = Map::new();
                for (key, value) in pairs {
                    let Value::Text(text) = &key.value else {
                        return Err(refusal(key));
                    };
                    object.insert(text.text.clone(), value.to_strict_json()?);
                }
                Ok(Json::Object(object))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => Ok(self.to_json()),
        }
    }

    /// Calls `visit` with every text in the value, keys included.
    pub(super) fn each_text(&self, visit: &mut impl FnMut(&str)) {
        match &self.value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::Text(text) => visit(&text.text),
            Value::List(items) => items.iter().for_each(|item| item.each_text(visit)),
            Value::Map(pairs) => pairs.iter().for_each(|(key, value)| {
                key.each_text(visit);
                value.each_text(visit);
            }),
        }
    }
}

/// Reads a plain scalar by the YAML 1.2 core schema: `yes`, `no`, `on`, `off` and `1_000` are text.
pub(super) fn plain(written: &str) -> Value {
    match written {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    match number(written) {
        Some(json) => Value::Number(Number { written: written.to_owned(), json }),
        None => Value::Text(Text { text: written.to_owned(), cut_by_comment: false }),
    }
}

/// `None` where it is no number, `Some(None)` where it is one that JSON does not know.
fn number(written: &str) -> Option<Option<serde_json::Number>> {
    let unsigned = written.strip_prefix(['-', '+']).unwrap_or(written);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(written, ".nan" | ".NaN" | ".NAN") {
        return Some(None);
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = written.strip_prefix(prefix) {
            let all_digits = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
            return all_digits.then(|| u64::from_str_radix(digits, radix).ok().map(Into::into));
        }
    }
    if unsigned.bytes().all(|byte| byte.is_ascii_digit()) && !unsigned.is_empty() {
        let whole =
            written.parse::<u64>().map(Into::into).or_else(|_| written.parse::<i64>().map(Into::into));
        return Some(whole.ok().or_else(|| float(written)));
    }
    is_float(unsigned).then(|| float(written))
}

/// `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(unsigned: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let exponent_fits = exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    has_digits && digits(whole) && digits(fraction) && exponent_fits
}

fn float(written: &str) -> Option<serde_json::Number> {
    serde_json::Number::from_f64(written.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(written: &str, kind: &str, json: Json) {
        let node = Node { at: Position::START, value: plain(written) };
        assert_eq!((node.kind(), node.to_json()), (kind, json), "{written:?}");
    }

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        for written in
            ["yes", "no", "on", "off", "1_000", "0b11", "0x", "0xg", "1e", "e5", ".", "+", "-", "2026-01-01"]
        {
            check(written, "text", json!(written));
        }
        for written in ["True", "TRUE", "true"] {
            check(written, "a bool", json!(true));
        }
        for written in ["", "~", "null", "Null", "NULL"] {
            check(written, "nothing", Json::Null);
        }
        check("nULL", "text", json!("nULL"));
        check("017", "a number", json!(17));
        check("-17", "a number", json!(-17));
        check("+17", "a number", json!(17));
        check("0x1F", "a number", json!(31));
        check("0o17", "a number", json!(15));
        check("1.50", "a number", json!(1.5));
        check("1.", "a number", json!(1.0));
        check(".5", "a number", json!(0.5));
        check("-1e3", "a number", json!(-1000.0));
        check("99999999999999999999", "a number", json!(1e20));
        check(".inf", "a number", json!(".inf"));
        check("-.INF", "a number", json!("-.INF"));
        check(".nan", "a number", json!(".nan"));
        check("1e999", "a number", json!("1e999"));
    }

    #[test]
    fn strict_json_names_what_it_cannot_say() {
        let at = Position::new(3, 4);
        let infinite = Node { at, value: plain(".inf") };
        let list = Node { at: Position::START, value: Value::List(vec![infinite]) };
        let number_key = Node { at, value: plain("1") };
        let map = Node { at: Position::START, value: Value::Map(vec![(number_key, Node::text(at, "x"))]) };

        assert_eq!(list.to_strict_json(), Err(NotJson { at, written: ".inf".to_owned() }));
        assert_eq!(map.to_strict_json(), Err(NotJson { at, written: "1".to_owned() }));
        assert_eq!(map.to_json(), json!({"1": "x"}));
    }
}
