//! Values of the fields that do not restrict, and what all fields say of a value they cannot use.

use super::{Findings, Given, Node, Value, key};
use crate::{
    agent::ThinkingLevel,
    definition::{finding::shown, permission, tool, unique::Unique},
    diagnostic::Code,
};

/// Turns a definition may ask for at most.
const MAX_TURNS: u64 = 10_000;

/// A list or comma text of names; empty elements go.
pub(super) fn names(given: &Given, findings: &mut Findings) -> Vec<String> {
    match &given.node.value {
        Value::Text(text) => tool::split_commas(&text.text).collect::<Unique>().into_vec(),
        Value::List(items) => {
            let mut names = Unique::default();
            for item in items {
                match &item.value {
                    Value::Text(text) if text.text.trim().is_empty() => {}
                    Value::Text(text) => names.add(text.text.trim()),
                    Value::Null => {}
                    Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {
                        wrong_element(given, item, findings);
                    }
                }
            }
            names.into_vec()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Map(_) => {
            wrong_type(given, "a list or comma text", findings);
            Vec::new()
        }
    }
}

/// Model patterns in order; `inherit` alone says nothing.
pub(super) fn models(given: &Given, findings: &mut Findings) -> Vec<String> {
    let models = names(given, findings);
    match models.as_slice() {
        [only] if key::fold(only) == "inherit" => Vec::new(),
        _ => models,
    }
}

pub(super) fn thinking_level(given: &Given, findings: &mut Findings) -> Option<ThinkingLevel> {
    if !given.node.is_scalar() {
        wrong_type(given, "a word", findings);
        return None;
    }
    if let Value::Text(text) = &given.node.value {
        match key::fold(text.text.trim()).as_str() {
            "off" => return Some(ThinkingLevel::Off),
            "minimal" => return Some(ThinkingLevel::Minimal),
            "low" => return Some(ThinkingLevel::Low),
            "medium" | "med" => return Some(ThinkingLevel::Medium),
            "high" => return Some(ThinkingLevel::High),
            "xhigh" | "max" => return Some(ThinkingLevel::Xhigh),
            "inherit" => return None,
            _ => {}
        }
    }
    unknown_value(given, "use `off`, `minimal`, `low`, `medium`, `high` or `xhigh`", findings);
    None
}

pub(super) fn max_turns(given: &Given, findings: &mut Findings) -> Option<u32> {
    let turns = match &given.node.value {
        Value::Number(number) => number.json.as_ref().and_then(serde_json::Number::as_u64),
        Value::Text(text) => decimal(text.text.trim()),
        Value::Null | Value::Bool(_) => None,
        Value::List(_) | Value::Map(_) => {
            wrong_type(given, "a whole number", findings);
            return None;
        }
    };
    let turns =
        turns.filter(|turns| (1..=MAX_TURNS).contains(turns)).and_then(|turns| u32::try_from(turns).ok());
    if turns.is_none() {
        unknown_value(given, &format!("use a whole number from 1 to {MAX_TURNS}"), findings);
    }
    turns
}

pub(super) fn blocking(given: &Given, findings: &mut Findings) -> bool {
    if !given.node.is_scalar() {
        wrong_type(given, "`true` or `false`", findings);
        return false;
    }
    let value = bool_of(&given.node);
    if value.is_none() {
        unknown_value(given, "use `true` or `false`", findings);
    }
    value.unwrap_or(false)
}

/// Names of servers. What a definition defines itself is dropped whole.
pub(super) fn mcp_servers(given: &Given, findings: &mut Findings) -> Vec<String> {
    match &given.node.value {
        Value::Map(pairs) => {
            pairs.iter().filter_map(|pair| named_server(pair, findings)).collect::<Unique>().into_vec()
        }
        Value::List(items) => {
            let mut servers = Unique::default();
            for item in items {
                match &item.value {
                    Value::Text(text) if text.text.trim().is_empty() => {}
                    Value::Text(text) => servers.add(text.text.trim()),
                    Value::Null => {}
                    Value::Map(pairs) => match pairs.as_slice() {
                        [] => {}
                        [(key, value)]
                            if key.written() == "name" && matches!(value.value, Value::Text(_)) =>
                        {
                            servers.add(value.written().trim());
                        }
                        [pair] => servers.extend(named_server(pair, findings)),
                        _ => permission::privilege_ignored(given.field.key(), item, findings),
                    },
                    Value::Bool(_) | Value::Number(_) | Value::List(_) => {
                        wrong_element(given, item, findings)
                    }
                }
            }
            servers.into_vec()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => names(given, findings),
    }
}

/// The name in a pair that is nothing more than a name.
fn named_server((key, value): &(Node, Node), findings: &mut Findings) -> Option<String> {
    if value.value == Value::Null {
        return Some(key.written().trim().to_owned()).filter(|name| !name.is_empty());
    }
    permission::privilege_ignored("mcp_servers", key, findings);
    None
}

/// A bool, also as text.
pub(super) fn bool_of(node: &Node) -> Option<bool> {
    match &node.value {
        Value::Bool(value) => Some(*value),
        Value::Text(text) => match key::fold(text.text.trim()).as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        },
        Value::Null | Value::Number(_) | Value::List(_) | Value::Map(_) => None,
    }
}

/// Says that a value has the wrong type, for which the document is refused.
pub(super) fn wrong_type(given: &Given, wanted: &str, findings: &mut Findings) {
    let message = format!(
        "`{}` is {}, {}, write {wanted}",
        given.field.key(),
        given.node.kind(),
        shown(&given.node.written()),
    );
    refuse(given, given.node.at, message, findings);
}

/// Says that an element of a list is no name.
pub(super) fn wrong_element(given: &Given, item: &Node, findings: &mut Findings) {
    let message = format!(
        "`{}` contains {}, {}, write names only",
        given.field.key(),
        item.kind(),
        shown(&item.written())
    );
    refuse(given, item.at, message, findings);
}

fn refuse(given: &Given, at: super::Position, message: String, findings: &mut Findings) {
    if given.field.restricts() {
        findings.refuse_restriction(at, message);
    } else {
        findings.refuse(Code::InvalidField, at, message);
    }
}

fn unknown_value(given: &Given, mend: &str, findings: &mut Findings) {
    let message = format!(
        "`{}` {} is not understood and counts as absent, {mend}",
        given.field.key(),
        shown(&given.node.written()),
    );
    findings.warn(Code::UnknownValue, given.node.at, message);
}

/// A number written with digits only.
fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
