//! How workers end: by themselves, by their callers, by a stop, by a drain, and once for identical calls.

use std::time::Duration;

use executor_svc::{
    limits::Bound,
    model::config::{Kind, Provider},
};
use proto::executor::v1::{
    Budget, GetWorkerRequest, SpawnRequest, StopReason, StopWorkerRequest, WatchWorkerRequest, Worker,
    WorkerStatus, worker_event::Body,
};
use service_kit::config::Span;
use tests::{
    executor::{Executor, body, call},
    openai::OpenAi,
    refusal::reason,
    registry::Registry,
};
use tonic::{Code, Request};

const OK: &str = "rules:\n  - do:\n      - text: \"ok\"\n";

/// An executor whose model never answers, and the model.
async fn silent(registry: &Registry) -> (Executor, OpenAi) {
    let model = OpenAi::start([]).await;
    let executor = Executor::start_with(registry, OK, |config| {
        let mut provider = Provider::new(Kind::Openai);
        provider.base_url = Some(model.base_url.clone());
        config.models.providers.insert("local".to_owned(), provider);
        config.models.default = Some("local/silent".to_owned());
        config.drain.timeout = Span::seconds(0);
    })
    .await;
    (executor, model)
}

/// Waits for a worker's end by its events.
async fn end_of(executor: &mut Executor, id: &str) -> Worker {
    let request = WatchWorkerRequest { worker_id: id.to_owned(), after_sequence: 0 };
    let mut events = executor.client.watch_worker(request).await.expect("it is there").into_inner();
    while let Some(response) = events.message().await.expect("the stream does not fail") {
        if let Some(Body::Finished(finished)) = response.event.unwrap_or_default().body {
            return finished.worker.expect("the end comes with the record");
        }
    }
    panic!("the events end without an end of the worker")
}

#[tokio::test]
async fn a_caller_who_goes_away_stops_its_worker() {
    let registry = Registry::start().await;
    let (mut executor, model) = silent(&registry).await;
    let mut events = executor.follow(call("task", "Go.")).await;
    let accepted = events.next().await.unwrap();
    model.asked().await;

    drop(events);

    let worker = end_of(&mut executor, &accepted.worker_id).await;
    assert_eq!((worker.status(), worker.stop_reason()), (WorkerStatus::Killed, StopReason::CallerGone));
    executor.stop().await;
}

#[tokio::test]
async fn a_deadline_of_the_call_stops_its_worker() {
    let registry = Registry::start().await;
    let (mut executor, model) = silent(&registry).await;
    let mut request = Request::new(SpawnRequest { root_id: "chat".to_owned(), ..call("task", "Go.") });
    request.set_timeout(Duration::from_millis(700));

    let status = executor.client.spawn(request).await.unwrap_err();

    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
    model.asked().await;
    let listed = proto::executor::v1::ListWorkersRequest::default();
    let workers = executor.client.list_workers(listed).await.unwrap().into_inner().workers;
    let worker = end_of(&mut executor, &workers[0].id).await;
    assert_eq!(worker.stop_reason(), StopReason::CallerGone);
    executor.stop().await;
}

#[tokio::test]
async fn a_background_worker_outlives_its_call() {
    let registry = Registry::start().await;
    let mut executor =
        Executor::start(&registry, "rules:\n  - do:\n      - delay: 300ms\n      - text: \"late\"\n").await;

    let request = SpawnRequest { background: true, ..call("task", "Go.") };
    let started = executor.spawn(request).await.unwrap().worker.unwrap();

    assert!(matches!(started.status(), WorkerStatus::Pending | WorkerStatus::Running), "{started:?}");
    let worker = end_of(&mut executor, &started.id).await;
    assert_eq!(worker.result, "late");
    assert!(worker.background);
    executor.stop().await;
}

const PARENT: &str = r#"
rules:
  - when: {agent: task}
    do:
      - call: {tool: AgentTool, arguments: {description: "wait", subagent_type: quick_task, prompt: "Wait."}}
  - do:
      - delay: 60s
      - text: "never"
