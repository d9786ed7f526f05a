//! `{{prompt}}`, `{{last}}`, `{{agent}}` and `{{turn}}` in a script's texts.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

const NAMES: [&str; 4] = ["prompt", "last", "agent", "turn"];

static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{\s*([A-Za-z_]+)\s*\}\}").expect("the pattern is written here and compiles")
});

/// What the placeholders stand for in one turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    pub(super) prompt: &'a str,
    pub(super) last: &'a str,
    pub(super) agent: &'a str,
    pub(super) turn: u32,
}

/// Replaces the placeholders of a text. What is put in is not looked at again.
pub(super) fn fill(text: &str, values: &Values<'_>) -> String {
    let value = |found: &Captures<'_>| match &found[1] {
        "prompt" => values.prompt.to_owned(),
        "last" => values.last.to_owned(),
        "agent" => values.agent.to_owned(),
        "turn" => values.turn.to_string(),
        _ => found[0].to_owned(),
    };
    PLACEHOLDER.replace_all(text, value).into_owned()
}

/// Replaces the placeholders of every text in a value; keys stay as they are.
pub(super) fn fill_value(value: &Value, values: &Values<'_>) -> Value {
    match value {
        Value::String(text) => fill(text, values).into(),
        Value::Array(items) => items.iter().map(|item| fill_value(item, values)).collect(),
        Value::Object(map) => map.iter().map(|(key, item)| (key.clone(), fill_value(item, values))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The names in a text that stand for nothing.
pub(super) fn unknown_names(text: &str) -> Vec<String> {
    PLACEHOLDER
        .captures_iter(text)
        .map(|found| found[1].to_owned())
        .filter(|name| !NAMES.contains(&name.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VALUES: Values<'_> =
        Values { prompt: "look {{agent}}", last: "3 files", agent: "explore", turn: 2 };

    #[test]
    fn placeholders_are_filled_in_once_and_everywhere() {
        assert_eq!(fill("{{agent}} #{{ turn }}: {{last}}", &VALUES), "explore #2: 3 files");
        assert_eq!(fill("{{prompt}}", &VALUES), "look {{agent}}");
        assert_eq!(
            fill_value(&json!({"{{agent}}": ["{{agent}}", 1, null, {"a": "{{last}}"}]}), &VALUES),
            json!({"{{agent}}": ["explore", 1, null, {"a": "3 files"}]})
        );
    }

    #[test]
    fn unknown_names_are_found() {
        assert_eq!(unknown_names("{{last}} {{lst}} {{ Prompt }}"), ["lst", "Prompt"]);
        assert!(unknown_names("{ {last} } {{ .Values.x }}").is_empty());
    }
}
