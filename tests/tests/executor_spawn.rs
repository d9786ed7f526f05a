//! A spawn from the caller's side: its events, its record, its transcript.

use executor_svc::model::config::{Kind, Provider};
use proto::executor::v1::{
    GetTreeRequest, ListMessagesRequest, ListSessionsRequest, ListToolsRequest, ListWorkersRequest, Role,
    SchemaMode, StopReason, ToolOutcome, View, WatchWorkerRequest, WorkerStatus, worker_event::Body,
};
use serde_json::{Value, json};
use tests::{
    executor::{Executor, body, call},
    openai::{Answer, OpenAi},
    registry::Registry,
};

const LOOK_AND_TELL: &str = r#"
rules:
  - when: {agent: task, turn: 1}
    do:
      - text: "Let me look."
      - call: {tool: ls, arguments: {path: "."}}
      - usage: {input_tokens: 10, output_tokens: 5}
  - when: {agent: task, turn: 2, tool: ls}
    do:
      - text: "There is: {{last}}"
      - usage: {input_tokens: 20, output_tokens: 6}
"#;

#[tokio::test]
async fn a_worker_looks_tells_and_leaves_a_closed_record() {
    let registry = Registry::start().await;
    registry.write("notes.txt", "hello");
    let mut executor = Executor::start(&registry, LOOK_AND_TELL).await;

    let response = executor.client.spawn(call("task", "What is here?")).await.unwrap();

    let header = response.metadata().get("roster-worker-id").unwrap().to_str().unwrap().to_owned();
    let response = response.into_inner();
    let worker = response.worker.unwrap();
    assert_eq!(worker.id, header);
    assert_eq!((worker.status(), worker.stop_reason()), (WorkerStatus::Completed, StopReason::Finished));
    assert!(worker.result.contains("notes.txt"), "{}", worker.result);
    assert!(response.hint.starts_with("This is a rehearsal"), "{}", response.hint);
    let usage = worker.usage.unwrap();
    assert_eq!((usage.turns, usage.tool_calls), (2, 1));
    assert_eq!((usage.input_tokens, usage.output_tokens), (30, 11));
    assert!(worker.start_time.is_some() && worker.close_time.is_some());
    assert_eq!((worker.depth, worker.operator.as_str()), (1, "anonymous"));

    let kept = executor.worker(&worker.id).await;
    assert_eq!(kept, worker);
    let request = ListMessagesRequest { session_id: worker.id.clone(), ..ListMessagesRequest::default() };
    let messages = executor.client.list_messages(request).await.unwrap().into_inner().messages;
    let roles: Vec<Role> = messages.iter().map(proto::executor::v1::Message::role).collect();
    assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
    assert_eq!(messages.iter().map(|message| message.sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    executor.stop().await;
}

#[tokio::test]
async fn the_events_of_a_spawn_have_no_gap_and_are_the_same_when_watched_later() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, LOOK_AND_TELL).await;

    let events = executor.follow(call("task", "What is here?")).await.rest().await;

    assert!(matches!(body(&events[0]), Body::Accepted(_)), "{events:?}");
    assert!(matches!(body(events.last().unwrap()), Body::Finished(_)), "{events:?}");
    let text: String = events
        .iter()
        .filter_map(|event| match body(event) {
            Body::TextDelta(delta) => Some(delta.text.as_str()),
            _ => None,
        })
        .collect();
    assert!(text.starts_with("Let me look."), "{text}");
    let kept: Vec<_> = events.iter().filter(|event| event.sequence > 0).cloned().collect();
    let sequences: Vec<u64> = kept.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (1..=kept.len() as u64).collect::<Vec<_>>());

    let watch =
        |after_sequence| WatchWorkerRequest { worker_id: events[0].worker_id.clone(), after_sequence };
    let mut watched = Vec::new();
    let mut stream = executor.client.watch_worker(watch(3)).await.unwrap().into_inner();
    while let Some(response) = stream.message().await.unwrap() {
        watched.push(response.event.unwrap());
    }
    assert_eq!(watched, kept[3..].to_vec());
    executor.stop().await;
}

