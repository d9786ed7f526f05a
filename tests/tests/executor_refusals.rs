//! Every refusal of the executor, with the reason that a program reads and the text that a model reads.

use executor_svc::limits::{Bound, Names};
use proto::executor::v1::{
    Budget, CloseSessionRequest, DeleteSessionRequest, GetSessionRequest, GetWorkerRequest,
    ListWorkersRequest, SpawnRequest, session_service_client::SessionServiceClient,
};
use service_kit::config::Span;
use tests::{
    executor::{Executor, call},
    refusal::reason,
    registry::{Registry, document},
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const OK: &str = "rules:\n  - do:\n      - text: \"ok\"\n";

const UNKNOWN: &str = "worker-0190c2f0-0000-7000-8000-000000000000";

async fn refused(executor: &mut Executor, request: SpawnRequest) -> Status {
    executor.spawn(request).await.expect_err("the spawn is refused")
}

#[tokio::test]
async fn arguments_are_refused_all_at_once() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, OK).await;

    let request =
        SpawnRequest { root_id: "root-mine".to_owned(), locale: "no language".to_owned(), ..call(" ", "\n") };
    let status = refused(&mut executor, request).await;

    reason(&status, Code::InvalidArgument, "INVALID_REQUEST");
    let violations = status.get_details_bad_request().unwrap().field_violations;
    let fields: Vec<&str> = violations.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(fields, ["subagent_type", "prompt", "locale", "root_id"]);

    for page_token in ["x", "AAAA"] {
        let request =
            ListWorkersRequest { page_token: page_token.to_owned(), ..ListWorkersRequest::default() };
        let status = executor.client.list_workers(request).await.unwrap_err();
        reason(&status, Code::InvalidArgument, "INVALID_REQUEST");
    }
    executor.stop().await;
}

#[tokio::test]
async fn foreign_and_unknown_places_are_not_found() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, OK).await;

    let request = SpawnRequest { workspace: "elsewhere".to_owned(), ..call("task", "Go.") };
    let metadata = reason(&refused(&mut executor, request).await, Code::NotFound, "WORKSPACE_NOT_FOUND");
    assert_eq!(metadata["workspace"], "elsewhere");

    for parent_id in [UNKNOWN, "no id"] {
        let request = SpawnRequest { parent_id: parent_id.to_owned(), ..call("task", "Go.") };
        let metadata = reason(&refused(&mut executor, request).await, Code::NotFound, "SESSION_NOT_FOUND");
        assert_eq!(metadata["session_id"], parent_id);
    }
    let request = GetWorkerRequest { worker_id: UNKNOWN.to_owned() };
    let status = executor.client.get_worker(request).await.unwrap_err();
    reason(&status, Code::NotFound, "SESSION_NOT_FOUND");

    // What the administrator started is not there for a caller without credentials.
    let mut administrator = executor.administrator().await;
    let own = administrator.spawn(call("task", "Go.")).await.unwrap().into_inner().worker.unwrap();
    assert_eq!(own.operator, "local");
    let request = GetWorkerRequest { worker_id: own.id };
    let status = executor.client.get_worker(request.clone()).await.unwrap_err();
    reason(&status, Code::NotFound, "SESSION_NOT_FOUND");
    assert!(administrator.get_worker(request).await.is_ok());
    executor.stop().await;
}

#[tokio::test]
async fn an_ended_worker_and_a_closed_root_take_no_children() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, OK).await;
    let request = SpawnRequest { root_id: "chat".to_owned(), ..call("task", "Go.") };
    let worker = executor.spawn(request).await.unwrap().worker.unwrap();

    let below = |id: &str| SpawnRequest { parent_id: id.to_owned(), ..call("task", "More.") };
    let metadata =
        reason(&refused(&mut executor, below(&worker.id)).await, Code::FailedPrecondition, "SESSION_CLOSED");
    assert_eq!(metadata["session_id"], worker.id);
    assert!(executor.spawn(below(&worker.root_id)).await.is_ok(), "a named root stays open");

    let request = DeleteSessionRequest { session_id: worker.root_id.clone() };
    let mut administrator = SessionServiceClient::new(executor.authorised().await);
    let status = administrator.delete_session(request.clone()).await.unwrap_err();
    reason(&status, Code::FailedPrecondition, "SESSION_OPEN");
    let close = CloseSessionRequest { session_id: worker.root_id.clone() };
    executor.sessions.close_session(close).await.unwrap();
    let status = refused(&mut executor, below(&worker.root_id)).await;
    reason(&status, Code::FailedPrecondition, "SESSION_CLOSED");
    assert_eq!(administrator.delete_session(request).await.unwrap().into_inner().workers, 2);
    let request = GetSessionRequest { session_id: worker.root_id };
    let status = executor.sessions.get_session(request).await.unwrap_err();
    reason(&status, Code::NotFound, "SESSION_NOT_FOUND");
    executor.stop().await;
}

