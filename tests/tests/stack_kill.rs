//! The real programs: an executor that dies in the middle of a worker goes on with it after its next start.

use std::fs;

use proto::executor::v1::{
    GetWorkerRequest, SpawnStreamRequest, StopReason, WatchWorkerRequest, WorkerEvent, WorkerStatus,
    worker_event::Body,
};
use tests::{
    executor::{body, call},
    executor_program::Program,
    registry::Registry,
};

const SCRIPT: &str = r#"
rules:
  - when: {agent: task, turn: 1}
    do:
      - text: "Looking."
      - call: {tool: ls, arguments: {path: "."}}
  - when: {agent: task, turn: 2, tool: ls}
    do:
      - delay: 1500ms
      - text: "Done after all."
"#;

#[tokio::test]
async fn a_worker_goes_on_from_its_last_committed_step_after_kill_9() {
    let registry = Registry::start().await;
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("script.yaml"), SCRIPT).unwrap();
    let mut first = Program::start(&registry, directory.path()).await;
    let request = SpawnStreamRequest { spawn: Some(call("task", "Go.")) };
    let mut events = first.client.spawn_stream(request).await.unwrap().into_inner();
    let mut seen: Vec<WorkerEvent> = Vec::new();
    loop {
        let event = events.message().await.unwrap().unwrap().event.unwrap();
        let is_second_turn = matches!(body(&event), Body::TurnStarted(started) if started.turn == 2);
        seen.push(event);
        if is_second_turn {
            break;
        }
    }
    let id = seen[0].worker_id.clone();
    let status = first.client.get_worker(GetWorkerRequest { worker_id: id.clone() }).await.unwrap();
    assert_eq!(status.into_inner().worker.unwrap().status(), WorkerStatus::Running, "it is in the middle");

    first.kill().await;
    assert!(events.message().await.is_err(), "the process is gone");

    let mut second = Program::start(&registry, directory.path()).await;
    let request = WatchWorkerRequest { worker_id: id.clone(), after_sequence: 0 };
    let mut events = second.client.watch_worker(request).await.unwrap().into_inner();
    let mut all = Vec::new();
    while let Some(response) = events.message().await.unwrap() {
        all.push(response.event.unwrap());
    }
    let kept: Vec<&WorkerEvent> = all.iter().filter(|event| event.sequence > 0).collect();
    let sequences: Vec<u64> = kept.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (1..=kept.len() as u64).collect::<Vec<_>>());
    let tools = kept.iter().filter(|event| matches!(body(event), Body::ToolStarted(_))).count();
    assert_eq!(tools, 1, "what was done is not done again");
    let Body::Finished(finished) = body(kept.last().unwrap()) else { panic!("{kept:?}") };
    let worker = finished.worker.clone().unwrap();
    assert_eq!((worker.status(), worker.stop_reason()), (WorkerStatus::Completed, StopReason::Finished));
    assert_eq!((worker.result.as_str(), worker.takeovers), ("Done after all.", 1));
    assert_eq!(worker.usage.unwrap().turns, 2);

    assert!(second.terminate().await.success(), "a drain ends well");
    registry.stop().await;
}

const FAMILY: &str = r#"
rules:
  - when: {agent: task, turn: 1}
    do:
      - call: {tool: AgentTool, arguments: {description: "look", subagent_type: quick_task, prompt: "Look."}}
  - when: {agent: task, turn: 2}
    do:
      - text: "{{last}}"
  - when: {agent: quick_task}
    do:
      - delay: 1500ms
      - text: "looked"
"#;

#[tokio::test]
async fn a_parent_that_is_taken_over_finds_the_child_that_it_spawned_before() {
    let registry = Registry::start().await;
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("script.yaml"), FAMILY).unwrap();
    let mut first = Program::start(&registry, directory.path()).await;
    let request = SpawnStreamRequest { spawn: Some(call("task", "Go.")) };
    let mut events = first.client.spawn_stream(request).await.unwrap().into_inner();
    let spawned = loop {
        let event = events.message().await.unwrap().unwrap().event.unwrap();
        if let Body::ChildSpawned(child) = body(&event) {
            break (event.worker_id.clone(), child.worker_id.clone());
        }
    };
    first.kill().await;

    let mut second = Program::start(&registry, directory.path()).await;
    let (id, child) = spawned;
    let request = WatchWorkerRequest { worker_id: id, after_sequence: 0 };
    let mut events = second.client.watch_worker(request).await.unwrap().into_inner();
    let mut children = Vec::new();
    let mut parent = None;
    while let Some(response) = events.message().await.unwrap() {
        match response.event.unwrap().body.unwrap() {
            Body::ChildSpawned(child) => children.push(child.worker_id),
            Body::Finished(finished) => parent = finished.worker,
            _ => {}
        }
    }

    assert_eq!(children, std::slice::from_ref(&child), "one child, told once");
    let report: serde_json::Value = serde_json::from_str(&parent.unwrap().result).unwrap();
    assert_eq!(
        (report["task_id"].as_str(), report["result"].as_str()),
        (Some(child.as_str()), Some("looked"))
    );
    assert!(second.terminate().await.success());
    registry.stop().await;
}