#[tokio::test]
async fn a_model_behind_http_streams_text_and_calls_tools() {
    let registry = Registry::start().await;
    registry.write("src/main.rs", "fn main() {}\n");
    let model = OpenAi::start([
        Answer::Calls(vec![("grep", json!({ "pattern": "fn main" })), ("nonsense", json!({}))]),
        Answer::Text(vec!["It is in ", "src/main.rs."]),
    ])
    .await;
    let mut executor = Executor::start_with(&registry, "rules: []", |config| {
        let mut provider = Provider::new(Kind::Openai);
        provider.base_url = Some(model.base_url.clone());
        config.models.providers.insert("local".to_owned(), provider);
        config.models.default = Some("local/qwen3".to_owned());
    })
    .await;

    let events = executor.follow(call("quick_task", "Where is main?")).await.rest().await;

    let outcomes: Vec<ToolOutcome> = events
        .iter()
        .filter_map(|event| match body(event) {
            Body::ToolFinished(finished) => Some(finished.outcome()),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, [ToolOutcome::Denied, ToolOutcome::Ok]);
    let Body::Finished(finished) = body(events.last().unwrap()) else { panic!("{events:?}") };
    let worker = finished.worker.clone().unwrap();
    assert_eq!((worker.result.as_str(), worker.model.as_str()), ("It is in src/main.rs.", "local/qwen3"));
    assert_eq!(worker.usage.unwrap().input_tokens, 22);
    assert!(!finished.hint.contains("rehearsal"), "{}", finished.hint);
    let asked = model.requests();
    let answers: Vec<&Value> =
        asked[1]["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers.iter().any(|answer| answer["content"].as_str().unwrap().contains("src/main.rs")));
    executor.stop().await;
}

const CHILD: &str = r#"
rules:
  - when: {agent: task, turn: 1}
    do:
      - call: {tool: AgentTool, arguments: {description: "again", subagent_type: task, prompt: "Me."}}
      - call: {tool: write, arguments: {path: "a.txt", content: "x"}}
  - when: {agent: task, turn: 2}
    do:
      - call: {tool: AgentTool, arguments: {description: "look", subagent_type: quick_task, prompt: "Look."}}
  - when: {agent: task, turn: 3}
    do:
      - text: "{{last}}"
  - when: {agent: quick_task}
    do:
      - text: "looked"
"#;

#[tokio::test]
async fn a_worker_spawns_below_itself_and_refusals_are_answers() {
    let registry = Registry::start().await;
    let mut executor = Executor::start_with(&registry, CHILD, |config| {
        // The parent gives its slot back while it waits: one is enough for both.
        config.limits.max_running = executor_svc::limits::Bound::Of(1);
    })
    .await;

    let events = executor.follow(call("task", "Go.")).await.rest().await;

    let Body::Finished(finished) = body(events.last().unwrap()) else { panic!("{events:?}") };
    let worker = finished.worker.clone().unwrap();
    let report: Value = serde_json::from_str(&worker.result).unwrap();
    assert_eq!((&report["status"], &report["result"]), (&json!("completed"), &json!("looked")));
    assert_eq!(report["deduplicated"], false);
    let previews: Vec<&str> = events
        .iter()
        .filter_map(|event| match body(event) {
            Body::ToolFinished(finished) => Some(finished.preview.as_str()),
            _ => None,
        })
        .collect();
    assert!(
        previews
            .contains(&"Agent 'task' must not spawn itself (recursion prevention). Choose another agent.")
    );
    assert!(previews.iter().any(|preview| preview.starts_with("review rejected: ")), "{previews:?}");
    assert!(!registry.project("a.txt").exists());

    let tree = GetTreeRequest { session_id: worker.id.clone(), ..GetTreeRequest::default() };
    let tree = executor.client.get_tree(tree).await.unwrap().into_inner();
    let depths: Vec<(String, u32)> =
        tree.workers.iter().map(|worker| (worker.agent.clone(), worker.depth)).collect();
    // No rule of the script answers for the reviewer: it failed, and what fails does not approve.
    let expected = [("task", 1), ("reviewer", 2), ("quick_task", 2)];
    assert_eq!(depths, expected.map(|(agent, depth)| (agent.to_owned(), depth)));
    assert!(tree.root.unwrap().close_time.is_some(), "an unnamed root closes with its last worker");
    executor.stop().await;
}

const SCHEMA: &str = r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#;

const MISMATCH: &str = r#"
rules:
  - when: {turn: 3, last: "does not match"}
    do:
      - submit: {data: {n: 3}}
  - when: {agent: task, turn: 4}
    do:
      - submit: {data: {n: "four"}}
  - do:
      - submit: {data: {n: "wrong"}}
"#;

#[tokio::test]
async fn a_result_that_does_not_match_goes_back_to_the_model() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, MISMATCH).await;

    let request = proto::executor::v1::SpawnRequest {
        output_schema: Some(SCHEMA.to_owned()),
        ..call("task", "Count.")
    };
    let events = executor.follow(request).await.rest().await;

    let rejected = events.iter().filter(|event| matches!(body(event), Body::OutputRejected(_))).count();
    let Body::Finished(finished) = body(events.last().unwrap()) else { panic!("{events:?}") };
    let worker = finished.worker.clone().unwrap();
    assert_eq!(rejected, 2);
    assert_eq!(worker.structured_output.as_deref(), Some(r#"{"n":3}"#));
    assert_eq!(worker.schema_valid, Some(true));
    executor.stop().await;
}

#[tokio::test]
async fn after_three_mismatches_strict_fails_and_permissive_completes() {
    let registry = Registry::start().await;
    let script = "rules:\n  - do:\n      - submit: {data: {n: \"wrong\"}}\n";
    let mut executor = Executor::start(&registry, script).await;

    for (mode, status, reason) in [
        (SchemaMode::Strict, WorkerStatus::Failed, StopReason::Schema),
        (SchemaMode::Permissive, WorkerStatus::Completed, StopReason::Finished),
    ] {
        let request = proto::executor::v1::SpawnRequest {
            output_schema: Some(SCHEMA.to_owned()),
            schema_mode: mode.into(),
            ..call("task", "Count.")
        };
        let worker = executor.spawn(request).await.unwrap().worker.unwrap();

        assert_eq!((worker.status(), worker.stop_reason()), (status, reason));
        assert_eq!(worker.schema_valid, Some(false));
        assert_eq!(worker.usage.unwrap().turns, 4);
    }
    executor.stop().await;
}

#[tokio::test]
async fn what_was_done_can_be_looked_up() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, "rules:\n  - do:\n      - text: \"ok {{prompt}}\"\n").await;
    for index in 0..3 {
        let request = proto::executor::v1::SpawnRequest {
            root_id: "chat".to_owned(),
            labels: [("index".to_owned(), index.to_string())].into(),
            ..call("task", &format!("Number {index}"))
        };
        executor.spawn(request).await.unwrap();
    }

    let mut found = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListWorkersRequest {
            page_size: 2,
            page_token: page_token.clone(),
            view: View::Full.into(),
            ..ListWorkersRequest::default()
        };
        let page = executor.client.list_workers(request).await.unwrap().into_inner();
        found.extend(page.workers.into_iter().map(|worker| worker.result));
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    assert_eq!(found, ["ok Number 2", "ok Number 1", "ok Number 0"]);

    let labelled = ListWorkersRequest {
        labels: [("index".to_owned(), "1".to_owned())].into(),
        ..ListWorkersRequest::default()
    };
    let labelled = executor.client.list_workers(labelled).await.unwrap().into_inner().workers;
    assert_eq!(labelled.len(), 1);
    assert!(labelled[0].result.is_empty(), "the basic view has no results");
    let sessions = executor.sessions.list_sessions(ListSessionsRequest::default()).await.unwrap();
    let sessions = sessions.into_inner().sessions;
    assert_eq!(sessions.len(), 1, "one root for one name");
    assert_eq!(sessions[0].caller_root_id, "chat");
    assert!(sessions[0].close_time.is_none(), "a named root stays open");
    executor.stop().await;
}

#[tokio::test]
async fn every_tool_comes_with_the_rule_that_granted_or_took_it() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, "rules: []").await;

    let request =
        ListToolsRequest { agent: "task".to_owned(), plan_mode: true, ..ListToolsRequest::default() };
    let tools = executor.client.list_tools(request).await.unwrap().into_inner().tools;

    let granted = |name: &str| {
        let tool = tools.iter().find(|tool| tool.name == name).unwrap();
        assert!(!tool.rule.is_empty(), "{name}");
        tool.granted
    };
    assert!(granted("read") && granted("submit_result"));
    assert!(!granted("write") && !granted("AgentTool") && !granted("bash"));
    executor.stop().await;
}
