//! `kill -9` while a call is before the gate or behind it: it is not run again, it is shown as unknown, every record closes.

use std::fs;

use proto::executor::v1::{
    DecideProposalRequest, GetTreeRequest, ListProposalsRequest, Proposal, SpawnRequest, SpawnStreamRequest,
    SpawnStreamResponse, StopReason, ToolOutcome, WatchWorkerRequest, Worker, proposal::Decision,
    review_service_client::ReviewServiceClient, worker_event::Body,
};
use tempfile::TempDir;
use tests::{executor::call, executor_program::Program, refusal::reason, registry::Registry};
use tonic::{Code, Request, Streaming, transport::Channel};

const WRITES: &str = r#"
  - when: {agent: task, turn: 1}
    do:
      - call: {tool: write, arguments: {path: "notes.txt", content: "new"}}
"#;

const APPROVES: &str = r#"
  - when: {agent: reviewer}
    do:
      - submit: {data: {decision: approve, reason: "It is asked for."}}
"#;

/// Two people with credentials, so that nobody is anonymous; what a person has to decide is destructive.
const PEOPLE: &str = r#"
credentials:
  tokens:
    - {identity: ann, sha256: dfa603dfa2ef13eb23a30434d7feef5de20829cb6c5181623c8028a74eaf4971, roles: [spawner]}
    - {identity: bob, sha256: 97dd3707015dcf069cf73022ed7173b1165db6eff24b441cb57fd069a8c4e525, roles: [auditor, approver]}
"#;

/// The registry with `notes.txt` in its project, and a place for the executor's data.
struct Stage {
    registry: Registry,
    directory: TempDir,
    config: String,
}

impl Stage {
    async fn new(rules: &[&str], config: &str) -> Self {
        let registry = Registry::start().await;
        registry.write("notes.txt", "old");
        let directory = tempfile::tempdir().expect("a directory can be made");
        fs::write(directory.path().join("script.yaml"), format!("rules:{}", rules.concat()))
            .expect("it is there");
        Self { registry, directory, config: config.to_owned() }
    }

    async fn start(&self) -> Program {
        Program::start_with(&self.registry, self.directory.path(), &self.config).await
    }

    fn notes(&self) -> String {
        fs::read_to_string(self.registry.project("notes.txt")).expect("it is there")
    }

    async fn end(self, program: Program) {
        assert!(program.terminate().await.success(), "a drain ends well");
        self.registry.stop().await;
    }
}

fn by<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !token.is_empty() {
        let value = format!("Bearer {token}").parse().expect("a token is a header");
        request.metadata_mut().insert("authorization", value);
    }
    request
}

type Events = Streaming<SpawnStreamResponse>;

async fn follow(program: &mut Program, token: &str, agent: &str) -> Events {
    let spawn = SpawnStreamRequest { spawn: Some(SpawnRequest { background: true, ..call(agent, "Go.") }) };
    program.client.spawn_stream(by(token, spawn)).await.expect("the services answer").into_inner()
}

/// Waits for a state of the worker's proposal.
async fn until(events: &mut Events, fits: impl Fn(&Proposal) -> bool) -> Proposal {
    loop {
        let event = events
            .message()
            .await
            .expect("the services answer")
            .expect("it comes before the end")
            .event
            .expect("it is there");
        if let Some(Body::Review(review)) = event.body
            && let Some(proposal) = review.proposal.filter(&fits)
        {
            return proposal;
        }
    }
}

/// Looks until a reviewer runs below the session.
async fn until_reviewed(program: &mut Program, session: &str) {
    let request = GetTreeRequest { session_id: session.to_owned(), ..GetTreeRequest::default() };
    loop {
        let tree = program.client.get_tree(request.clone()).await.expect("the services answer").into_inner();
        if tree.workers.iter().any(|worker| worker.agent == "reviewer" && worker.start_time.is_some()) {
            return;
        }
    }
}

