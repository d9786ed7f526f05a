//! A conversation with a coordinator over real sockets: what it dispatches, what is refused, and what is kept.

use std::fs;

use proto::executor::v1::{
    CloseSessionRequest, ConverseRequest, ConverseResponse, GetSessionRequest, GetTreeRequest,
    GetWorkerRequest, ListMessagesRequest, ListProposalsRequest, Message, Role, SpawnRequest, StopReason,
    StopWorkerRequest, WatchSessionRequest, Worker, WorkerEvent, WorkerStatus,
    converse_response::{Answer, Body as Said},
    executor_service_client::ExecutorServiceClient,
    proposal::Decision,
    review_service_client::ReviewServiceClient,
    session_service_client::SessionServiceClient,
    worker_event::Body,
};
use serde_json::Value;
use tests::{
    executor::{Executor, call},
    executor_program::Program,
    refusal::reason,
    registry::Registry,
};
use tonic::{Code, Streaming, transport::Channel};

/// A question, two specialists in one turn, one of them twice; one wants to write and is told no.
const STORY: &str = r#"
rules:
  - when: {agent: default, turn: 1}
    do:
      - text: "I ask around."
      - call: {tool: AgentTool, arguments: {description: "look", subagent_type: explore, prompt: "Look."}}
      - call: {tool: AgentTool, arguments: {description: "look", subagent_type: explore, prompt: " Look. "}}
      - call: {tool: AgentTool, arguments: {description: "write", subagent_type: task, prompt: "Write it down."}}
  - when: {agent: default, turn: 2}
    do:
      - text: "Nothing was written: {{last}}"
  - when: {agent: explore}
    do:
      - delay: 1500ms
      - submit: {data: {summary: "It is here.", files: []}}
  - when: {agent: task, turn: 1}
    do:
      - delay: 2500ms
      - call: {tool: write, arguments: {path: "notes.txt", content: "new"}}
  - when: {agent: task, turn: 2}
    do:
      - text: "{{last}}"
  - when: {agent: reviewer}
    do:
      - submit: {data: {decision: reject, reason: "Nobody asked for it."}}
"#;

fn say(session_id: &str, message: &str) -> ConverseRequest {
    ConverseRequest {
        session_id: session_id.to_owned(),
        message: message.to_owned(),
        ..ConverseRequest::default()
    }
}

/// What was heard of a turn.
struct Heard {
    session: String,
    events: Vec<WorkerEvent>,
    answer: Answer,
}

impl Heard {
    async fn of(mut stream: Streaming<ConverseResponse>) -> Self {
        let mut responses = Vec::new();
        while let Some(response) = stream.message().await.expect("the stream does not fail") {
            responses.push(response);
        }
        Self::from(responses)
    }

    /// One answer, and it is the last.
    fn from(responses: Vec<ConverseResponse>) -> Self {
        let session = responses.first().expect("something was heard").session_id.clone();
        assert!(responses.iter().all(|response| response.session_id == session));
        let mut events = Vec::new();
        let mut answer = None;
        for response in responses {
            assert!(answer.is_none(), "the answer is the last");
            match response.body.expect("a response has a body") {
                Said::Event(event) => events.push(event),
                Said::Answer(said) => answer = Some(said),
            }
        }
        Self { session, events, answer: answer.expect("a turn has an answer") }
    }

    /// The events of one session have no gap and no repeat.
    fn sequences(&self, id: &str) -> Vec<u64> {
        let own = self.events.iter().filter(|event| event.worker_id == id && event.sequence > 0);
        own.map(|event| event.sequence).collect()
    }
}

async fn messages(client: &mut ExecutorServiceClient<Channel>, id: &str) -> Vec<Message> {
    let request = ListMessagesRequest { session_id: id.to_owned(), ..ListMessagesRequest::default() };
    client.list_messages(request).await.expect("the transcript is there").into_inner().messages
}

