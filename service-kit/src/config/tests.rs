//! The loader over a small configuration that has one of everything.

use std::{collections::BTreeMap, fs};

use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Sample {
    /// Where to listen.
    #[schemars(with = "Address")]
    listen: SocketAddr,
    /// Places by name.
    workspaces: BTreeMap<String, Place>,
    limits: Limits,
    /// A key.
    api_key: Option<Secret>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Place {
    cwd: String,
    home: Option<String>,
    roots: Vec<String>,
    mode: Mode,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Limits {
    #[schemars(range(max = 16))]
    depth: u32,
    wait: Span,
    /// A word or a number.
    spawns: Spawns,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    FallThrough,
    Block,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Spawns {
    Word(String),
    List(Vec<String>),
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            listen: ([127, 0, 0, 1], 7401).into(),
            workspaces: [("default".to_owned(), Place::default())].into(),
            limits: Limits::default(),
            api_key: None,
        }
    }
}

impl Default for Place {
    fn default() -> Self {
        let home = Some("${env:HOME}".to_owned());
        Self { cwd: ".".to_owned(), home, roots: Vec::new(), mode: Mode::FallThrough }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 2, wait: Span::seconds(60), spawns: Spawns::Word("*".to_owned()) }
    }
}

impl Configuration for Sample {
    fn check(&self) -> Vec<(String, String)> {
        let mut mistakes: Vec<_> = check_exposure(self.listen, false).into_iter().collect();
        if self.limits.depth == 13 {
            mistakes.push(("limits.depth".to_owned(), "brings bad luck".to_owned()));
        }
        mistakes
    }
}

fn load_text(
    text: &str,
    environment: Environment,
    flags: Vec<Flag>,
) -> (Result<Loaded<Sample>, Invalid>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sample.yaml");
    fs::write(&path, text).unwrap();
    (load(Some(&path), &environment, flags), directory)
}

fn loaded(text: &str, environment: Environment, flags: Vec<Flag>) -> Loaded<Sample> {
    load_text(text, environment, flags).0.unwrap()
}

#[track_caller]
fn mistakes(text: &str, environment: Environment) -> Vec<String> {
    let (result, directory) = load_text(text, environment, Vec::new());
    let prefix = format!("{}/", directory.path().display());
    result.unwrap_err().0.iter().map(|mistake| mistake.to_string().replace(&prefix, "")).collect()
}

#[test]
fn defaults_hold_where_nothing_is_said() {
    let sample =
        load::<Sample>(None, &Environment::from([("HOME", "/home/ann")]), Vec::new()).unwrap().config;

    assert_eq!(sample.listen.port(), 7401);
    assert_eq!(sample.workspaces["default"].home.as_deref(), Some("/home/ann"));
    assert_eq!(sample.limits.wait, Span::seconds(60));
}

#[test]
fn without_home_there_is_no_user_directory() {
    let sample = load::<Sample>(None, &Environment::default(), Vec::new()).unwrap().config;

    assert_eq!(sample.workspaces["default"].home, None);
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() {
    let text = "listen: 127.0.0.1:1\nlimits: {depth: 1, wait: 1s}\nworkspaces: {default: {cwd: /file}}\n";
    let environment = Environment::from([
        ("ROSTER__LISTEN", "127.0.0.1:2"),
        ("ROSTER_LIMITS__DEPTH", "2"),
        ("ROSTER_WORKSPACES__DEFAULT__ROOTS", "[/a, /b]"),
        ("ROSTER_LIMITS_DEPTH", "7"),
        ("ROSTER_PORT_7401_TCP_ADDR", "10.0.0.1"),
    ]);
    let flags = vec![Flag::new("--listen", "listen", "127.0.0.1:3")];

    let sample = loaded(text, environment, flags).config;

    assert_eq!(sample.listen.port(), 3);
    assert_eq!((sample.limits.depth, sample.limits.wait), (2, Span::seconds(1)));
    assert_eq!(sample.workspaces["default"].cwd, "/file");
    assert_eq!(sample.workspaces["default"].roots, ["/a", "/b"]);
}

#[test]
fn named_maps_are_what_the_configuration_says_with_defaults_inside() {
    let sample = loaded("workspaces: {team: {mode: block}}", Environment::default(), Vec::new()).config;

    assert_eq!(sample.workspaces.keys().collect::<Vec<_>>(), ["team"]);
    assert_eq!(sample.workspaces["team"].cwd, ".");
    assert_eq!(sample.workspaces["team"].mode, Mode::Block);
}

#[test]
fn environment_and_files_can_be_put_into_any_value() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("key");
    fs::write(&secret, "s3cret\n").unwrap();
    let text = format!(
        "api_key: ${{file:{}}}\nlimits: {{depth: '${{env:DEPTH}}', spawns: '$${{x}}'}}\n\
         workspaces: {{default: {{cwd: '/srv/${{env:TEAM}}/x'}}}}",
        secret.display()
    );

    let loaded = loaded(&text, Environment::from([("DEPTH", "3"), ("TEAM", "blue")]), Vec::new());

    assert_eq!(loaded.files, [secret]);
    let sample = loaded.config;
    assert_eq!(sample.api_key.unwrap().expose(), "s3cret");
    assert_eq!(sample.limits.depth, 3);
    assert_eq!(sample.limits.spawns, Spawns::Word("${x}".to_owned()));
    assert_eq!(sample.workspaces["default"].cwd, "/srv/blue/x");
}