"#;

#[tokio::test]
async fn a_stop_reaches_everything_below_and_answers_with_a_receipt() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, PARENT).await;
    let mut events = executor.follow(call("task", "Go.")).await;
    let spawned = events.until(|body| matches!(body, Body::ChildSpawned(_))).await;
    let Body::ChildSpawned(child) = body(&spawned).clone() else { panic!("just seen") };

    let request = StopWorkerRequest {
        worker_id: spawned.worker_id.clone(),
        reason: "enough".to_owned(),
        wait: Some(prost_types::Duration { seconds: 30, nanos: 0 }),
    };
    let receipt = executor.client.stop_worker(request.clone()).await.unwrap().into_inner();

    let reached: Vec<(&str, WorkerStatus)> =
        receipt.entries.iter().map(|entry| (entry.worker_id.as_str(), entry.after())).collect();
    let killed = WorkerStatus::Killed;
    assert_eq!(reached, [(spawned.worker_id.as_str(), killed), (child.worker_id.as_str(), killed)]);
    for id in [&spawned.worker_id, &child.worker_id] {
        let worker = executor.worker(id).await;
        assert_eq!(worker.stop_reason(), StopReason::Stopped);
        assert!(worker.error.contains("enough"), "{}", worker.error);
    }
    let again = executor.client.stop_worker(request).await.unwrap().into_inner();
    assert_eq!(again.entries[0].before(), killed);
    executor.stop().await;
}

#[tokio::test]
async fn identical_calls_run_once_while_the_first_runs_and_after_it() {
    let registry = Registry::start().await;
    let mut executor =
        Executor::start(&registry, "rules:\n  - do:\n      - delay: 200ms\n      - text: \"once\"\n").await;
    let request = SpawnRequest { root_id: "chat".to_owned(), ..call("task", "Do  it.") };
    let spaced = SpawnRequest { prompt: " Do it. ".to_owned(), ..request.clone() };

    let (mut one, mut two) = (executor.client.clone(), executor.client.clone());
    let (first, second) = tokio::join!(one.spawn(request.clone()), two.spawn(spaced));
    let later = executor.spawn(request.clone()).await.unwrap();
    let bypass = SpawnRequest { bypass_dedupe: true, ..request };
    let again = executor.spawn(bypass).await.unwrap();

    let (first, second) = (first.unwrap().into_inner(), second.unwrap().into_inner());
    assert!(first.deduplicated != second.deduplicated, "one of them joined the other");
    let id = first.worker.unwrap().id;
    assert_eq!(second.worker.unwrap().id, id);
    assert_eq!(later.worker.as_ref().unwrap().id, id);
    assert!(later.deduplicated);
    assert!(later.hint.contains("dispatched already"), "{}", later.hint);
    assert!(!again.deduplicated);
    assert_ne!(again.worker.unwrap().id, id);
    executor.stop().await;
}

#[tokio::test]
async fn anonymous_calls_without_a_root_are_not_merged() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, OK).await;

    let first = executor.spawn(call("task", "Go.")).await.unwrap();
    let second = executor.spawn(call("task", "Go.")).await.unwrap();

    assert_ne!(first.worker.unwrap().id, second.worker.unwrap().id);
    executor.stop().await;
}

