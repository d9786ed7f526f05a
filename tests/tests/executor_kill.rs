//! `kill -9` of the program in each state of a worker: after the next start every record is closed, once. And one process at
//! a time over a store.

use std::{fs, process::Stdio};

use proto::executor::v1::{
    GetTreeRequest, SpawnRequest, SpawnStreamRequest, SpawnStreamResponse, StopReason, WatchWorkerRequest,
    Worker, WorkerStatus, worker_event::Body,
};
use rusqlite::Connection;
use tempfile::TempDir;
use tests::{
    executor::{body, call},
    executor_program::Program,
    program::without_configuration,
    registry::Registry,
    repository,
};
use tonic::Streaming;

/// A worker of one turn.
const PLAIN: &str = "rules:\n  - do:\n      - delay: 800ms\n      - text: \"done\"\n";

/// A worker that waits for another.
const FAMILY: &str = r#"
rules:
  - when: {agent: task, turn: 1}
    do:
      - call: {tool: AgentTool, arguments: {description: "look", subagent_type: quick_task, prompt: "Look."}}
  - when: {agent: quick_task}
    do:
      - delay: 800ms
      - text: "looked"
  - do:
      - text: "done"
"#;

/// A registry, and a place for the executor's data.
struct Stage {
    registry: Registry,
    directory: TempDir,
}

impl Stage {
    async fn new(script: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        fs::write(directory.path().join("script.yaml"), script).expect("the script is written");
        Self { registry: Registry::start().await, directory }
    }

    async fn start(&self, config: &str) -> Program {
        Program::start_with(&self.registry, self.directory.path(), config).await
    }

    fn store(&self) -> Connection {
        Connection::open(self.directory.path().join("var/executor/sessions.sqlite")).expect("it is there")
    }

    /// What is not closed, by the table itself.
    fn open_rows(&self) -> u32 {
        self.store()
            .query_row("SELECT count(*) FROM workers WHERE is_open = 1", [], |count| count.get(0))
            .expect("the table is there")
    }

    async fn end(self, program: Program) {
        assert!(program.terminate().await.success(), "a drain ends well");
        assert_eq!(self.open_rows(), 0);
        self.registry.stop().await;
    }
}

async fn follow(program: &mut Program) -> Streaming<SpawnStreamResponse> {
    let spawn = SpawnRequest { background: true, ..call("task", "Go.") };
    let request = SpawnStreamRequest { spawn: Some(spawn) };
    program.client.spawn_stream(request).await.expect("the spawn is accepted").into_inner()
}

/// Reads events up to one that fits, and answers its worker's id.
async fn until(events: &mut Streaming<SpawnStreamResponse>, fits: impl Fn(&Body) -> bool) -> String {
    loop {
        let response = events.message().await.expect("the stream does not fail");
        let event = response.expect("it comes before the end").event.expect("a message has an event");
        if fits(body(&event)) {
            return event.worker_id;
        }
    }
}

/// The record of a worker after its end, which is the last of its events, and the only end among them.
async fn closed_once(program: &mut Program, id: &str) -> Worker {
    let request = WatchWorkerRequest { worker_id: id.to_owned(), after_sequence: 0 };
    let mut events = program.client.watch_worker(request).await.expect("it is there").into_inner();
    let (mut sequences, mut ends) = (Vec::new(), Vec::new());
    while let Some(response) = events.message().await.expect("the stream does not fail") {
        let event = response.event.expect("a message has an event");
        // What a model says while it is followed has no number.
        if event.sequence > 0 {
            sequences.push(event.sequence);
        }
        if let Body::Finished(finished) = body(&event) {
            ends.push((event.sequence, finished.worker.clone().expect("the end comes with the record")));
        }
    }
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>(), "no gap and no repeat");
    let (last, worker) = ends.pop().expect("it has ended");
    assert_eq!((ends.len(), Some(&last)), (0, sequences.last()), "one end, and nothing behind it");
    assert!(worker.close_time.is_some());
    worker
}

