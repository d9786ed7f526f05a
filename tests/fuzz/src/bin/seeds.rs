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
        "definition" => definitions(),
        "page_token" => page_tokens(),
        "plugin_registry" => plugin_registries(),
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
