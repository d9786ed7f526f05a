//! A worker on a model server that somebody else wrote: from a definition file to a closed record, in both wire formats.

use proto::{
    executor::v1::{StopReason, ToolOutcome, WorkerStatus, worker_event::Body},
    registry::v1::ReloadRequest,
};
use serde_json::json;
use tests::{
    aimock::Aimock,
    executor::{Executor, body, call},
    registry::Registry,
};

const KEEPER: &str = "---
name: keeper
description: Knows what lies around.
tools: [ls]
---
You answer from what you see.
";

#[tokio::test]
async fn a_definition_file_becomes_a_finished_worker_on_an_independent_server() {
    let server = Aimock::start(
        &json!([
            {
                "match": { "userMessage": "lies", "toolName": "ls", "hasToolResult": false },
                "response": {
                    "content": "I look around first.",
                    "toolCalls": [{ "name": "ls", "arguments": { "path": "." } }],
                },
            },
            { "match": { "hasToolResult": true }, "response": { "content": "The treasure lies here." } },
        ]),
        &[],
    )
    .await;
    let mut registry = Registry::start().await;
    registry.write(".claude/agents/keeper.md", KEEPER);
    registry.write("treasure.txt", "gold");
    registry.client.reload(ReloadRequest { workspace: String::new() }).await.unwrap();
    let mut executor = Executor::start_with(&registry, "rules: []", |config| {
        config.models.providers.extend(server.providers());
    })
    .await;

    for model in ["openai/gpt", "anthropic/claude"] {
        let mut request = call("keeper", "What lies around?");
        request.model = model.to_owned();
        let events = executor.follow(request).await.rest().await;

        let text: Vec<&str> = events
            .iter()
            .filter_map(|event| match body(event) {
                Body::TextDelta(delta) => Some(delta.text.as_str()),
                _ => None,
            })
            .collect();
        assert!(text.len() > 4, "{model}: the text is streamed: {text:?}");
        assert_eq!(text.concat(), "I look around first.The treasure lies here.", "{model}");
        let previews: Vec<&str> = events
            .iter()
            .filter_map(|event| match body(event) {
                Body::ToolFinished(finished) if finished.outcome() == ToolOutcome::Ok => {
                    Some(finished.preview.as_str())
                }
                _ => None,
            })
            .collect();
        assert!(
            matches!(previews[..], [listing] if listing.contains("treasure.txt")),
            "{model}: {previews:?}"
        );
        let Body::Finished(finished) = body(events.last().unwrap()) else { panic!("{model}: {events:?}") };
        let worker = finished.worker.clone().unwrap();
        assert_eq!(
            (worker.status(), worker.stop_reason()),
            (WorkerStatus::Completed, StopReason::Finished),
            "{model}"
        );
        assert_eq!((worker.result.as_str(), worker.model.as_str()), ("The treasure lies here.", model));
        let usage = worker.usage.unwrap();
        assert_eq!((usage.turns, usage.tool_calls), (2, 1), "{model}");
        assert_eq!(executor.worker(&worker.id).await, worker, "{model}");
    }
    executor.stop().await;
}
