//! Arguments that no model should send: each is answered, and nothing outside of the workspace is read or changed.
//! `PROPTEST_CASES` says how many are tried.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{all, fixture::Fixture, trial};
use crate::tool::settings::Settings;

const KEYS: [&str; 16] = [
    "path",
    "pattern",
    "content",
    "old_string",
    "new_string",
    "replace_all",
    "edits",
    "offset",
    "limit",
    "glob",
    "depth",
    "context",
    "ignore_case",
    "all",
    "file_path",
    "nothing",
];

const PATHS: [&str; 16] = [
    "",
    ".",
    "..",
    "/",
    "a.txt",
    "../outside/secret",
    "link/secret",
    "/etc/passwd",
    "a.txt/..",
    "sub/../../outside/secret",
    "var/token",
    "executor.yaml",
    ".env",
    "sub//b.txt",
    "agents/x.md",
    "a\u{0}b",
];

const PATTERNS: [&str; 10] = ["not", "(", "(a+)+$", "**/*", "[", "{a,b", "\\", "(?i)NOT", "^$", "x{1000000}"];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => prop::sample::select(&PATHS[..]).prop_map(Value::from),
        2 => prop::sample::select(&PATTERNS[..]).prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => (0..20_u64).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(&KEYS[..]), inner), 0..4).prop_map(object),
        ]
    })
}

fn object(fields: Vec<(&'static str, Value)>) -> Value {
    Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
}

fn arguments() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => prop::collection::vec((prop::sample::select(&KEYS[..]), value()), 0..6).prop_map(object),
        1 => value(),
    ]
}

proptest! {
    #[test]
    fn every_argument_is_answered_and_none_leads_out_of_the_workspace(
        arguments in prop::collection::vec(arguments(), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        trial::check(&runtime, &arguments);
    }
}

#[test]
fn the_strange_arguments_reach_the_tools() {
    let fixture = Fixture::new(&[("a.txt", "not this one\n")]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answered = all(&Settings::default()).into_iter().filter(|tool| {
        let fields = tool.spec().input_schema["properties"].as_object().unwrap().clone();
        let path =
            if fields.contains_key("content") || fields.contains_key("offset") { "a.txt" } else { "." };
        let arguments = json!({"path": path, "pattern": "not", "content": "c"});
        let fitting = arguments.as_object().unwrap().iter().filter(|(key, _)| fields.contains_key(*key));
        let fitting = Value::Object(fitting.map(|(key, value)| (key.clone(), value.clone())).collect());
        assert!(fields.keys().any(|key| KEYS.contains(&key.as_str())), "{fields:?}");
        runtime.block_on(tool.call(&fixture.context, &fitting)).is_ok()
    });
    assert!(answered.count() >= 4);
}
