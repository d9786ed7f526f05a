//! The registry as a server: health, reflection, deadlines, limits, watches, and an end that comes whatever a peer does.

use std::{collections::BTreeSet, time::Duration};

use proto::registry::v1::{
    ReloadRequest, ResolveSkillsRequest, ValidateRequest, WatchRequest,
    skill_service_client::SkillServiceClient, watch_response::Body,
};
use tests::{
    admin::get,
    refusal::reason,
    registry::{Registry, document},
};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    time::{Instant, timeout},
};
use tonic::{Code, Request};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

/// Far longer than anything here takes; only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn every_service_has_a_health_of_its_own() {
    let registry = Registry::start().await;
    let mut health = HealthClient::new(registry.channel().await);

    for service in [
        "",
        "roster.registry.v1.RegistryService",
        "roster.registry.v1.CommandService",
        "roster.registry.v1.SkillService",
    ] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let response = health.check(request).await.unwrap().into_inner();
        assert_eq!(response.status(), ServingStatus::Serving, "{service}");
    }
    let unknown = health.check(HealthCheckRequest { service: "nothing".to_owned() }).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    drop(health);
    registry.stop().await;
}

#[tokio::test]
async fn reflection_names_what_is_served_and_describes_errors() {
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let registry = Registry::start().await;
    let mut client = ServerReflectionClient::new(registry.channel().await);
    let ask = |message| ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let questions = vec![
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol("google.rpc.ErrorInfo".to_owned())),
        ask(MessageRequest::FileContainingSymbol("grpc.health.v1.Health".to_owned())),
    ];

    let stream = client.server_reflection_info(tokio_stream::iter(questions)).await.unwrap();
    let mut answers = stream.into_inner();
    let mut names = BTreeSet::new();
    let mut files = 0;
    while let Some(answer) = answers.message().await.unwrap() {
        match answer.message_response.unwrap() {
            MessageResponse::ListServicesResponse(list) => {
                names.extend(list.service.into_iter().map(|it| it.name))
            }
            MessageResponse::FileDescriptorResponse(_) => files += 1,
            other => panic!("{other:?}"),
        }
    }

    assert!(names.contains("roster.registry.v1.RegistryService"), "{names:?}");
    assert!(names.contains("grpc.health.v1.Health"), "{names:?}");
    assert!(!names.contains("roster.executor.v1.ExecutorService"), "{names:?}");
    assert_eq!(files, 2);
    drop((answers, client));
    registry.stop().await;
}

