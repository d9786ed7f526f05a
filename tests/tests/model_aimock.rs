//! Both wire formats against a model server that somebody else wrote: streaming, several tool calls in one answer, their
//! results, and a rate limit.

use std::{path::Path, sync::Mutex, time::Duration};

use async_trait::async_trait;
use executor_svc::{
    model::{
        Error, Finish, Listener, Model, Reply, ToolChoice, ToolSpec, Turn,
        config::Models,
        provider::{Providers, Wishes},
    },
    transcript::Message,
};
use serde_json::{Value, json};
use tests::aimock::Aimock;
use tokio_util::sync::CancellationToken;

/// The first answer needs question and tool, the second the tool's result.
fn answers() -> Value {
    json!([
        {
            "match": { "userMessage": "weather", "toolName": "get_weather", "hasToolResult": false },
            "response": {
                "content": "I ask for the weather in both towns.",
                "toolCalls": [
                    { "name": "get_weather", "arguments": { "city": "Paris" } },
                    { "name": "get_weather", "arguments": { "city": "Rome" } },
                ],
            },
        },
        {
            "match": { "hasToolResult": true },
            "response": { "content": "It rains in Paris, and in Rome the sun shines." },
        },
    ])
}

fn providers(server: &Aimock) -> Providers {
    let models = Models { providers: server.providers().into(), ..Models::default() };
    Providers::new(&models, Path::new(".")).unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
}

/// Takes the text and notes the waits.
#[derive(Default)]
struct Ear {
    pieces: Mutex<Vec<String>>,
    waits: Mutex<Vec<Duration>>,
}

#[async_trait]
impl Listener for Ear {
    fn text(&self, text: &str) {
        self.pieces.lock().expect("no test panics inside the lock").push(text.to_owned());
    }

    async fn pause(&self, wait: Duration) {
        self.waits.lock().expect("no test panics inside the lock").push(wait);
    }
}

async fn ask(model: &dyn Model, messages: &[Message], ear: &Ear) -> Result<Reply, Error> {
    let tools = [ToolSpec {
        name: "get_weather".to_owned(),
        description: "Tells the weather of a town.".to_owned(),
        input_schema: json!({ "type": "object", "properties": { "city": { "type": "string" } } }),
    }];
    let turn = Turn {
        agent: "explore",
        number: 1,
        prompt: "",
        system: "You tell the weather.",
        messages,
        reminder: "Be brief.",
        tools: &tools,
        tool_choice: ToolChoice::Auto,
        thinking: None,
    };
    model.complete(&turn, ear, &CancellationToken::new()).await
}

fn question() -> Vec<Message> {
    vec![Message::User { text: "What is the weather in Paris and in Rome?".to_owned() }]
}

#[tokio::test]
async fn both_protocols_carry_a_conversation_with_tools() {
    let server = Aimock::start(&answers(), &[]).await;
    let providers = providers(&server);
    for name in ["openai/gpt", "anthropic/claude"] {
        let resolved = providers.resolve(Wishes { request: name, patterns: &[], parent: "" });
        let model = resolved.unwrap_or_else(|error| panic!("{error}")).model;
        let mut messages = question();

        let ear = Ear::default();
        let reply = ask(&*model, &messages, &ear).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(reply.text, "I ask for the weather in both towns.", "{name}");
        let pieces = ear.pieces.into_inner().unwrap();
        assert!(pieces.len() > 3, "{name}: the text is streamed: {pieces:?}");
        assert_eq!(pieces.concat(), reply.text, "{name}");
        assert_eq!(reply.finish, Finish::ToolCalls, "{name}");
        let calls: Vec<_> =
            reply.tool_calls.iter().map(|call| (call.tool.as_str(), call.arguments.as_str())).collect();
        assert_eq!(
            calls,
            [("get_weather", r#"{"city":"Paris"}"#), ("get_weather", r#"{"city":"Rome"}"#)],
            "{name}"
        );
        assert_ne!(reply.tool_calls[0].id, reply.tool_calls[1].id, "{name}");

        let results = reply.tool_calls.iter().zip(["rain", "sun"]).map(|(call, weather)| Message::Tool {
            call_id: call.id.clone(),
            tool: call.tool.clone(),
            text: weather.to_owned(),
            is_error: false,
        });
        let results: Vec<Message> = results.collect();
        messages.push(Message::Assistant { text: reply.text, tool_calls: reply.tool_calls });
        messages.extend(results);

        let reply = ask(&*model, &messages, &Ear::default())
            .await
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(reply.text, "It rains in Paris, and in Rome the sun shines.", "{name}");
        assert_eq!((reply.finish, reply.tool_calls.len()), (Finish::Stop, 0), "{name}");
    }
}

#[tokio::test]
async fn a_rate_limit_is_waited_for_three_times() {
    let server = Aimock::start(&answers(), &["--chaos-ratelimit", "1"]).await;
    let providers = providers(&server);
    for name in ["openai/gpt", "anthropic/claude"] {
        let resolved = providers.resolve(Wishes { request: name, patterns: &[], parent: "" });
        let model = resolved.unwrap_or_else(|error| panic!("{error}")).model;
        let ear = Ear::default();

        let outcome = ask(&*model, &question(), &ear).await;

        assert!(matches!(outcome, Err(Error::Status { status: 429, .. })), "{name}: {outcome:?}");
        assert_eq!(ear.waits.into_inner().unwrap(), [Duration::from_secs(1); 3], "{name}");
    }
}
