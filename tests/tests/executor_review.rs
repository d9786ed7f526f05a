//! The review gate from the outside: what is approved changes the file, what is not does not, and under `dual-sign` another
//! person has the last word.

use std::fs;

use executor_svc::{Config, definition::PermissionMode, tool::Class};
use proto::executor::v1::{
    DecideProposalRequest, GetTreeRequest, ListProposalsRequest, Proposal, SpawnRequest, SpawnStreamRequest,
    StopReason, ToolClass, ToolOutcome, Worker, WorkerEvent, proposal::Decision,
    review_service_client::ReviewServiceClient, worker_event::Body,
};
use service_kit::{
    auth::{Credentials, Role, StaticToken},
    config::Span,
};
use tests::{
    executor::{Executor, body, call},
    refusal::reason,
    registry::Registry,
    repository,
};
use tokio::process::Command;
use tonic::{Code, Request, transport::Channel};

/// SHA-256 of `ann-token`, of `bob-token` and of `cem-token`.
const ANN: &str = "dfa603dfa2ef13eb23a30434d7feef5de20829cb6c5181623c8028a74eaf4971";
const BOB: &str = "97dd3707015dcf069cf73022ed7173b1165db6eff24b441cb57fd069a8c4e525";
const CEM: &str = "6250e01ca3b1d5b434309582ac3d8488cb518ff0426dc46dc9cf1373c5de645c";

/// A worker that writes, and tells what became of it; a reviewer that says `decision`.
fn script(decision: &str) -> String {
    format!(
        r#"
rules:
  - when: {{agent: task, turn: 1}}
    do:
      - text: "I write it down."
      - call: {{tool: write, arguments: {{path: "notes.txt", content: "new"}}}}
  - when: {{agent: task, turn: 2}}
    do:
      - text: "{{{{last}}}}"
  - when: {{agent: reviewer, turn: 1, last: "The exact arguments"}}
    do:
      - call: {{tool: read, arguments: {{path: "notes.txt"}}}}
  - when: {{agent: reviewer, turn: 2, last: "old"}}
    do:
      - submit: {{data: {{decision: {decision}, reason: "It says old."}}}}
"#
    )
}

async fn with_notes() -> Registry {
    let registry = Registry::start().await;
    registry.write("notes.txt", "old");
    registry
}

fn notes(registry: &Registry) -> String {
    fs::read_to_string(registry.project("notes.txt")).expect("the notes are there")
}

/// The proposals of the events, as they came.
fn reviews(events: &[WorkerEvent]) -> Vec<Proposal> {
    let reviews = events.iter().filter_map(|event| match body(event) {
        Body::Review(review) => review.proposal.clone(),
        _ => None,
    });
    reviews.collect()
}

fn outcome(events: &[WorkerEvent]) -> (ToolOutcome, String) {
    let finished = events.iter().find_map(|event| match body(event) {
        Body::ToolFinished(finished) => Some((finished.outcome(), finished.preview.clone())),
        _ => None,
    });
    finished.expect("a call ended")
}

fn closed(events: &[WorkerEvent]) -> Worker {
    match body(events.last().expect("there are events")) {
        Body::Finished(finished) => finished.worker.clone().expect("an end has a record"),
        other => panic!("{other:?} is no end"),
    }
}

