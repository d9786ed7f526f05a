//! Writes the inputs that a target begins with: `seeds TARGET DIRECTORY`. They come from the corpora of the other tests.

use std::{env, fs, path::Path};

use serde_json::{Value, json};
use service_kit::page::{Position, encode};

const DEFINITIONS: &str = include_str!("../../../corpus/definitions.json");
const WORKSPACES: &str = include_str!("../../../corpus/workspaces.json");

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [target, directory] = arguments.as_slice() else { panic!("usage: seeds TARGET DIRECTORY") };
    let seeds = match target.as_str() {
        "anthropic_stream" => anthropic_streams(),
        "definition" => definitions(),
        "openai_stream" => openai_streams(),
        "page_token" => page_tokens(),
        "plugin_registry" => plugin_registries(),
        "tool_arguments" => tool_arguments(),
        _ => panic!("`{target}` has no seeds"),
    };
    let directory = Path::new(directory);
    fs::create_dir_all(directory).expect("the directory can be made");
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(directory.join(format!("seed-{number:04}")), seed).expect("the seed can be written");
    }
}

fn definitions() -> Vec<Vec<u8>> {
    let documents = cases(DEFINITIONS).into_iter().map(|case| text(&case["document"]));
    let of_workspaces =
        files().into_iter().filter(|(path, _)| path.ends_with(".md") || path.ends_with(".toml"));
    documents.chain(of_workspaces.map(|(_, content)| content)).map(String::into_bytes).collect()
}

fn plugin_registries() -> Vec<Vec<u8>> {
    let entry = |scope: &str, path: &str, project: Option<&str>| json!({"scope": scope, "installPath": path, "projectPath": project, "enabled": true});
    let made = json!({"version": 2, "plugins": {
        "p@market": [entry("user", "/T/home/.claude/plugins/p", None)],
        "p@q@market": [
            entry("project", "/T/project/p", Some("/T/project")),
            entry("local", "/T/project/../project/p", Some("/T")),
            entry("user", "/etc", None),
        ],
        "nobody": [], "a@": [{"scope": "all"}], "@b": "text", "c@d": [3],
    }});
    let of_workspaces = files().into_iter().filter(|(path, _)| path.ends_with("installed_plugins.json"));
    let texts = of_workspaces.map(|(_, content)| content.replace("\"T/", "\"/T/"));
    texts.chain([made.to_string()]).map(String::into_bytes).collect()
}

fn page_tokens() -> Vec<Vec<u8>> {
    let places = [(1, "50"), (u64::MAX, ""), (7, "日本/agent")];
    let token = |(generation, after): (u64, &str)| {
        encode(&["List", "default", "FULL"], &Position { generation, after: after.to_owned() })
    };
    places.map(token).map(String::into_bytes).into()
}

fn openai_streams() -> Vec<Vec<u8>> {
    let delta = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let call = |index: Value, id: &str, arguments: &str| {
        let function = json!({"name": "ls", "arguments": arguments});
        delta(json!({"tool_calls": [{"index": index, "id": id, "function": function}]}))
    };
    let more = |index: u64, piece: &str| {
        delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    };
    let end = |reason: &str| json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}});
    let streams = [
        vec![
            delta(json!({"role": "assistant"})),
            delta(json!({"content": "Grüß Gott."})),
            end("stop"),
            usage,
        ],
        vec![
            delta(json!({"reasoning_content": "Hm."})),
            delta(json!({"content": "sk-0123456789"})),
            end("length"),
        ],
        vec![
            call(json!(0), "a", ""),
            more(0, "{\"path\""),
            call(json!(1), "b", "{}"),
            more(0, ":1}"),
            end("tool_calls"),
        ],
        vec![call(Value::Null, "", "{}"), call(Value::Null, "", "{}"), end("stop")],
        vec![call(json!(0), "a", "{\"p"), more(0, "{\"p\":"), more(0, "{\"p\":1}"), end("tool_calls")],
        vec![json!({"error": {"message": "slow down", "code": 429}})],
    ];
    let streams = streams.map(|chunks| {
        chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect::<String>() + "data: [DONE]\n\n"
    });
    let document = json!({"choices": [{"finish_reason": "stop", "message": {"content": "Hello."}}]});
    in_pieces(streams.into_iter().chain([document.to_string(), "<html>Bad Gateway</html>".to_owned()]))
}

fn anthropic_streams() -> Vec<Vec<u8>> {
    let start = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let begin = json!({"type": "message_start", "message": {"usage": {"input_tokens": 9, "cache_read_input_tokens": 4}}});
    let end = |reason: &str| json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}});
    let text = json!({"type": "text_delta", "text": "Grüß Gott, sk-0123456789."});
    let tool = json!({"type": "tool_use", "id": "a", "name": "ls", "input": {}});
    let piece = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
    let streams = [
        vec![
            begin.clone(),
            start(0, json!({"type": "text", "text": ""})),
            json!({"type": "ping"}),
            delta(0, text),
            end("end_turn"),
        ],
        vec![
            begin.clone(),
            start(0, json!({"type": "thinking"})),
            delta(0, json!({"type": "thinking_delta", "thinking": "Hm."})),
            end("max_tokens"),
        ],
        vec![
            begin,
            start(1, tool),
            delta(1, piece("{\"path\"")),
            delta(1, piece(":\".\"}")),
            end("tool_use"),
        ],
        vec![json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})],
    ];
    let event =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("x"));
    let streams = streams.map(|events| {
        events.iter().map(event).collect::<String>() + &event(&json!({"type": "message_stop"}))
    });
    let document = json!({"content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn"});
    in_pieces(streams.into_iter().chain([document.to_string()]))
}

/// Each stream whole and in small pieces: the first byte says how long they are.
fn in_pieces(streams: impl Iterator<Item = String>) -> Vec<Vec<u8>> {
    streams.flat_map(|stream| [3, 255].map(|length| [&[length], stream.as_bytes()].concat())).collect()
}

fn tool_arguments() -> Vec<Vec<u8>> {
    let calls = [
        json!({"path": "a.txt", "offset": 1, "limit": 5}),
        json!({"path": "link/secret"}),
        json!({"path": "../outside/secret", "content": "x"}),
        json!({"file_path": "sub/b.txt", "old_string": "b", "new_string": "c", "replace_all": true}),
        json!({"path": "a.txt", "edits": [{"old_string": "not", "new_string": ""}]}),
        json!({"pattern": "(?i)NOT", "path": ".", "glob": "*.txt", "context": 2, "ignore_case": "true"}),
        json!({"pattern": "**/*.{txt,md}", "depth": 3.0, "all": true}),
        json!({"data": {"a": [1, null, "x"]}}),
        json!({"error": "no such file"}),
        json!("{\"path\": \".env\"}"),
        json!([1e300, -1, "agents/x.md"]),
    ];
    let doubled = "{\"path\": \"a.txt\", \"path\": \"var/token\"}".to_owned();
    calls.iter().map(Value::to_string).chain([doubled]).map(String::into_bytes).collect()
}

/// Path and content of every file of the workspaces.
fn files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for case in cases(WORKSPACES) {
        let of_case = case["files"].as_object().expect("a map of files");
        files.extend(of_case.iter().map(|(path, content)| (path.clone(), text(content))));
    }
    files
}

fn cases(json: &str) -> Vec<Value> {
    serde_json::from_str(json).expect("a list of cases")
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}