#[test]
fn every_mistake_is_listed_with_its_key_and_place() {
    let text = "lisen: 127.0.0.1:1\nlimits:\n  depth: 99\n  wait: 5\nworkspaces:\n  default:\n    mode: maybe\n    cwd: ${env:NOWHERE}\n";

    let found = mistakes(
        text,
        Environment::from([("ROSTER_LIMITS__DEEP", "1"), ("ROSTER_LIMITS__", "1"), ("ROSTERX__Y", "1")]),
    );

    let expected = [
        "ROSTER_LIMITS__: names no key; `__` stands between the parts of one",
        "sample.yaml:8:5: `workspaces.default.cwd`: the environment variable `NOWHERE` is not set",
        "sample.yaml:1:1: `lisen`: is not a key; did you mean `listen`?",
        "sample.yaml:3:3: `limits.depth`: expected whole number from 0 to 16, found `99`",
        "sample.yaml:4:3: `limits.wait`: expected duration such as `15s` or `2h`, found `5`",
        "ROSTER_LIMITS__DEEP: `limits.deep`: is not a key; did you mean `limits.depth`?",
        "sample.yaml:7:5: `workspaces.default.mode`: expected `fall_through` or `block`, found `maybe`",
    ];
    for line in expected {
        assert!(found.iter().any(|mistake| mistake == line), "{line}\nnot in {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn what_only_the_whole_can_tell_has_a_place_too() {
    assert_eq!(
        mistakes("limits: {depth: 13}", Environment::from([("ROSTER__LISTEN", "0.0.0.0:7401")])),
        [
            "ROSTER__LISTEN: `listen`: `0.0.0.0:7401` is not a loopback address and would be served without TLS; \
             say `insecure: true` to do so",
            "sample.yaml:1:10: `limits.depth`: brings bad luck",
        ]
    );
}

#[test]
fn a_file_that_is_no_mapping_is_a_mistake() {
    assert_eq!(mistakes("- a", Environment::default()), ["sample.yaml: must be a mapping of keys to values"]);
    assert!(mistakes("a: [", Environment::default())[0].starts_with("sample.yaml:1:"));
    let missing = load::<Sample>(Some(Path::new("/nowhere.yaml")), &Environment::default(), Vec::new());
    assert!(missing.unwrap_err().to_string().starts_with("/nowhere.yaml: cannot be read"));
}

#[test]
fn the_print_out_names_origins_masks_secrets_and_can_be_read_back() {
    let text = "limits: {depth: 1}\napi_key: hunter2\n";
    let printed = loaded(text, Environment::from([("ROSTER_LIMITS__WAIT", "5s")]), Vec::new()).print();

    assert!(!printed.contains("hunter2"), "{printed}");
    let line =
        |start: &str| printed.lines().find(|line| line.trim_start().starts_with(start)).unwrap().to_owned();
    assert!(line("depth: 1").ends_with("sample.yaml:1:10"), "{printed}");
    assert!(line("wait: \"5s\"").ends_with("# ROSTER_LIMITS__WAIT"), "{printed}");
    assert!(line("listen: ").ends_with("# default"), "{printed}");
    assert!(line("api_key: \"***\"").ends_with("sample.yaml:2:1"), "{printed}");
    assert_eq!(yaml::parse(&printed).unwrap().value["limits"]["depth"], json!(1));
}

#[test]
fn the_reference_has_a_row_for_every_key() {
    let text = reference::<Sample>(Section { title: "sample", introduction: "Reads this." });

    for row in [
        "| `listen` | address such as `127.0.0.1:7401` | `127.0.0.1:7401` | Where to listen. |",
        "| `workspaces.<name>.mode` | `fall_through` or `block` | `fall_through` |  |",
        "| `limits.depth` | whole number from 0 to 16 | `2` |  |",
        "| `limits.spawns` | text or list of text | `*` | A word or a number. |",
        "| `api_key` | secret text | none | A key. |",
    ] {
        assert!(text.contains(row), "{row}\nnot in\n{text}");
    }
}
