//! Trees: depth, what narrows from above, budgets of a tree, and workers that are continued.

use executor_svc::limits::Bound;
use proto::executor::v1::{
    Budget, DescribeSpawnToolRequest, GetLimitsRequest, ListMessagesRequest, Role, SendMessageRequest,
    SpawnRequest, StopReason, WorkerStatus, worker_event::Body,
};
use serde_json::Value;
use tests::{
    executor::{Executor, body, call},
    refusal::reason,
    registry::Registry,
};
use tonic::Code;

/// `outer` spawns `middle`, which spawns `inner`, which tries to spawn once more.
const CHAIN: &str = r#"
rules:
  - when: {agent: outer, turn: 1}
    do:
      - call: {tool: AgentTool, arguments: {description: "a", subagent_type: middle, prompt: "Go on."}}
  - when: {agent: middle, turn: 1}
    do:
      - call: {tool: AgentTool, arguments: {description: "b", subagent_type: outer, prompt: "Go on."}}
  - do:
      - text: "{{last}}"
"#;

const HOLD: &str = r#"
rules:
  - when: {agent: task}
    do:
      - delay: 60s
      - text: "never"
  - do:
      - text: "ok: {{prompt}}"
"#;

async fn with_agents(names: &[&str]) -> Registry {
    let registry = Registry::start().await;
    for name in names {
        let text = format!("---\nname: {name}\ndescription: Spawns.\nspawns: '*'\n---\nYou spawn.\n");
        registry.write(&format!(".claude/agents/{name}.md"), &text);
    }
    let mut administrator = registry.administrator().await;
    let reload = proto::registry::v1::ReloadRequest::default();
    administrator.reload(reload).await.expect("the sources are read");
    registry
}

#[tokio::test]
async fn a_grandchild_is_told_that_it_is_too_deep() {
    let registry = with_agents(&["outer", "middle"]).await;
    let mut executor = Executor::start(&registry, CHAIN).await;

    let worker = executor.spawn(call("outer", "Go.")).await.unwrap().worker.unwrap();

    // `middle` at depth 2 asked for `outer`, and reports what it was told.
    let report: Value = serde_json::from_str(&worker.result).unwrap();
    assert_eq!(report["result"], "Depth limit reached: this session is at depth 2 and the maximum is 2.");
    executor.stop().await;
}

#[tokio::test]
async fn plan_mode_takes_tools_and_spawns_away_for_all_below() {
    let registry = Registry::start().await;
    let mut executor = Executor::start_with(&registry, HOLD, |config| {
        config.prompts.plan = "PLAN ONLY".to_owned();
    })
    .await;
    let request = SpawnRequest { plan_mode: true, background: true, ..call("task", "Go.") };
    let mut events = executor.follow(request).await;
    let begun = events.until(|body| matches!(body, Body::TurnStarted(_))).await;
    let worker = executor.worker(&begun.worker_id).await;

    let messages = ListMessagesRequest { session_id: worker.id.clone(), ..ListMessagesRequest::default() };
    let messages = executor.client.list_messages(messages).await.unwrap().into_inner().messages;
    let described = DescribeSpawnToolRequest { session_id: worker.id.clone(), ..Default::default() };
    let described = executor.client.describe_spawn_tool(described).await.unwrap().into_inner();

    assert!(worker.plan_mode);
    assert_eq!(messages[0].role(), Role::System);
    assert!(messages[0].content.contains("PLAN ONLY"), "{}", messages[0].content);
    assert_eq!(described.name, "AgentTool");
    assert!(!described.available);
    assert!(described.description.contains("may spawn no agent"), "{}", described.description);
    let own = DescribeSpawnToolRequest::default();
    let own = executor.client.describe_spawn_tool(own).await.unwrap().into_inner();
    assert!(own.available && own.description.contains("`explore`"), "{}", own.description);
    assert!(!own.description.contains("`reviewer`"));
    executor.shutdown.hurry();
    executor.stop().await;
}

#[tokio::test]
async fn a_tree_has_only_so_many_spawns() {
    let registry = Registry::start().await;
    let mut executor = Executor::start_with(&registry, HOLD, |config| {
        config.limits.max_spawns_per_tree = Bound::Of(2);
    })
    .await;
    let request = |index: u32| SpawnRequest {
        root_id: "chat".to_owned(),
        ..call("quick_task", &format!("Number {index}"))
    };
    for index in 0..2 {
        executor.spawn(request(index)).await.unwrap();
    }

    let status = executor.spawn(request(2)).await.unwrap_err();

    let metadata = reason(&status, Code::ResourceExhausted, "BUDGET_EXHAUSTED");
    assert_eq!(metadata["limit"], "max_spawns_per_tree");
    let again = executor.spawn(request(1)).await.unwrap();
    assert!(again.deduplicated, "an identical call is answered though nothing is left");
    executor.stop().await;
}