#[tokio::test]
async fn depth_recursion_policy_and_reserved_names_are_refused_in_words_for_models() {
    let registry = Registry::start().await;
    let mut executor = Executor::start_with(&registry, OK, |config| {
        let names = ["explore", "task", "blocked", "reviewer", "default"].map(str::to_owned);
        config.limits.root_spawns = Names::Listed(names.to_vec());
        config.limits.blocked_agents = vec!["blocked".to_owned()];
    })
    .await;

    let status = refused(&mut executor, call("plan", "Go.")).await;
    assert_eq!(reason(&status, Code::PermissionDenied, "SPAWN_DENIED")["agent"], "plan");
    assert_eq!(status.message(), "Cannot spawn 'plan'. Allowed: explore, task, blocked, reviewer, default");
    let status = refused(&mut executor, call("blocked", "Go.")).await;
    assert_eq!(reason(&status, Code::FailedPrecondition, "SELF_RECURSION")["agent"], "blocked");
    assert_eq!(
        status.message(),
        "Agent 'blocked' must not spawn itself (recursion prevention). Choose another agent."
    );
    for agent in ["reviewer", "default"] {
        let status = refused(&mut executor, call(agent, "Go.")).await;
        assert_eq!(reason(&status, Code::PermissionDenied, "RESERVED_AGENT")["agent"], agent);
    }
    executor.stop().await;

    let mut executor = Executor::start_with(&registry, OK, |config| {
        config.limits.max_recursion_depth = Bound::Of(0);
    })
    .await;
    let status = refused(&mut executor, call("task", "Go.")).await;
    let metadata = reason(&status, Code::FailedPrecondition, "DEPTH_EXCEEDED");
    assert_eq!((metadata["depth"].as_str(), metadata["maximum"].as_str()), ("0", "0"));
    assert_eq!(status.message(), "Depth limit reached: this session is at depth 0 and the maximum is 0.");
    executor.stop().await;
}

#[tokio::test]
async fn what_the_registry_does_not_have_or_does_not_answer_is_refused() {
    let registry = Registry::start_with(|config| {
        let workspace = config.workspaces.get_mut("default").unwrap();
        workspace.on_broken_override = registry_svc::config::BrokenOverride::Block;
    })
    .await;
    registry.write(".claude/agents/broken.md", "---\nname: broken\ntools: {a: [\n---\nBody.\n");
    registry.write(".claude/agents/fine.md", &document("fine", "Body."));
    let mut reload = registry.administrator().await;
    reload.reload(proto::registry::v1::ReloadRequest::default()).await.unwrap();
    let mut executor = Executor::start_with(&registry, OK, |config| {
        config.limits.disabled_agents = vec!["fine".to_owned()];
    })
    .await;

    let status = refused(&mut executor, call("nobody", "Go.")).await;
    let metadata = reason(&status, Code::NotFound, "UNKNOWN_AGENT");
    assert_eq!(metadata["agent"], "nobody");
    assert!(status.message().starts_with("Unknown agent \"nobody\". Available: fine, "), "{status:?}");
    assert_eq!(status.get_details_error_info().unwrap().domain, "executor.roster");

    let status = refused(&mut executor, call("broken", "Go.")).await;
    assert_eq!(reason(&status, Code::FailedPrecondition, "AGENT_BROKEN")["agent"], "broken");

    let status = refused(&mut executor, call("fine", "Go.")).await;
    assert_eq!(reason(&status, Code::FailedPrecondition, "AGENT_DISABLED")["agent"], "fine");
    let text = "Agent \"fine\" is switched off by the operator. Available: designer, explore";
    assert!(status.message().starts_with(text), "{status:?}");

    registry.stop().await;
    let status = refused(&mut executor, call("explore", "Go.")).await;
    reason(&status, Code::Unavailable, "REGISTRY_UNAVAILABLE");
    assert!(status.get_details_retry_info().is_some());
    executor.stop().await;
}