/// The tree and the transcripts say what happened.
async fn check_story(channel: &Channel, heard: &Heard, deduplicated: usize) {
    let mut client = ExecutorServiceClient::new(channel.clone());
    assert_eq!(heard.answer.stop_reason(), StopReason::Finished, "{}", heard.answer.text);
    assert!(heard.answer.text.contains("review rejected: Nobody asked for it."), "{}", heard.answer.text);
    let request = GetTreeRequest { session_id: heard.session.clone(), ..GetTreeRequest::default() };
    let tree = client.get_tree(request).await.expect("the tree is there").into_inner();
    let root = tree.root.expect("a tree has a root");
    assert_eq!((root.agent.as_str(), root.turn_running, root.open_workers), ("default", false, 0));
    let usage = heard.answer.usage.expect("an answer has its usage");
    assert_eq!((usage.turns, usage.tool_calls), (2, 3));
    let mut below: Vec<(&str, u32, WorkerStatus)> =
        tree.workers.iter().map(|worker| (worker.agent.as_str(), worker.depth, worker.status())).collect();
    below.sort_by_key(|(agent, ..)| *agent);
    let done = WorkerStatus::Completed;
    assert_eq!(below, [("explore", 1, done), ("reviewer", 2, done), ("task", 1, done)]);
    let task = tree.workers.iter().find(|worker| worker.agent == "task").expect("just seen");
    assert_eq!(task.parent_id, heard.session);

    let said = messages(&mut client, &heard.session).await;
    let roles: Vec<Role> = said.iter().map(Message::role).collect();
    let tool = Role::Tool;
    assert_eq!(roles, [Role::System, Role::User, Role::Assistant, tool, tool, tool, Role::Assistant]);
    assert!(said[0].content.contains("- `explore`: "), "the catalog is in the prompt");
    assert!(!said[0].content.contains("- `reviewer`: ") && !said[0].content.contains("- `default`: "));
    let reports: Vec<Value> = said[3..6]
        .iter()
        .map(|message| serde_json::from_str(&message.content).expect("a report is JSON"))
        .collect();
    let of_explore: Vec<&Value> =
        reports.iter().filter(|report| report["structured_output"]["summary"] == "It is here.").collect();
    assert_eq!(of_explore.len(), 2);
    assert_eq!(of_explore[0]["task_id"], of_explore[1]["task_id"], "one worker answered both");
    assert_eq!(of_explore.iter().filter(|report| report["deduplicated"] == true).count(), deduplicated);

    let request = ListProposalsRequest::default();
    let mut reviews = ReviewServiceClient::new(channel.clone());
    let proposals = reviews.list_proposals(request).await.expect("they are there").into_inner().proposals;
    assert_eq!(proposals.len(), 1);
    assert_eq!((proposals[0].decision(), proposals[0].session_id.as_str()), (Decision::Rejected, &*task.id));
}

/// Whom the tree dispatched, from the events of the whole stream.
fn dispatched(heard: &Heard) -> Vec<&str> {
    let mut agents: Vec<&str> = heard
        .events
        .iter()
        .filter_map(|event| match event.body.as_ref() {
            Some(Body::ChildSpawned(child)) => Some(child.agent.as_str()),
            _ => None,
        })
        .collect();
    agents.sort_unstable();
    agents
}

#[tokio::test]
async fn a_coordinator_dispatches_two_specialists_one_of_them_once_and_explains_a_rejected_write() {
    let registry = Registry::start().await;
    registry.write("notes.txt", "old");
    let mut executor = Executor::start(&registry, STORY).await;

    let stream = executor.sessions.converse(say("", "Where is it?")).await.unwrap().into_inner();
    let heard = Heard::of(stream).await;

    check_story(&executor.channel, &heard, 1).await;
    assert_eq!(dispatched(&heard), ["explore", "task"]);
    let own = heard.sequences(&heard.session);
    assert_eq!(own, (1..=own.len() as u64).collect::<Vec<_>>());
    for worker in heard.events.iter().filter(|event| event.worker_id != heard.session) {
        let below = heard.sequences(&worker.worker_id);
        assert_eq!(below, (1..=below.len() as u64).collect::<Vec<_>>(), "{}", worker.worker_id);
    }
    let talking = |id: &str| {
        let is_text = |event: &&WorkerEvent| matches!(event.body, Some(Body::TextDelta(_)));
        heard.events.iter().filter(is_text).any(|event| event.worker_id == id)
    };
    assert!(talking(&heard.session), "text comes as it is said");
    assert_eq!(fs::read_to_string(registry.project("notes.txt")).unwrap(), "old");

    // Whoever comes later hears the same, without what is nowhere kept.
    let request = WatchSessionRequest { session_id: heard.session.clone(), after_sequence: 0 };
    let mut stream = executor.sessions.watch_session(request).await.unwrap().into_inner();
    let mut again = Vec::new();
    while let Some(response) = stream.message().await.unwrap() {
        again.push(response.event.unwrap());
    }
    let again = Heard::from(again);
    assert_eq!(again.answer, heard.answer);
    assert_eq!(again.sequences(&heard.session), own);
    assert_eq!(dispatched(&again), ["explore", "task"]);
    executor.stop().await;
    registry.stop().await;
}

