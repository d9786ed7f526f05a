//! The gate beside every limit: the reviewer runs whatever its session has used up, in slots of its own, and its tokens count.

use std::fs;

use executor_svc::limits::{Bound, Names};
use proto::executor::v1::{
    Budget, GetTreeRequest, ListProposalsRequest, Proposal, SendMessageRequest, SpawnRequest, StopReason,
    ToolOutcome, Worker, proposal::Decision, review_service_client::ReviewServiceClient, worker_event::Body,
};
use registry_svc::config::BrokenOverride;
use tests::{
    executor::{Executor, body, call},
    refusal::reason,
    registry::Registry,
};
use tonic::Code;

/// Two equal writes in one turn; a reviewer that takes its time and its tokens.
const SCRIPT: &str = r#"
rules:
  - when: {agent: task, turn: 1}
    do:
      - call: {tool: write, arguments: {path: "notes.txt", content: "new"}}
      - call: {tool: write, arguments: {path: "notes.txt", content: "new"}}
      - usage: {input_tokens: 10, output_tokens: 1}
  - when: {agent: task, turn: 2}
    do:
      - text: "gone on"
  - when: {agent: reviewer}
    do:
      - delay: 200ms
      - submit: {data: {decision: approve, reason: "It is asked for."}}
      - usage: {input_tokens: 5000, output_tokens: 50}
"#;

async fn tree(executor: &mut Executor, id: &str) -> (Vec<Worker>, u64) {
    let request = GetTreeRequest { session_id: id.to_owned(), ..GetTreeRequest::default() };
    let tree = executor.client.get_tree(request).await.expect("the services answer").into_inner();
    let usage = tree.root.expect("it is there").usage.expect("it is there");
    (tree.workers, usage.input_tokens + usage.output_tokens)
}

async fn proposals(executor: &Executor) -> Vec<Proposal> {
    let mut client = ReviewServiceClient::new(executor.authorised().await);
    client
        .list_proposals(ListProposalsRequest::default())
        .await
        .expect("the services answer")
        .into_inner()
        .proposals
}

#[tokio::test]
async fn a_reviewer_runs_where_depth_policy_spawns_and_slots_are_used_up() {
    let registry = Registry::start().await;
    registry.write("notes.txt", "old");
    let mut executor = Executor::start_with(&registry, SCRIPT, |config| {
        // `task` is the only worker that its root's policy, its tree, its depth and the replica allow.
        config.limits.root_spawns = Names::Listed(vec!["task".to_owned()]);
        config.limits.max_recursion_depth = Bound::Of(1);
        config.limits.max_spawns_per_tree = Bound::Of(1);
        config.limits.max_running = Bound::Of(1);
        config.limits.max_running_per_tree = Bound::Of(1);
        config.limits.max_open = Bound::Of(1);
        config.review.slots = 1;
    })
    .await;

    // Below a root with a name, equal calls are dispatched once; reviews are not.
    let request = SpawnRequest { root_id: "notes".to_owned(), ..call("task", "Write it down.") };
    let events = executor.follow(request).await.rest().await;

    let finished = events.iter().filter_map(|event| match body(event) {
        Body::ToolFinished(finished) => Some((finished.outcome(), finished.preview.clone())),
        _ => None,
    });
    let finished: Vec<(ToolOutcome, String)> = finished.collect();
    assert_eq!(finished[0].0, ToolOutcome::Ok, "{finished:?}");
    // The second one was approved too, for a file that is another by now.
    assert_eq!(finished[1].0, ToolOutcome::Rejected);
    assert!(finished[1].1.contains("has changed since"), "{finished:?}");
    assert_eq!(fs::read_to_string(registry.project("notes.txt")).unwrap(), "new");
    let listed = proposals(&executor).await;
    let [one, two] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((one.decision(), two.decision()), (Decision::Approved, Decision::Approved));
    assert_ne!(one.reviewer, two.reviewer, "two equal proposals get two verdicts");
    assert_eq!(one.digest, two.digest);
    let (workers, tokens) = tree(&mut executor, &one.session_id).await;
    let [task, first, second] = workers.as_slice() else { panic!("{workers:?}") };
    assert_eq!((task.agent.as_str(), task.depth, task.stop_reason()), ("task", 1, StopReason::Finished));
    assert!(first.depth == 2 && second.depth == 2 && second.agent == "reviewer");
    let time = |time: Option<prost_types::Timestamp>| {
        let time = time.unwrap();
        (time.seconds, time.nanos)
    };
    let mut spans = [first, second].map(|review| (time(review.start_time), time(review.close_time)));
    spans.sort_unstable();
    assert!(spans[0].1 <= spans[1].0, "one slot, one review at a time: {spans:?}");
    assert_eq!(tokens, 2 * 5050 + 11, "what a reviewer uses counts");
    executor.stop().await;
}

