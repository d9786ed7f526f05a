use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, net::TcpListener};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    definition::ThinkingLevel,
    model::{
        Error, Finish, Model as _,
        pace::Pace,
        retry::Retrying,
        sample::{self, Ear},
        stub::{Answer, Stub},
    },
    transcript::ToolCall,
    worker::Usage,
};

mod faults;
mod secrets;
mod streams;

fn model_at(url: &str, key: Option<&str>) -> Retrying<Chat> {
    let config = config::Provider {
        base_url: Some(format!("{url}/v1")),
        api_key: key.map(Secret::new),
        ..config::Provider::new(config::Kind::Openai)
    };
    let endpoint = endpoint("local", &config).unwrap_or_else(|(key, message)| panic!("{key}: {message}"));
    Retrying::new(Chat::new(endpoint, "qwen3", &config), Arc::new(Pace::new(4)))
}

/// Asks once and says what was heard meanwhile.
async fn ask(stub: &Stub) -> (Result<Reply, Error>, String, Vec<Duration>) {
    let ear = Ear::default();
    let outcome = model_at(&stub.url, None).complete(&sample::turn(), &ear, &CancellationToken::new()).await;
    (outcome, ear.text.into_inner(), ear.waits.into_inner())
}

/// Chunks as a stream without an end mark.
fn events(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta }] })
}

fn finish(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

/// A whole stream around some chunks.
fn stream(chunks: &[Value], reason: &str) -> String {
    format!("{}{}data: [DONE]\n\n", events(chunks), events(&[finish(reason)]))
}

fn hello() -> Answer {
    Answer::stream(&stream(&[delta(json!({ "content": "Hello." }))], "stop"))
}