#[tokio::test]
async fn the_admin_port_tells_how_the_service_is() {
    let mut registry = Registry::start().await;
    registry.by_name("explore").await.unwrap();

    assert!(get(registry.admin, "/livez").await.starts_with("HTTP/1.1 200"));
    assert!(get(registry.admin, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(get(registry.admin, "/elsewhere").await.starts_with("HTTP/1.1 404"));
    let metrics = get(registry.admin, "/metrics").await;
    let line = "grpc_server_handled_total{method=\"/roster.registry.v1.RegistryService/ByName\",code=\"OK\"}";
    assert!(metrics.contains(line), "{metrics}");
    registry.stop().await;
}

#[tokio::test]
async fn a_deadline_also_ends_a_stream() {
    let mut registry = Registry::start().await;
    let mut request = Request::new(WatchRequest::default());
    request.set_timeout(Duration::from_millis(300));

    let started = Instant::now();
    let mut messages = registry.client.watch(request).await.unwrap().into_inner();
    let mut received = 0;
    let status = loop {
        match timeout(PATIENCE, messages.message()).await.expect("the deadline ends it") {
            Ok(Some(_)) => received += 1,
            Ok(None) => panic!("the stream ended well"),
            Err(status) => break status,
        }
    };

    assert!(received > 0 && started.elapsed() >= Duration::from_millis(300));
    // tonic's client gives up by itself only before the headers; this comes from the server.
    reason(&status, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    registry.stop().await;
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused() {
    let mut registry = Registry::start().await;
    let request = ValidateRequest { document: vec![b'x'; 3 * 1024 * 1024], workspace: String::new() };

    let status = registry.client.validate(request).await.unwrap_err();

    reason(&status, Code::ResourceExhausted, "REQUEST_TOO_LARGE");
    registry.stop().await;
}

#[tokio::test]
async fn a_method_that_is_not_served_is_unimplemented() {
    let registry = Registry::start().await;
    let mut executor =
        proto::executor::v1::executor_service_client::ExecutorServiceClient::new(registry.channel().await);

    let status = executor.get_limits(proto::executor::v1::GetLimitsRequest::default()).await.unwrap_err();

    reason(&status, Code::Unimplemented, "UNKNOWN_METHOD");
    drop(executor);
    registry.stop().await;
}

#[tokio::test]
async fn a_watch_begins_with_the_state_and_follows_every_change() {
    let mut registry = Registry::start().await;
    let mut messages = registry.client.watch(WatchRequest::default()).await.unwrap().into_inner();
    let state = messages.message().await.unwrap().unwrap();
    let Some(Body::Snapshot(snapshot)) = state.body else { panic!("{state:?}") };
    assert!(snapshot.last && snapshot.agents.iter().any(|agent| agent.name == "explore"));

    registry.write(".claude/agents/scout.md", &document("scout", "Look."));
    registry.client.reload(ReloadRequest::default()).await.unwrap();
    let change = timeout(PATIENCE, messages.message()).await.unwrap().unwrap().unwrap();
    let Some(Body::Change(upsert)) = change.body else { panic!("{change:?}") };
    assert_eq!(upsert.upserted[0].name, "scout");
    assert_eq!(change.generation, state.generation + 1);

    std::fs::remove_file(registry.project(".claude/agents/scout.md")).unwrap();
    registry.client.reload(ReloadRequest::default()).await.unwrap();
    let request = WatchRequest {
        from_generation: state.generation,
        store_id: state.store_id,
        ..WatchRequest::default()
    };
    let mut resumed = registry.client.watch(request).await.unwrap().into_inner();
    let mut generations = Vec::new();
    for _ in 0..2 {
        let message = timeout(PATIENCE, resumed.message()).await.unwrap().unwrap().unwrap();
        generations.push(message.generation);
        let Some(Body::Change(change)) = message.body else { panic!("{message:?}") };
        assert!(change.last);
    }

    assert_eq!(generations, [state.generation + 1, state.generation + 2]);
    drop((messages, resumed));
    registry.stop().await;
}

#[tokio::test]
async fn a_watch_of_another_store_begins_afresh() {
    let mut registry = Registry::start().await;
    let request = WatchRequest { from_generation: 1, store_id: "another".into(), ..WatchRequest::default() };

    let mut messages = registry.client.watch(request).await.unwrap().into_inner();
    let first = messages.message().await.unwrap().unwrap();

    assert!(matches!(first.body, Some(Body::Snapshot(_))));
    drop(messages);
    registry.stop().await;
}

#[tokio::test]
async fn draining_ends_watches_and_does_not_wait_for_peers_that_say_nothing() {
    let mut registry = Registry::start().await;
    let silent = TcpStream::connect(registry.address).await.unwrap();
    let mut preface = TcpStream::connect(registry.address).await.unwrap();
    preface.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut messages = registry.client.watch(WatchRequest::default()).await.unwrap().into_inner();
    messages.message().await.unwrap().unwrap();
    let mut health = HealthClient::new(registry.channel().await);
    let mut watched = health.watch(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);

    let started = Instant::now();
    registry.shutdown.begin();
    let ended = loop {
        match timeout(PATIENCE, messages.message()).await.unwrap() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the watch ended without a word"),
            Err(status) => break status,
        }
    };
    let directory = timeout(PATIENCE, registry.stop()).await.expect("the end is bounded");

    reason(&ended, Code::Unavailable, "DRAINING");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    drop((silent, preface, watched, health, directory));
}

#[tokio::test]
async fn a_second_signal_does_not_wait_at_all() {
    let registry = Registry::start().await;
    let silent = TcpStream::connect(registry.address).await.unwrap();

    let started = Instant::now();
    registry.shutdown.hurry();
    timeout(PATIENCE, registry.stop()).await.expect("the end is bounded");

    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    drop(silent);
}

#[tokio::test]
async fn an_answer_that_would_be_too_large_is_refused() {
    let mut registry = Registry::start().await;
    let names: Vec<String> = (0..6).map(|index| format!("skill-{index}")).collect();
    for name in &names {
        let body = "padding ".repeat(110 * 1024);
        registry.write(&format!(".claude/skills/{name}/SKILL.md"), &document(name, &body));
    }
    registry.client.reload(ReloadRequest::default()).await.unwrap();
    let mut skills = SkillServiceClient::new(registry.channel().await);

    let request = ResolveSkillsRequest { names: names.clone(), ..ResolveSkillsRequest::default() };
    let status = skills.resolve_skills(request).await.unwrap_err();
    let request = ResolveSkillsRequest { names: names[..2].to_vec(), ..ResolveSkillsRequest::default() };
    let some = skills.resolve_skills(request).await.unwrap().into_inner();

    reason(&status, Code::ResourceExhausted, "RESPONSE_TOO_LARGE");
    assert_eq!(some.skills.len(), 2);
    drop(skills);
    registry.stop().await;
}