#[tokio::test]
async fn the_same_story_ends_in_the_same_way_after_kill_9_in_the_middle() {
    let registry = Registry::start().await;
    registry.write("notes.txt", "old");
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("script.yaml"), STORY).unwrap();
    let mut first = Program::start(&registry, directory.path()).await;
    let mut sessions = SessionServiceClient::new(first.channel.clone());
    let request = ConverseRequest { request_id: "story".to_owned(), ..say("", "Where is it?") };
    let mut stream = sessions.converse(request.clone()).await.unwrap().into_inner();
    let mut asked = 0;
    let session = loop {
        let response = stream.message().await.unwrap().unwrap();
        if let Some(Said::Event(WorkerEvent { worker_id, body: Some(Body::TurnStarted(_)), .. })) =
            &response.body
            && *worker_id != response.session_id
        {
            asked += 1;
        }
        if asked == 2 {
            break response.session_id;
        }
    };

    first.kill().await;
    assert!(stream.message().await.is_err(), "both specialists were at work when it died");
    let second = Program::start(&registry, directory.path()).await;
    let mut sessions = SessionServiceClient::new(second.channel.clone());
    let heard = Heard::of(sessions.converse(request).await.unwrap().into_inner()).await;

    assert_eq!(heard.session, session, "the same request takes the turn over");
    // Both calls find their worker again by themselves, and neither has to be told that it is another's.
    check_story(&second.channel, &heard, 0).await;
    assert_eq!(dispatched(&heard), ["explore", "task"], "nobody was dispatched twice");
    let own = heard.sequences(&session);
    assert_eq!(own, (1..=own.len() as u64).collect::<Vec<_>>());
    assert_eq!(fs::read_to_string(registry.project("notes.txt")).unwrap(), "old");
    drop(sessions);
    assert!(second.terminate().await.success());
    registry.stop().await;
}

const HANGS: &str = r#"
rules:
  - when: {agent: default, last: "wait"}
    do:
      - delay: 100s
  - when: {agent: default}
    do:
      - text: "Yes."
  - when: {agent: task}
    do:
      - text: "done"
"#;

async fn refused(executor: &mut Executor, request: ConverseRequest) -> tonic::Status {
    executor.sessions.converse(request).await.expect_err("it is refused")
}

#[tokio::test]
async fn turns_that_cannot_begin_are_refused_with_their_reasons() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, HANGS).await;
    let heard = Heard::of(executor.sessions.converse(say("", "Hello.")).await.unwrap().into_inner()).await;
    let session = heard.session.as_str();
    assert_eq!(heard.answer.text, "Yes.");

    let mut running = executor.sessions.converse(say(session, "wait")).await.unwrap().into_inner();
    running.message().await.unwrap().expect("it runs");
    let status = refused(&mut executor, say(session, "Hello?")).await;
    assert_eq!(reason(&status, Code::Aborted, "TURN_IN_PROGRESS")["session_id"], session);
    let request = GetSessionRequest { session_id: session.to_owned() };
    let root = executor.sessions.get_session(request).await.unwrap().into_inner().session.unwrap();
    assert!(root.turn_running && root.open_workers == 0 && root.close_time.is_none());
    let request = StopWorkerRequest { worker_id: session.to_owned(), ..StopWorkerRequest::default() };
    executor.client.stop_worker(request).await.unwrap();
    let mut last = None;
    while let Some(response) = running.message().await.unwrap() {
        last = response.body;
    }
    let Some(Said::Answer(answer)) = last else { panic!("{last:?}") };
    assert_eq!(answer.stop_reason(), StopReason::Stopped);

    let named = SpawnRequest { root_id: "mine".to_owned(), ..call("task", "Go.") };
    let Worker { root_id, .. } = executor.spawn(named).await.unwrap().worker.unwrap();
    let status = refused(&mut executor, say(&root_id, "Hello.")).await;
    assert_eq!(reason(&status, Code::FailedPrecondition, "NOT_A_COORDINATOR")["session_id"], root_id);
    let watch = WatchSessionRequest { session_id: root_id, after_sequence: 0 };
    let status = executor.sessions.watch_session(watch).await.unwrap_err();
    reason(&status, Code::FailedPrecondition, "NOT_A_COORDINATOR");
    let status = refused(&mut executor, say("root-0190c2f0-0000-7000-8000-000000000000", "Hello.")).await;
    reason(&status, Code::NotFound, "SESSION_NOT_FOUND");
    let status = refused(&mut executor, say("", " ")).await;
    reason(&status, Code::InvalidArgument, "INVALID_REQUEST");
    let reviewer = ConverseRequest { agent: "reviewer".to_owned(), ..say("", "Hello.") };
    let status = refused(&mut executor, reviewer).await;
    reason(&status, Code::PermissionDenied, "RESERVED_AGENT");
    let worker = GetWorkerRequest { worker_id: session.to_owned() };
    let status = executor.client.get_worker(worker).await.unwrap_err();
    reason(&status, Code::NotFound, "SESSION_NOT_FOUND");

    let close = CloseSessionRequest { session_id: session.to_owned() };
    executor.sessions.close_session(close).await.unwrap();
    let status = refused(&mut executor, say(session, "Hello.")).await;
    reason(&status, Code::FailedPrecondition, "SESSION_CLOSED");
    executor.stop().await;
    registry.stop().await;
}