#[tokio::test]
async fn a_worker_that_was_queued_runs_after_the_restart() {
    let stage = Stage::new(PLAIN).await;
    let mut first = stage.start("limits: {max_running: 0}\n").await;
    let mut events = follow(&mut first).await;
    let id = until(&mut events, |body| matches!(body, Body::Accepted(_))).await;
    assert_eq!(stage.open_rows(), 1);

    first.kill().await;
    let mut second = stage.start("{}").await;

    let worker = closed_once(&mut second, &id).await;
    assert_eq!((worker.stop_reason(), worker.result.as_str()), (StopReason::Finished, "done"));
    stage.end(second).await;
}

#[tokio::test]
async fn a_worker_that_waited_for_its_model_asks_again_after_the_restart() {
    let stage = Stage::new(PLAIN).await;
    let mut first = stage.start("{}").await;
    let mut events = follow(&mut first).await;
    let id = until(&mut events, |body| matches!(body, Body::TurnStarted(_))).await;
    assert_eq!(stage.open_rows(), 1);

    first.kill().await;
    let mut second = stage.start("{}").await;

    let worker = closed_once(&mut second, &id).await;
    assert_eq!((worker.stop_reason(), worker.result.as_str()), (StopReason::Finished, "done"));
    assert_eq!((worker.takeovers, worker.usage.unwrap().turns), (1, 1));
    stage.end(second).await;
}

#[tokio::test]
async fn a_worker_that_waited_for_its_child_finds_it_after_the_restart() {
    let stage = Stage::new(FAMILY).await;
    let mut first = stage.start("{}").await;
    let mut events = follow(&mut first).await;
    let id = until(&mut events, |body| matches!(body, Body::ChildSpawned(_))).await;
    assert_eq!(stage.open_rows(), 2);

    first.kill().await;
    let mut second = stage.start("{}").await;

    let worker = closed_once(&mut second, &id).await;
    assert_eq!((worker.stop_reason(), worker.result.as_str()), (StopReason::Finished, "done"));
    let request = GetTreeRequest { session_id: worker.root_id, ..GetTreeRequest::default() };
    let tree = second.client.get_tree(request).await.unwrap().into_inner();
    assert_eq!(tree.workers.len(), 2, "no second child: {tree:?}");
    for below in tree.workers {
        closed_once(&mut second, &below.id).await;
    }
    stage.end(second).await;
}

#[tokio::test]
async fn a_worker_that_was_closing_is_closed_once_after_the_restart() {
    let stage = Stage::new(PLAIN).await;
    let mut first = stage.start("{}").await;
    let mut events = follow(&mut first).await;
    let id = until(&mut events, |body| matches!(body, Body::TurnStarted(_))).await;
    // The model answers, and the store that somebody else holds keeps the end from being written.
    let intruder = stage.store();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    until(&mut events, |body| matches!(body, Body::TextDelta(_))).await;
    assert_eq!(stage.open_rows(), 1);

    first.kill().await;
    intruder.execute_batch("ROLLBACK").unwrap();
    drop(intruder);
    let mut second = stage.start("{}").await;

    let worker = closed_once(&mut second, &id).await;
    assert_eq!((worker.stop_reason(), worker.result.as_str()), (StopReason::Finished, "done"));
    assert_eq!(worker.takeovers, 1);
    stage.end(second).await;
}

#[tokio::test]
async fn a_second_executor_over_the_same_store_is_refused_in_plain_words() {
    let stage = Stage::new(PLAIN).await;
    let mut first = stage.start("{}").await;

    let mut command = std::process::Command::new(repository::programs().join("executor-svc"));
    without_configuration(&mut command);
    let refused = tokio::process::Command::from(command)
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--registry"])
        .arg(format!("http://{}", stage.registry.address))
        .arg("--data")
        .arg(stage.directory.path().join("var"))
        .arg("--rehearsal")
        .arg(stage.directory.path().join("script.yaml"))
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();

    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    let lock = stage.directory.path().join("var/executor");
    assert!(said.contains("another process uses the store"), "{said}");
    assert!(said.contains(&*lock.to_string_lossy()), "{said}");
    let worker = first.client.spawn(call("task", "Go.")).await.unwrap().into_inner().worker.unwrap();
    assert_eq!(worker.status(), WorkerStatus::Completed, "the first goes on");
    stage.end(first).await;
}