#[tokio::test]
async fn an_approved_write_changes_the_file() {
    let registry = with_notes().await;
    let mut executor = Executor::start_with(&registry, &script("approve"), |config| {
        config.tools.blast_radius = [("wri*".to_owned(), "single_device".to_owned())].into();
    })
    .await;

    let events = executor.follow(call("task", "Write it down.")).await.rest().await;

    assert_eq!(notes(&registry), "new");
    let (outcome, preview) = outcome(&events);
    assert_eq!(outcome, ToolOutcome::Ok, "{preview}");
    let asked = reviews(&events);
    let decisions: Vec<Decision> = asked.iter().map(Proposal::decision).collect();
    assert_eq!(decisions, [Decision::Pending, Decision::Approved]);
    let worker = closed(&events);
    assert_eq!(worker.stop_reason(), StopReason::Finished, "{}", worker.error);

    let mut client = ReviewServiceClient::new(executor.authorised().await);
    let request = ListProposalsRequest { session_id: worker.id.clone(), ..ListProposalsRequest::default() };
    let listed = client.list_proposals(request).await.unwrap().into_inner().proposals;
    let [proposal] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!(proposal.target, r#"{"path":"notes.txt","content":"new"}"#);
    assert_eq!((proposal.action.as_str(), proposal.tool_class()), ("write", ToolClass::Write));
    assert_eq!(
        (proposal.reason.as_str(), proposal.blast_radius.as_str()),
        ("I write it down.", "single_device")
    );
    assert_eq!(
        (proposal.operator.as_str(), proposal.decision_reason.as_str()),
        ("anonymous", "It says old.")
    );
    assert!(proposal.decide_time.is_some() && proposal.execute_time.is_some() && !proposal.awaits_person);
    let reviewer = executor.worker(&proposal.reviewer).await;
    assert_eq!((reviewer.agent.as_str(), reviewer.parent_id.as_str()), ("reviewer", worker.id.as_str()));
    assert_eq!(reviewer.usage.unwrap().tool_calls, 2, "it read, and it submitted");
    drop(client);
    executor.stop().await;
}

#[tokio::test]
async fn a_rejected_write_leaves_the_file_and_the_worker_goes_on() {
    let registry = with_notes().await;
    let mut executor = Executor::start(&registry, &script("reject")).await;

    let events = executor.follow(call("task", "Write it down.")).await.rest().await;

    assert_eq!(notes(&registry), "old");
    assert_eq!(outcome(&events), (ToolOutcome::Rejected, "review rejected: It says old.".to_owned()));
    let worker = closed(&events);
    assert_eq!(worker.stop_reason(), StopReason::Finished);
    assert_eq!(worker.result, "review rejected: It says old.");
    let tree = GetTreeRequest { session_id: worker.id, ..GetTreeRequest::default() };
    let tree = executor.client.get_tree(tree).await.unwrap().into_inner();
    let agents: Vec<&str> = tree.workers.iter().map(|worker| worker.agent.as_str()).collect();
    assert_eq!(agents, ["task", "reviewer"]);
    executor.stop().await;
}

#[tokio::test]
async fn proposals_are_listed_in_pages_that_belong_to_their_filters() {
    let registry = with_notes().await;
    let mut executor = Executor::start(&registry, &script("reject")).await;
    for prompt in ["one", "two", "three"] {
        executor.spawn(call("task", prompt)).await.unwrap();
    }
    let mut client = ReviewServiceClient::new(executor.authorised().await);
    let page = |page_token: &str, decision: Decision| ListProposalsRequest {
        page_size: 2,
        page_token: page_token.to_owned(),
        decision: decision.into(),
        ..ListProposalsRequest::default()
    };

    let first = client.list_proposals(page("", Decision::Rejected)).await.unwrap().into_inner();
    let token = first.next_page_token.clone();
    let second = client.list_proposals(page(&token, Decision::Rejected)).await.unwrap().into_inner();
    let other = client.list_proposals(page(&token, Decision::Approved)).await.unwrap_err();
    let approved = client.list_proposals(page("", Decision::Approved)).await.unwrap().into_inner();

    assert_eq!((first.proposals.len(), second.proposals.len()), (2, 1));
    assert!(second.next_page_token.is_empty());
    let mut times: Vec<_> =
        first.proposals.iter().chain(&second.proposals).map(|one| one.id.clone()).collect();
    times.reverse();
    assert!(times.is_sorted(), "newest first: {times:?}");
    reason(&other, Code::InvalidArgument, "INVALID_REQUEST");
    assert!(approved.proposals.is_empty());
    drop(client);
    executor.stop().await;
}

/// `ann` spawns and may decide, `bob` decides, `cem` does not; every write is destructive and needs two people.
fn two_people(config: &mut Config) {
    let token = |identity: &str, sha256: &str, roles: &[Role]| StaticToken {
        identity: identity.to_owned(),
        sha256: sha256.to_owned(),
        roles: roles.to_vec(),
        workspaces: Vec::new(),
        spawns: None,
    };
    config.credentials = Credentials {
        tokens: vec![
            token("ann", ANN, &[Role::Spawner, Role::Approver]),
            token("bob", BOB, &[Role::Auditor, Role::Approver]),
            token("cem", CEM, &[Role::Spawner, Role::Auditor]),
        ],
    };
    config.tools.classes = [("write".to_owned(), Class::Destructive)].into();
    config.limits.permission_mode = PermissionMode::DualSign;
}

fn by<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse().expect("a token is a header");
    request.metadata_mut().insert("authorization", value);
    request
}