/// The closed record of a worker, and what became of its calls.
async fn ended(program: &mut Program, token: &str, id: &str) -> (Worker, Vec<ToolOutcome>) {
    let request = WatchWorkerRequest { worker_id: id.to_owned(), after_sequence: 0 };
    let mut events =
        program.client.watch_worker(by(token, request)).await.expect("the services answer").into_inner();
    let (mut worker, mut outcomes) = (None, Vec::new());
    while let Some(response) = events.message().await.expect("the services answer") {
        match response.event.expect("it is there").body.expect("it is there") {
            Body::ToolFinished(finished) => outcomes.push(finished.outcome()),
            Body::Finished(finished) => worker = finished.worker,
            _ => {}
        }
    }
    (worker.expect("it has ended"), outcomes)
}

async fn proposals(channel: &Channel, token: &str) -> Vec<Proposal> {
    let request = by(token, ListProposalsRequest::default());
    ReviewServiceClient::new(channel.clone())
        .list_proposals(request)
        .await
        .expect("the services answer")
        .into_inner()
        .proposals
}

/// What holds after the restart, however far the call had come: lost, unknown, and everything below closed. Answers how its
/// reviewers ended.
async fn is_lost(program: &mut Program, token: &str, session: &str) -> Vec<StopReason> {
    let (worker, outcomes) = ended(program, token, session).await;
    assert_eq!(worker.stop_reason(), StopReason::Lost, "{worker:?}");
    assert_eq!(outcomes, [ToolOutcome::Unknown]);
    assert!(worker.close_time.is_some() && worker.error.contains("unknown"), "{}", worker.error);
    let tree = GetTreeRequest { session_id: session.to_owned(), ..GetTreeRequest::default() };
    let below =
        program.client.get_tree(by(token, tree)).await.expect("the services answer").into_inner().workers;
    let mut reviewers = Vec::new();
    for reviewer in below.iter().filter(|worker| worker.agent == "reviewer") {
        reviewers.push(ended(program, token, &reviewer.id).await.0.stop_reason());
    }
    let tree = GetTreeRequest { session_id: session.to_owned(), ..GetTreeRequest::default() };
    let root = program
        .client
        .get_tree(by(token, tree))
        .await
        .expect("the services answer")
        .into_inner()
        .root
        .expect("it is there");
    assert_eq!(root.open_workers, 0);
    reviewers
}

#[tokio::test]
async fn a_call_whose_review_was_running_is_not_run_after_the_restart() {
    let slow = "\n  - when: {agent: reviewer}\n    do:\n      - delay: 100s\n      - text: \"late\"\n";
    let stage = Stage::new(&[WRITES, slow], "{}").await;
    let mut first = stage.start().await;
    let mut events = follow(&mut first, "", "task").await;
    let pending = until(&mut events, |_| true).await;
    until_reviewed(&mut first, &pending.session_id).await;

    first.kill().await;
    let mut second = stage.start().await;

    let reviewers = is_lost(&mut second, "", &pending.session_id).await;
    assert_eq!(reviewers, [StopReason::Lost], "it is not run again: nobody waits for what it decides");
    let after = proposals(&second.channel, "").await;
    assert_eq!((after.len(), after[0].decision()), (1, Decision::Rejected), "{after:?}");
    assert!(after[0].execute_time.is_none() && stage.notes() == "old");
    stage.end(second).await;
}

