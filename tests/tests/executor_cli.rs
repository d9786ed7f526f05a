//! The command line: progress, JSON lines, exit codes, and a Ctrl-C that stops the worker.

use std::{fs, process::Output};

use proto::executor::v1::{ListWorkersRequest, StopReason, worker_event::Body};
use tests::{
    executor::{Executor, call},
    registry::Registry,
    repository,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

const SCRIPT: &str = r#"
rules:
  - when: {agent: task, turn: 1}
    do:
      - text: "Let me look."
      - call: {tool: ls, arguments: {path: "."}}
  - when: {agent: task, turn: 2}
    do:
      - text: "Seen."
  - when: {agent: plan}
    do:
      - delay: 60s
      - text: "never"
"#;

fn program(executor: &Executor, arguments: &[&str]) -> Command {
    let mut command = Command::new(repository::programs().join("executor-svc"));
    command.args(arguments).args(["--addr", &executor.address.to_string()]);
    command.args(["--data", "/nowhere"]).kill_on_drop(true);
    command
}

async fn run(executor: &Executor, arguments: &[&str]) -> (Output, String) {
    let output = program(executor, arguments).output().await.expect("the program runs");
    let text = repository::printed(&output);
    (output, text)
}

#[tokio::test]
async fn a_spawn_shows_plain_lines_and_exits_as_the_worker_ended() {
    let registry = Registry::start().await;
    let executor = Executor::start(&registry, SCRIPT).await;

    let (output, text) = run(&executor, &["spawn", "task", "Go."]).await;

    assert_eq!(output.status.code(), Some(0), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("worker-") && lines[0].contains("task"), "{text}");
    for expected in ["running", "turn 1", "Let me look.", "ls {\"path\":\".\"}", "Seen."] {
        assert!(lines.contains(&expected), "`{expected}` in {text}");
    }
    assert!(text.contains("completed 2 turns, 1 tool calls"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours where nobody looks on");

    let (output, text) = run(&executor, &["spawn", "quick_task", "Nobody has a rule for this."]).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("failed (model error)"), "{text}");
    let (output, text) = run(&executor, &["spawn", "nobody", "Go."]).await;
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("Unknown agent \"nobody\"") && text.contains("UNKNOWN_AGENT"), "{text}");
    executor.stop().await;
}

#[tokio::test]
async fn json_is_one_event_a_line() {
    let registry = Registry::start().await;
    let executor = Executor::start(&registry, SCRIPT).await;

    let (output, text) = run(&executor, &["spawn", "--json", "task", "Go."]).await;

    assert_eq!(output.status.code(), Some(0), "{text}");
    let events: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert!(events[0]["accepted"]["worker"]["id"].is_string(), "{text}");
    let last = events.last().unwrap();
    assert_eq!(last["finished"]["worker"]["status"], "WORKER_STATUS_COMPLETED");
    assert_eq!(last["finished"]["worker"]["result"], "Seen.");
    executor.stop().await;
}

#[tokio::test]
async fn ctrl_c_stops_the_worker_and_shows_its_end() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, SCRIPT).await;
    let mut child = program(&executor, &["spawn", "plan", "Go."])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while lines.next_line().await.unwrap().expect("the turn begins") != "turn 1" {}

    let id = child.id().unwrap().to_string();
    repository::run(std::process::Command::new("kill").args(["-INT", &id]));

    let mut rest = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        rest.push_str(&line);
        rest.push('\n');
    }
    assert_eq!(child.wait().await.unwrap().code(), Some(1), "{rest}");
    assert!(rest.contains("killed (stopped)"), "{rest}");
    let listed = executor.client.list_workers(ListWorkersRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.workers[0].stop_reason(), StopReason::Stopped);
    executor.stop().await;
}

#[tokio::test]
async fn workers_and_sessions_are_looked_at_and_stopped() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, SCRIPT).await;
    let mut events = executor.follow(call("plan", "Go.")).await;
    let begun = events.until(|body| matches!(body, Body::TurnStarted(_))).await;
    let id = begun.worker_id.as_str();

    let (_, tree) = run(&executor, &["tree", id]).await;
    let (_, sessions) = run(&executor, &["sessions", "--open"]).await;
    let (_, messages) = run(&executor, &["messages", id]).await;
    let (_, tools) = run(&executor, &["tools", "task"]).await;
    let (_, limits) = run(&executor, &["limits"]).await;
    let (stopped, receipt) = run(&executor, &["stop", id, "--wait", "30"]).await;
    let (watched, end) = run(&executor, &["watch", id]).await;

    assert!(tree.contains("plan running"), "{tree}");
    assert!(sessions.contains("open anonymous 1 open"), "{sessions}");
    assert!(messages.starts_with("system\n") && messages.contains("user\nGo.\n"), "{messages}");
    assert!(tools.contains("+ read (read)") && tools.contains("- bash (destructive)"), "{tools}");
    assert!(limits.contains("limits.max_recursion_depth = 2 (default)"), "{limits}");
    assert!(stopped.status.success() && receipt.contains("running -> killed"), "{receipt}");
    assert_eq!(watched.status.code(), Some(1), "{end}");
    executor.stop().await;
}

#[tokio::test]
async fn a_wrong_configuration_lists_every_mistake_and_binds_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("executor.yaml");
    fs::write(&file, "limits: {max_turn: 3}\nworkspaces: {default: {cwd: 7}}\n").unwrap();

    let output = Command::new(repository::programs().join("executor-svc"))
        .args(["serve", "--config", file.to_str().unwrap()])
        .output()
        .await
        .unwrap();

    let text = repository::printed(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("max_turn") && text.contains("max_turns"), "the nearest key: {text}");
    assert!(text.contains("workspaces.default.cwd"), "{text}");
    assert!(!text.contains("listening"), "{text}");

    fs::write(&file, "models: {default: offline/x, providers: {offline: {kind: rehearsal, script: none.yaml}}}\nworkspaces: {default: {cwd: /nowhere/at/all}}\n").unwrap();
    let output = Command::new(repository::programs().join("executor-svc"))
        .args(["serve", "--data", directory.path().to_str().unwrap(), "--config", file.to_str().unwrap()])
        .output()
        .await
        .unwrap();
    let text = repository::printed(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("none.yaml") && text.contains("/nowhere/at/all"), "{text}");
    assert!(!text.contains("listening"), "{text}");
}