/// Events of a spawn by `ann`, up to where a person is awaited, and the rest of them.
async fn until_awaited(
    executor: &mut Executor,
) -> (Proposal, tonic::Streaming<proto::executor::v1::SpawnStreamResponse>) {
    let spawn = SpawnStreamRequest { spawn: Some(call("task", "Write it down.")) };
    let response = executor.client.spawn_stream(by("ann-token", spawn)).await;
    let mut events = response.expect("the spawn is accepted").into_inner();
    loop {
        let response = events.message().await.expect("the stream does not fail");
        let event = response.expect("a person is awaited before the end").event;
        if let Some(Body::Review(review)) = event.and_then(|event| event.body)
            && let Some(proposal) = review.proposal.filter(|proposal| proposal.awaits_person)
        {
            return (proposal, events);
        }
    }
}

async fn end_of(mut events: tonic::Streaming<proto::executor::v1::SpawnStreamResponse>) -> Worker {
    loop {
        let response = events.message().await.expect("the stream does not fail");
        let event = response.expect("the end comes").event;
        if let Some(Body::Finished(finished)) = event.and_then(|event| event.body) {
            return finished.worker.expect("an end has a record");
        }
    }
}

fn decide(proposal: &Proposal, decision: Decision, digest: &str) -> DecideProposalRequest {
    DecideProposalRequest {
        proposal_id: proposal.id.clone(),
        decision: decision.into(),
        reason: "I looked.".to_owned(),
        digest: digest.to_owned(),
    }
}

async fn review_client(executor: &Executor) -> ReviewServiceClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{}", executor.address)).expect("an address is a URL");
    ReviewServiceClient::new(endpoint.connect().await.expect("the executor answers"))
}

#[tokio::test]
async fn under_dual_sign_another_person_has_the_last_word() {
    let registry = with_notes().await;
    let mut executor = Executor::start_with(&registry, &script("approve"), two_people).await;
    let (proposal, events) = until_awaited(&mut executor).await;
    let mut client = review_client(&executor).await;
    assert_eq!((proposal.decision(), notes(&registry).as_str()), (Decision::Pending, "old"));
    let approve = decide(&proposal, Decision::Approved, &proposal.digest);

    let unknown = DecideProposalRequest { proposal_id: "proposal-0".to_owned(), ..approve.clone() };
    let unknown = client.decide_proposal(by("bob-token", unknown)).await.unwrap_err();
    let own = client.decide_proposal(by("ann-token", approve.clone())).await.unwrap_err();
    let other = decide(&proposal, Decision::Approved, &"0".repeat(64));
    let other = client.decide_proposal(by("bob-token", other)).await.unwrap_err();
    let silent = DecideProposalRequest { reason: String::new(), ..decide(&proposal, Decision::Rejected, "") };
    let silent = client.decide_proposal(by("bob-token", silent)).await.unwrap_err();
    let nobody = client.decide_proposal(approve.clone()).await.unwrap_err();
    let powerless = client.decide_proposal(by("cem-token", approve.clone())).await.unwrap_err();

    let metadata = reason(&unknown, Code::NotFound, "PROPOSAL_NOT_FOUND");
    assert_eq!(metadata["proposal_id"], "proposal-0");
    reason(&own, Code::PermissionDenied, "OWN_PROPOSAL");
    reason(&other, Code::Aborted, "DIGEST_MISMATCH");
    reason(&silent, Code::InvalidArgument, "INVALID_REQUEST");
    reason(&nobody, Code::Unauthenticated, "CREDENTIALS_REQUIRED");
    reason(&powerless, Code::PermissionDenied, "ROLE_REQUIRED");
    assert_eq!(notes(&registry), "old", "nothing has run yet");

    let decided = client.decide_proposal(by("bob-token", approve.clone())).await.unwrap().into_inner();
    let worker = end_of(events).await;
    let again = client.decide_proposal(by("bob-token", approve)).await.unwrap_err();

    let decided = decided.proposal.unwrap();
    assert_eq!((decided.decision(), decided.reviewer.as_str()), (Decision::Approved, "bob"));
    assert_eq!(worker.stop_reason(), StopReason::Finished, "{}", worker.error);
    assert_eq!(notes(&registry), "new");
    reason(&again, Code::FailedPrecondition, "NOT_AWAITING_PERSON");
    drop(client);
    executor.stop().await;
}