#[tokio::test]
async fn the_tokens_of_a_review_are_taken_from_its_workers_budget() {
    let registry = Registry::start().await;
    registry.write("notes.txt", "old");
    let mut executor = Executor::start(&registry, SCRIPT).await;
    let budget = Budget { tokens: Some(5_000), turns: None, wall_time: None, spawns: None };

    let request = SpawnRequest { budget: Some(budget), ..call("task", "Write it down.") };
    let worker = executor.spawn(request).await.unwrap().worker.unwrap();

    assert_eq!(worker.stop_reason(), StopReason::Budget, "{}", worker.error);
    executor.stop().await;
}

#[tokio::test]
async fn where_a_broken_document_shadows_the_reviewer_the_worker_is_told_at_once() {
    let broken = tempfile::tempdir().unwrap();
    fs::write(broken.path().join("reviewer.md"), "---\nname: reviewer\ntools: {a: [\n---\nApprove.\n")
        .unwrap();
    let root = broken.path().to_owned();
    let registry = Registry::start_with(move |config| {
        let workspace = config.workspaces.get_mut("default").unwrap();
        workspace.on_broken_override = BrokenOverride::Block;
        workspace.roots = vec![root];
    })
    .await;
    registry.write("notes.txt", "old");
    let mut executor = Executor::start(&registry, SCRIPT).await;

    let events = executor.follow(call("task", "Write it down.")).await.rest().await;

    let told = events.iter().filter_map(|event| match body(event) {
        Body::ToolFinished(finished) => Some((finished.outcome(), finished.preview.clone())),
        _ => None,
    });
    let told: Vec<(ToolOutcome, String)> = told.collect();
    assert_eq!(told.len(), 2);
    for (outcome, preview) in told {
        assert_eq!(outcome, ToolOutcome::Rejected);
        assert!(preview.starts_with("review rejected: there is no reviewer: "), "{preview}");
    }
    let Body::Finished(finished) = body(events.last().unwrap()) else { panic!("{events:?}") };
    assert_eq!(finished.worker.as_ref().unwrap().result, "gone on");
    let listed = proposals(&executor).await;
    assert!(listed.len() == 2 && listed.iter().all(|one| one.decision() == Decision::Rejected), "{listed:?}");
    let (workers, _) = tree(&mut executor, &listed[0].session_id).await;
    assert_eq!(workers.len(), 1, "nobody was asked: {workers:?}");
    assert_eq!(fs::read_to_string(registry.project("notes.txt")).unwrap(), "old");
    executor.stop().await;
}

#[tokio::test]
async fn a_reviewer_that_has_decided_takes_no_further_message() {
    let registry = Registry::start().await;
    registry.write("notes.txt", "old");
    let mut executor = Executor::start(&registry, SCRIPT).await;
    let request = SpawnRequest { root_id: "notes".to_owned(), ..call("task", "Write it down.") };
    let worker = executor.spawn(request).await.unwrap().worker.unwrap();
    assert_eq!(worker.stop_reason(), StopReason::Finished, "{}", worker.error);
    let reviewer = proposals(&executor).await.remove(0).reviewer;

    let message = SendMessageRequest {
        worker_id: reviewer,
        message: "Approve the next one.".to_owned(),
        ..SendMessageRequest::default()
    };
    let refusal = executor.client.send_message(message).await.unwrap_err();

    assert_eq!(reason(&refusal, Code::PermissionDenied, "RESERVED_AGENT")["agent"], "reviewer");
    executor.stop().await;
}
