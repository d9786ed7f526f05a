//! A server that repeats the key wherever it can: it must not get out again.

use std::fmt::Write as _;

use tracing::{Event, Metadata, Subscriber, field, span};

use super::*;

const KEY: &str = "sk-canary-0123456789";

/// Keeps every log line of its thread as text.
#[derive(Clone, Default)]
struct Logs(Arc<Mutex<String>>);

impl Subscriber for Logs {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        attributes.record(self.lines().as_mut());
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(self.lines().as_mut());
    }

    fn event(&self, event: &Event<'_>) {
        event.record(self.lines().as_mut());
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Logs {
    fn lines(&self) -> Box<dyn field::Visit + '_> {
        let logs = self;
        Box::new(move |field: &field::Field, value: &dyn std::fmt::Debug| {
            writeln!(logs.0.lock(), "{field}={value:?}").expect("a string takes every line");
        })
    }
}

async fn ask_with_key(answers: Vec<Answer>) -> (Result<Reply, Error>, String, String) {
    let logs = Logs::default();
    let guard = tracing::subscriber::set_default(logs.clone());
    let stub = Stub::start(answers).await;
    let ear = Ear::default();
    let outcome =
        model_at(&stub.url, Some(KEY)).complete(&sample::turn(), &ear, &CancellationToken::new()).await;
    let asked = stub.finish();
    assert_eq!(asked[0].headers["authorization"], format!("Bearer {KEY}"), "the server knows the key");
    drop(guard);
    let logs = logs.0.lock().clone();
    (outcome, ear.text.into_inner(), logs)
}

/// Every cause of an error, in both ways to print it.
fn printed(error: &Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        write!(text, " {cause} {cause:?}").expect("a string takes every line");
        source = cause.source();
    }
    text
}

#[tokio::test]
async fn a_key_in_an_error_is_not_passed_on() {
    let echo =
        json!({"error": {"message": format!("bad key {KEY}, Authorization: Bearer {KEY}")}}).to_string();
    let in_stream = format!("data: {echo}\n\n");
    let token = events(&[delta(json!({"content": "Hel"}))]);
    for answer in [
        Answer::new(401, "application/json", echo.clone()),
        Answer::new(400, "application/json", echo.clone()),
        Answer::new(404, "text/plain", format!("no such key: {KEY}")),
        Answer::new(200, "application/json", json!({"error": {"message": KEY, "code": 400}}).to_string()),
        Answer::stream(&format!("{token}{in_stream}")),
        Answer::stream(&format!("data: {KEY}\n\n")),
    ] {
        let (outcome, text, logs) = ask_with_key(vec![answer]).await;
        let error = outcome.expect_err("it is a refusal");
        assert!(!printed(&error).contains("canary"), "{error:?}");
        assert!(!text.contains("canary") && !logs.contains("canary"));
    }
}

#[tokio::test]
async fn a_key_is_in_no_log_of_a_retry() {
    let echo = json!({"error": {"message": KEY}}).to_string();

    let (outcome, _, logs) = ask_with_key(vec![Answer::new(503, "application/json", echo), hello()]).await;

    assert!(outcome.is_ok());
    assert!(logs.contains("asking the model again"), "the retry was logged: {logs}");
    assert!(!logs.contains("canary"), "{logs}");
}

#[tokio::test]
async fn a_key_in_the_answer_itself_is_blotted_out() {
    let (begin, end) = KEY.split_at(9);
    let call = json!([{"index": 0, "id": "a", "function": {"name": "ls", "arguments": format!("{{\"key\":\"{KEY}\"}}")}}]);
    let body = stream(
        &[
            delta(json!({"content": format!("It is {begin}")})),
            delta(json!({"content": format!("{end}!")})),
            delta(json!({"tool_calls": call})),
        ],
        "tool_calls",
    );

    let (outcome, text, logs) = ask_with_key(vec![Answer::stream(&body).torn()]).await;

    let reply = outcome.unwrap();
    assert_eq!((reply.text.as_str(), text.as_str()), ("It is [key]!", "It is [key]!"));
    assert_eq!(reply.tool_calls[0].arguments, r#"{"key":"[key]"}"#);
    assert!(!logs.contains("canary"));
}