#[tokio::test]
async fn the_limits_of_a_worker_are_those_it_was_accepted_with() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, HOLD).await;
    let request = SpawnRequest {
        budget: Some(Budget { turns: Some(3), tokens: Some(500), wall_time: None, spawns: None }),
        ..call("quick_task", "Go.")
    };
    let worker = executor.spawn(request).await.unwrap().worker.unwrap();

    let request = GetLimitsRequest { session_id: worker.id, ..GetLimitsRequest::default() };
    let limits = executor.client.get_limits(request).await.unwrap().into_inner().limits;

    let limit = |key: &str| {
        let found = limits.iter().find(|limit| limit.key == key).unwrap();
        (found.value.clone(), found.origin.clone())
    };
    assert_eq!(limit("limits.max_turns"), ("3".to_owned(), "request".to_owned()));
    assert_eq!(limit("limits.tree_tokens"), ("500".to_owned(), "session".to_owned()));
    assert_eq!(limit("limits.max_recursion_depth"), ("2".to_owned(), "default".to_owned()));
    executor.stop().await;
}

#[tokio::test]
async fn a_completed_worker_is_continued_with_all_that_was_said() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, HOLD).await;
    let request = SpawnRequest { root_id: "chat".to_owned(), ..call("quick_task", "First.") };
    let first = executor.spawn(request).await.unwrap().worker.unwrap();

    let send = SendMessageRequest {
        worker_id: first.id.clone(),
        message: "Second.".to_owned(),
        ..SendMessageRequest::default()
    };
    let second = executor.client.send_message(send.clone()).await.unwrap().into_inner().worker.unwrap();

    assert_ne!(second.id, first.id);
    assert_eq!(
        (second.continues.as_str(), second.parent_id.as_str()),
        (first.id.as_str(), first.root_id.as_str())
    );
    assert_eq!(
        (second.result.as_str(), second.agent_digest.as_str()),
        ("ok: Second.", first.agent_digest.as_str())
    );
    let messages = ListMessagesRequest { session_id: second.id, ..ListMessagesRequest::default() };
    let messages = executor.client.list_messages(messages).await.unwrap().into_inner().messages;
    let said: Vec<&str> = messages.iter().skip(1).map(|message| message.content.as_str()).collect();
    assert_eq!(said, ["First.", "ok: First.", "Second.", "ok: Second."]);
    assert_eq!(executor.worker(&first.id).await, first, "the earlier one stays as it ended");

    let mut held = executor.follow(call("task", "Hold.")).await;
    let begun = held.until(|body| matches!(body, Body::TurnStarted(_))).await;
    let send = SendMessageRequest { worker_id: begun.worker_id, ..send };
    let status = executor.client.send_message(send.clone()).await.unwrap_err();
    reason(&status, Code::FailedPrecondition, "WORKER_NOT_COMPLETED");
    drop(held);

    let single = executor.spawn(call("quick_task", "Alone.")).await.unwrap().worker.unwrap();
    let send = SendMessageRequest { worker_id: single.id, ..send };
    let status = executor.client.send_message(send).await.unwrap_err();
    reason(&status, Code::FailedPrecondition, "SESSION_CLOSED");
    executor.shutdown.hurry();
    executor.stop().await;
}

#[tokio::test]
async fn tokens_of_a_tree_are_used_up_by_all_its_workers() {
    let registry = Registry::start().await;
    let script = r#"
rules:
  - when: {agent: task, turn: 1}
    do:
      - usage: {input_tokens: 90, output_tokens: 10}
      - call: {tool: AgentTool, arguments: {description: "a", subagent_type: quick_task, prompt: "Use some."}}
  - when: {agent: quick_task}
    do:
      - usage: {input_tokens: 190, output_tokens: 10}
      - text: "used"
  - do:
      - text: "too much"
"#;
    let mut executor = Executor::start(&registry, script).await;

    let request = SpawnRequest {
        budget: Some(Budget { turns: None, tokens: Some(250), wall_time: None, spawns: None }),
        ..call("task", "Go.")
    };
    let events = executor.follow(request).await.rest().await;

    let Body::Finished(finished) = body(events.last().unwrap()) else { panic!("{events:?}") };
    let worker = finished.worker.clone().unwrap();
    assert_eq!((worker.status(), worker.stop_reason()), (WorkerStatus::Failed, StopReason::Budget));
    assert!(worker.error.contains("300"), "{}", worker.error);
    executor.stop().await;
}
