//! `--print-config`: the whole configuration as YAML that can be read back, each value with its origin behind it.

use serde_json::Value;

use super::{
    schema::Schema,
    tree::{Tree, join},
};

const MASK: &str = "***";

/// Origins begin at this column where the value leaves room.
const ORIGIN_COLUMN: usize = 44;

pub(super) fn render(tree: &Tree, schema: &Schema) -> String {
    let mut lines = String::new();
    section(tree, schema, &tree.value, "", 0, &mut lines);
    lines
}

fn section(tree: &Tree, schema: &Schema, value: &Value, pointer: &str, depth: usize, lines: &mut String) {
    for (key, item) in value.as_object().into_iter().flatten() {
        let child = join(pointer, key);
        let indent = "  ".repeat(depth);
        let key = key_text(key);
        if item.as_object().is_some_and(|map| !map.is_empty()) {
            lines.push_str(&format!("{indent}{key}:\n"));
            section(tree, schema, item, &child, depth + 1, lines);
        } else {
            let shown = masked(schema, item, &child);
            let line = format!("{indent}{key}: {shown}");
            let origin = tree.origin(&child);
            lines.push_str(&format!("{line:<ORIGIN_COLUMN$} # {origin}\n"));
        }
    }
}

/// JSON is YAML, so values are written as JSON; secrets inside lists and maps are masked too.
fn masked(schema: &Schema, value: &Value, pointer: &str) -> Value {
    match value {
        Value::Null => Value::Null,
        _ if schema.is_secret(pointer) => Value::from(MASK),
        Value::Array(items) => Value::Array(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| masked(schema, item, &join(pointer, &index.to_string())))
                .collect(),
        ),
        Value::Object(map) => Value::Object(
            map.iter().map(|(key, item)| (key.clone(), masked(schema, item, &join(pointer, key)))).collect(),
        ),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn key_text(key: &str) -> String {
    let plain = key.starts_with(|first: char| first.is_ascii_alphabetic())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if plain { key.to_owned() } else { Value::from(key).to_string() }
}