#[tokio::test]
async fn a_registry_that_comes_back_is_found_again() {
    let registry = Registry::start().await;
    let address = registry.address;
    let mut executor = Executor::start(&registry, OK).await;
    executor.spawn(call("task", "Before.")).await.unwrap();
    let directory = registry.stop().await;
    let status = refused(&mut executor, call("task", "Between.")).await;
    reason(&status, Code::Unavailable, "REGISTRY_UNAVAILABLE");

    let registry = Registry::start_in(directory, |config| config.listen = address).await;

    executor.spawn(call("task", "After.")).await.unwrap();
    executor.stop().await;
    registry.stop().await;
}

#[tokio::test]
async fn models_schemas_identities_and_budgets_are_refused() {
    let registry = Registry::start().await;
    registry.write(
        ".claude/agents/careful.md",
        "---\nname: careful\ndescription: Careful.\npermission_mode: dual-sign\n---\nBody.\n",
    );
    registry.write(
        ".claude/agents/odd.md",
        "---\nname: odd\ndescription: Odd.\noutput: {type: object, properties: {a: {$ref: 'http://elsewhere/x'}}}\n---\nBody.\n",
    );
    let mut reload = registry.administrator().await;
    reload.reload(proto::registry::v1::ReloadRequest::default()).await.unwrap();
    let mut executor = Executor::start(&registry, OK).await;

    let request = SpawnRequest { model: "nowhere/model".to_owned(), ..call("task", "Go.") };
    let status = refused(&mut executor, request).await;
    assert_eq!(reason(&status, Code::FailedPrecondition, "NO_MODEL")["patterns"], "nowhere/model");
    assert!(status.message().contains("offline"), "the providers there are: {status:?}");

    let request = SpawnRequest { output_schema: Some("{\"type\": 7}".to_owned()), ..call("task", "Go.") };
    let status = refused(&mut executor, request).await;
    assert_eq!(reason(&status, Code::InvalidArgument, "INVALID_SCHEMA")["source"], "call");
    let status = refused(&mut executor, call("odd", "Go.")).await;
    assert_eq!(reason(&status, Code::FailedPrecondition, "INVALID_SCHEMA")["source"], "agent");

    let status = refused(&mut executor, call("careful", "Go.")).await;
    reason(&status, Code::FailedPrecondition, "NO_IDENTITY");

    let budget = Budget { turns: Some(0), tokens: None, wall_time: None, spawns: None };
    let request = SpawnRequest { budget: Some(budget), ..call("task", "Go.") };
    let status = refused(&mut executor, request).await;
    let metadata = reason(&status, Code::ResourceExhausted, "BUDGET_EXHAUSTED");
    assert_eq!((metadata["limit"].as_str(), metadata["origin"].as_str()), ("turns", "request"));
    executor.stop().await;
}

#[tokio::test]
async fn a_request_id_answers_the_same_worker_and_refuses_other_content() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, OK).await;
    let request = SpawnRequest { request_id: "r-1".to_owned(), ..call("task", "Go.") };
    let first = executor.spawn(request.clone()).await.unwrap();

    let second = executor.spawn(request.clone()).await.unwrap();
    let other = SpawnRequest { prompt: "Stop.".to_owned(), ..request };
    let status = refused(&mut executor, other).await;

    assert_eq!(first.worker, second.worker);
    assert!(!second.deduplicated);
    let metadata = reason(&status, Code::InvalidArgument, "REQUEST_ID_REUSED");
    assert_eq!(metadata["request_id"], "r-1");
    executor.stop().await;
}

#[tokio::test]
async fn a_full_executor_sheds_new_workers() {
    let registry = Registry::start().await;
    let slow = "rules:\n  - do:\n      - delay: 60s\n      - text: \"ok\"\n";
    let mut executor = Executor::start_with(&registry, slow, |config| {
        config.limits.max_open = Bound::Of(1);
        config.drain.timeout = Span::seconds(0);
    })
    .await;
    let background = |prompt: &str| SpawnRequest { background: true, ..call("task", prompt) };
    executor.spawn(background("one")).await.unwrap();

    let status = refused(&mut executor, background("two")).await;

    reason(&status, Code::ResourceExhausted, "OVERLOADED");
    assert!(status.get_details_retry_info().is_some());
    executor.stop().await;
}

#[tokio::test]
async fn a_call_that_needs_credentials_says_so() {
    let registry = Registry::start().await;
    let mut executor = Executor::start(&registry, OK).await;

    let delete = DeleteSessionRequest { session_id: UNKNOWN.replace("worker", "root") };
    let status = executor.sessions.delete_session(delete).await.unwrap_err();
    reason(&status, Code::Unauthenticated, "CREDENTIALS_REQUIRED");
    executor.stop().await;
}
