use serde_json::json;

use super::Grep;
use crate::tool::{
    Error,
    builtin::{file_tool::FileTool, fixture::Fixture},
    limits::RESULT_MAX,
};

#[tokio::test]
async fn matches_come_by_file_with_line_numbers() {
    let fixture = Fixture::new(&[
        ("src/b.rs", "fn main() {}\nlet x = 1;\nfn other() {}\r\n"),
        ("src/a.py", "def main(): pass\n"),
        ("README.md", "Nothing\n"),
    ]);
    let grep = FileTool::<Grep>::new();

    for (arguments, found) in [
        (json!({"pattern": "^fn "}), "src/b.rs\n     1: fn main() {}\n     3: fn other() {}\n"),
        (json!({"pattern": "main\\(", "glob": "*.py"}), "src/a.py\n     1: def main(): pass\n"),
        (json!({"pattern": "MAIN", "ignore_case": "true", "files_only": true}), "src/a.py\nsrc/b.rs\n"),
        (
            json!({"pattern": "main(", "literal": true, "path": "src/a.py"}),
            "src/a.py\n     1: def main(): pass\n",
        ),
        (
            json!({"pattern": "}$", "path": "src/b.rs"}),
            "src/b.rs\n     1: fn main() {}\n     3: fn other() {}\n",
        ),
        (
            json!({"pattern": "let", "context": 1}),
            "src/b.rs\n     1- fn main() {}\n     2: let x = 1;\n     3- fn other() {}\n",
        ),
        (json!({"pattern": "absent", "path": "src"}), "(nothing in `src` matches `absent`)\n"),
    ] {
        assert_eq!(fixture.ok(&grep, arguments.clone()).await, found, "{arguments}");
    }
}

#[tokio::test]
async fn what_tools_must_not_open_is_not_searched() {
    let fixture = Fixture::new(&[
        (".env", "needle"),
        ("var/log", "needle"),
        (".git/config", "needle"),
        ("target/x", "needle"),
        (".gitignore", "target/\n"),
        ("../outside/x", "needle"),
        ("seen", "needle"),
    ]);
    fixture.file("binary", b"\0needle\n");
    fixture.link("out", "../outside/x");
    fixture.fifo("pipe");
    let grep = FileTool::<Grep>::new();

    assert_eq!(fixture.ok(&grep, json!({"pattern": "needle"})).await, "seen\n     1: needle\n");
    for path in [".env", ".git/config"] {
        fixture.refused(&grep, json!({"pattern": "needle", "path": path}), "tools.read_deny").await;
    }
    fixture.refused(&grep, json!({"pattern": "needle", "path": "target"}), "is ignored").await;
    fixture.refused(&grep, json!({"pattern": "needle", "path": "out"}), "leads out").await;
    fixture.refused(&grep, json!({"pattern": "needle", "path": "pipe"}), "is no regular file").await;
}

#[tokio::test]
async fn results_are_limited_and_say_so() {
    let fixture = Fixture::new(&[("many", &"needle\n".repeat(500)), ("wide", &"needle ".repeat(50_000))]);
    let grep = FileTool::<Grep>::new();

    let few = fixture.ok(&grep, json!({"pattern": "needle", "limit": 2})).await;
    let all = fixture.ok(&grep, json!({"pattern": "needle", "limit": 1000, "context": 20})).await;

    assert_eq!(
        few,
        "many\n     1: needle\n     2: needle\n(2 matches shown, there are more: narrow `pattern`, `path` or `glob`)\n"
    );
    assert!(all.len() <= RESULT_MAX && all.contains("bytes more)"), "{all}");
}

#[tokio::test]
async fn patterns_are_refused_when_they_cannot_be_run_safely() {
    let fixture = Fixture::new(&[("a", &"a".repeat(100_000))]);
    let grep = FileTool::<Grep>::new();

    fixture.refused(&grep, json!({"pattern": "main("}), "set `literal` to true").await;
    fixture.refused(&grep, json!({"pattern": "(?=x)"}), "no regular expression").await;
    fixture.refused(&grep, json!({"pattern": "((a{1000}){1000}){1000}"}), "no regular expression").await;
    fixture.refused(&grep, json!({"pattern": "x".repeat(5_000)}), "longer than 4096 bytes").await;
    // Takes for ever where matching backtracks.
    let text = fixture.ok(&grep, json!({"pattern": "(a*)*b"})).await;
    assert!(text.starts_with("(nothing"), "{text}");
}

#[tokio::test]
async fn a_cancelled_call_ends() {
    let fixture = Fixture::new(&[("a", "x")]);
    fixture.context.cancel.cancel();

    let result = fixture.call(&FileTool::<Grep>::new(), json!({"pattern": "x"})).await;

    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
}