#[tokio::test]
async fn a_call_that_was_approved_and_had_not_begun_is_not_run_after_the_restart() {
    let reviewer = "\n  - when: {agent: reviewer}\n    do:\n      - delay: 500ms\n      - submit: {data: {decision: approve, reason: \"Yes.\"}}\n";
    let rival = "\n  - when: {agent: quick_task}\n    do:\n      - delay: 10s\n      - text: \"late\"\n";
    let stage = Stage::new(&[WRITES, reviewer, rival], "limits: {max_running: 1}\n").await;
    let mut first = stage.start().await;
    let mut events = follow(&mut first, "", "task").await;
    until(&mut events, |_| true).await;
    // It has given its slot back. The rival takes it, so that the approved call waits.
    let mut rival = follow(&mut first, "", "quick_task").await;
    while !matches!(rival.message().await.unwrap().unwrap().event.unwrap().body, Some(Body::TurnStarted(_))) {
    }
    let approved = until(&mut events, |proposal| proposal.decision() == Decision::Approved).await;
    assert!(approved.execute_time.is_none());

    first.kill().await;
    let mut second = stage.start().await;

    let reviewers = is_lost(&mut second, "", &approved.session_id).await;
    assert_eq!(reviewers, [StopReason::Finished], "it had decided");
    let after = proposals(&second.channel, "").await;
    assert_eq!((after.len(), after[0].decision()), (1, Decision::Approved), "{after:?}");
    assert!(after[0].execute_time.is_none() && stage.notes() == "old", "it never ran");
    second.kill().await;
    stage.registry.stop().await;
}

#[tokio::test]
async fn a_call_that_ran_when_the_executor_died_is_not_repeated() {
    // It tells that it runs through one pipe, and waits at another.
    let runs = r#"
  - when: {agent: task, turn: 1}
    do:
      - call: {tool: bash, arguments: {command: "echo ran >> count; echo ran > began; cat wait"}}
"#;
    let config = format!("{PEOPLE}tools: {{bash: true, timeouts: {{bash: 100s}}}}\n");
    let stage = Stage::new(&[runs, APPROVES], &config).await;
    for pipe in ["began", "wait"] {
        rustix::fs::mkfifoat(rustix::fs::CWD, stage.registry.project(pipe), rustix::fs::Mode::RWXU).unwrap();
    }
    let mut first = stage.start().await;
    let mut events = follow(&mut first, "ann-token", "task").await;
    let approved = until(&mut events, |proposal| proposal.decision() == Decision::Approved).await;
    let began = stage.registry.project("began");
    let said = tokio::task::spawn_blocking(move || fs::read_to_string(began)).await.unwrap().unwrap();
    assert_eq!(said, "ran\n", "it runs when the executor dies");

    first.kill().await;
    let mut second = stage.start().await;

    is_lost(&mut second, "ann-token", &approved.session_id).await;
    assert_eq!(fs::read_to_string(stage.registry.project("count")).unwrap(), "ran\n", "it ran once");
    let after = proposals(&second.channel, "bob-token").await;
    assert!(after[0].execute_time.is_some() && after.len() == 1, "{after:?}");
    stage.end(second).await;
}

#[tokio::test]
async fn a_decision_that_comes_after_the_restart_lets_nothing_run() {
    let config = format!(
        "{PEOPLE}tools: {{classes: {{write: destructive}}}}\nlimits: {{permission_mode: dual-sign}}\n"
    );
    let stage = Stage::new(&[WRITES, APPROVES], &config).await;
    let mut first = stage.start().await;
    let mut events = follow(&mut first, "ann-token", "task").await;
    let awaiting = until(&mut events, |proposal| proposal.awaits_person).await;

    first.kill().await;
    let mut second = stage.start().await;

    is_lost(&mut second, "ann-token", &awaiting.session_id).await;
    let decide = DecideProposalRequest {
        proposal_id: awaiting.id.clone(),
        decision: Decision::Approved.into(),
        reason: "Fine.".to_owned(),
        digest: awaiting.digest.clone(),
    };
    let mut reviews = ReviewServiceClient::new(second.channel.clone());
    let late = reviews.decide_proposal(by("bob-token", decide)).await.unwrap_err();
    reason(&late, Code::FailedPrecondition, "NOT_AWAITING_PERSON");
    let after = proposals(&second.channel, "bob-token").await;
    assert_eq!((after[0].decision(), after[0].awaits_person), (Decision::Rejected, false));
    assert_eq!(stage.notes(), "old");
    drop(reviews);
    stage.end(second).await;
}