/// One worker of `ann`'s to its end, and its only proposal.
async fn decided_without_a_person(
    decision: &str,
    change: impl FnOnce(&mut Config),
) -> (Worker, Proposal, String) {
    let registry = with_notes().await;
    let mut executor = Executor::start_with(&registry, &script(decision), change).await;
    let spawn = by("ann-token", call("task", "Write it down."));
    let worker = executor
        .client
        .spawn(spawn)
        .await
        .expect("the services answer")
        .into_inner()
        .worker
        .expect("it is there");
    let mut client = review_client(&executor).await;
    let listed = client
        .list_proposals(by("bob-token", ListProposalsRequest::default()))
        .await
        .expect("the services answer");
    let mut proposals = listed.into_inner().proposals;
    assert_eq!(proposals.len(), 1, "{proposals:?}");
    drop(client);
    executor.stop().await;
    (worker, proposals.remove(0), notes(&registry))
}

#[tokio::test]
async fn under_dual_sign_nobody_is_asked_for_what_can_be_undone_or_is_rejected_already() {
    let (worker, proposal, notes) = decided_without_a_person("approve", |config| {
        two_people(config);
        config.tools.classes.clear();
    })
    .await;
    assert_eq!((worker.stop_reason(), notes.as_str()), (StopReason::Finished, "new"), "{}", worker.error);
    assert_eq!((proposal.tool_class(), proposal.decision()), (ToolClass::Write, Decision::Approved));
    assert!(proposal.reviewer.starts_with("worker-"), "{proposal:?}");

    let (worker, proposal, notes) = decided_without_a_person("reject", two_people).await;
    assert_eq!((worker.result.as_str(), notes.as_str()), ("review rejected: It says old.", "old"));
    assert_eq!((proposal.tool_class(), proposal.decision()), (ToolClass::Destructive, Decision::Rejected));
    assert!(proposal.reviewer.starts_with("worker-"), "{proposal:?}");
}

#[tokio::test]
async fn a_person_can_stop_what_a_reviewer_approved() {
    let registry = with_notes().await;
    let mut executor = Executor::start_with(&registry, &script("approve"), two_people).await;
    let (proposal, events) = until_awaited(&mut executor).await;
    let mut client = review_client(&executor).await;

    let reject = decide(&proposal, Decision::Rejected, &proposal.digest);
    client.decide_proposal(by("bob-token", reject)).await.unwrap();
    let worker = end_of(events).await;

    assert_eq!(worker.result, "review rejected: I looked.");
    assert_eq!(notes(&registry), "old");
    drop(client);
    executor.stop().await;
}

#[tokio::test]
async fn a_person_who_does_not_decide_in_time_has_rejected() {
    let registry = with_notes().await;
    let mut executor = Executor::start_with(&registry, &script("approve"), |config| {
        two_people(config);
        config.review.person_timeout = Span::seconds(0);
    })
    .await;

    let spawn = SpawnRequest { subagent_type: "task".to_owned(), ..call("task", "Write it down.") };
    let response = executor.client.spawn(by("ann-token", spawn)).await.unwrap().into_inner();

    assert_eq!(response.worker.unwrap().result, "review rejected: no person decided within 0s");
    assert_eq!(notes(&registry), "old");
    executor.stop().await;
}

#[tokio::test]
async fn the_command_line_shows_what_awaits_a_person_and_takes_the_decision() {
    let registry = with_notes().await;
    let mut executor = Executor::start_with(&registry, &script("approve"), two_people).await;
    let (proposal, events) = until_awaited(&mut executor).await;
    let (address, data) = (executor.address.to_string(), registry.directory.path().join("var"));
    let run = async |arguments: &[&str]| {
        let mut command = Command::new(repository::programs().join("executor-svc"));
        command.args(arguments).args(["--addr", &address, "--data"]).arg(&data).kill_on_drop(true);
        let output = command.output().await.expect("the program runs");
        (output.status.code(), repository::printed(&output))
    };

    let (shown, text) = run(&["proposals", "--awaiting"]).await;
    let (refused, refusal) = run(&["decide", &proposal.id, "--digest", "0", "--approve"]).await;
    let (decided, decision) = run(&["decide", &proposal.id, "--digest", &proposal.digest, "--approve"]).await;
    let worker = end_of(events).await;
    let (none, nothing) = run(&["proposals", "--awaiting"]).await;

    assert_eq!((shown, refused, decided, none), (Some(0), Some(2), Some(0), Some(0)), "{refusal}{decision}");
    for expected in [&proposal.id, &proposal.digest, "awaits a person", "write (destructive) of ann", "new"] {
        assert!(text.contains(expected), "`{expected}` in {text}");
    }
    assert!(refusal.contains("DIGEST_MISMATCH"), "{refusal}");
    assert!(decision.contains("approved") && decision.contains("local"), "{decision}");
    assert_eq!((nothing.as_str(), notes(&registry).as_str()), ("", "new"), "{}", worker.error);
    executor.stop().await;
}