#[tokio::test]
async fn a_drain_refuses_new_work_lets_workers_finish_and_stops_the_rest() {
    let registry = Registry::start().await;
    let script = "rules:\n  - when: {agent: quick_task}\n    do:\n      - delay: 500ms\n      - text: \"made it\"\n  - do:\n      - delay: 60s\n      - text: \"never\"\n";
    let mut executor = Executor::start_with(&registry, script, |config| {
        config.drain.timeout = Span(Duration::from_millis(1500));
    })
    .await;
    let mut quick = executor.follow(call("quick_task", "Go.")).await;
    let mut slow = executor.follow(call("task", "Go.")).await;
    let begins = |body: &Body| matches!(body, Body::TurnStarted(_));
    quick.until(begins).await;
    let slow_id = slow.until(begins).await.worker_id;

    let watched = WatchWorkerRequest { worker_id: slow_id, after_sequence: 1_000 };
    let mut watch = executor.client.watch_worker(watched).await.unwrap().into_inner();

    executor.shutdown.begin();
    let status = executor.spawn(call("task", "Too late.")).await.unwrap_err();

    reason(&status, Code::Unavailable, "DRAINING");
    reason(&watch.message().await.unwrap_err(), Code::Unavailable, "DRAINING");
    let end = |event| match body(&event) {
        Body::Finished(finished) => finished.worker.clone().unwrap(),
        other => panic!("{other:?}"),
    };
    let quick = end(quick.until(|body| matches!(body, Body::Finished(_))).await);
    let slow = end(slow.until(|body| matches!(body, Body::Finished(_))).await);
    assert_eq!(quick.result, "made it");
    assert_eq!((slow.status(), slow.stop_reason()), (WorkerStatus::Killed, StopReason::Drained));
    executor.stop().await;
}

#[tokio::test]
async fn turns_and_time_that_are_used_up_end_a_worker_with_what_there_is() {
    let registry = Registry::start().await;
    let script = r#"
rules:
  - when: {agent: task, turn: 2}
    do:
      - text: "as far as I got"
  - when: {agent: task}
    do:
      - call: {tool: ls, arguments: {path: "."}}
  - when: {agent: quick_task, turn: 1}
    do:
      - text: "begun"
      - call: {tool: ls, arguments: {path: "."}}
  - do:
      - delay: 60s
      - text: "never"
"#;
    let mut executor = Executor::start(&registry, script).await;

    let budget = |turns, seconds: Option<i64>| {
        let wall_time = seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 });
        Some(Budget { turns, tokens: None, wall_time, spawns: None })
    };
    let request = SpawnRequest { budget: budget(Some(1), None), ..call("task", "Go.") };
    let worker = executor.spawn(request).await.unwrap().worker.unwrap();
    assert_eq!((worker.status(), worker.stop_reason()), (WorkerStatus::Failed, StopReason::MaxTurns));
    assert_eq!((worker.result.as_str(), worker.partial), ("as far as I got", true));

    let request = SpawnRequest { budget: budget(None, Some(1)), ..call("quick_task", "Go.") };
    let worker = executor.spawn(request).await.unwrap().worker.unwrap();
    assert_eq!((worker.status(), worker.stop_reason()), (WorkerStatus::Failed, StopReason::Timeout));
    assert_eq!((worker.result.as_str(), worker.partial), ("begun", true));
    executor.stop().await;
}

#[tokio::test]
async fn a_worker_that_waits_too_long_for_a_slot_fails() {
    let registry = Registry::start().await;
    let slow = "rules:\n  - do:\n      - delay: 60s\n      - text: \"never\"\n";
    let mut executor = Executor::start_with(&registry, slow, |config| {
        config.limits.max_running = Bound::Of(1);
        config.limits.queue_wait = Bound::Of(Span(Duration::from_millis(300)));
        config.drain.timeout = Span::seconds(0);
    })
    .await;
    let mut first = executor.follow(call("task", "One.")).await;
    first.until(|body| matches!(body, Body::TurnStarted(_))).await;

    let second = executor.spawn(call("task", "Two.")).await.unwrap().worker.unwrap();

    assert_eq!((second.status(), second.stop_reason()), (WorkerStatus::Failed, StopReason::Overloaded));
    assert!(second.start_time.is_none(), "it never ran");
    drop(first);
    executor.stop().await;
}

#[tokio::test]
async fn records_outlive_their_executor() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, OK).await;
    let before = executor.spawn(call("task", "Go.")).await.unwrap().worker.unwrap();
    executor.stop().await;

    let mut executor = Executor::start(&registry, OK).await;

    let request = GetWorkerRequest { worker_id: before.id.clone() };
    let after = executor.client.get_worker(request).await.unwrap().into_inner().worker.unwrap();
    assert_eq!(after, before);
    executor.stop().await;
}
