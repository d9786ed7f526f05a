//! A model that answers at once, or after a delay that can be set while it runs. It calls the spawn tool where it is offered
//! one and has no answer of it yet.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tests::bench;
use tokio::{net::TcpSocket, sync::watch};

/// Connections that wait to be accepted: thousands of runs begin at once.
const BACKLOG: u32 = 8_192;

/// What every run has to end with.
pub(crate) const ANSWER: &str = "done";

#[derive(Default)]
struct Mock {
    /// How long an answer takes, milliseconds. None ends what waits, too.
    delay: watch::Sender<u64>,
    /// Requests that wait for their answer.
    waiting: watch::Sender<u64>,
    asked: AtomicU64,
    /// Results of tools that do not come from a run that ended well.
    bad_results: AtomicU64,
}

/// Serves until the benchmark lets go.
pub(crate) async fn serve() {
    let mock = Arc::new(Mock::default());
    let router = Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/delay/{milliseconds}", post(set_delay))
        .route("/waiting/{count}", get(until_waiting))
        .route("/counts", get(counts))
        .with_state(mock);
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let listener = socket.listen(BACKLOG).expect("a bound socket listens");
    bench::announce(&listener.local_addr().expect("a bound address").to_string());
    axum::serve(listener, router).await.expect("the mock serves");
}

async fn set_delay(State(mock): State<Arc<Mock>>, Path(milliseconds): Path<u64>) {
    mock.delay.send_replace(milliseconds);
}

/// Answers once so many requests wait.
async fn until_waiting(State(mock): State<Arc<Mock>>, Path(count): Path<u64>) {
    let mut waiting = mock.waiting.subscribe();
    // The sender is in the state, so the wait cannot fail.
    let _ = waiting.wait_for(|waiting| *waiting == count).await;
}

async fn counts(State(mock): State<Arc<Mock>>) -> String {
    let [asked, bad_results] = [&mock.asked, &mock.bad_results].map(|count| count.load(Ordering::Relaxed));
    json!({ "asked": asked, "bad_results": bad_results }).to_string()
}

async fn complete(State(mock): State<Arc<Mock>>, request: Bytes) -> Response {
    let number = mock.asked.fetch_add(1, Ordering::Relaxed);
    let delay = *mock.delay.borrow();
    if delay > 0 {
        let mut ended = mock.delay.subscribe();
        mock.waiting.send_modify(|waiting| *waiting += 1);
        let ended = ended.wait_for(|delay| *delay == 0);
        let _ = tokio::time::timeout(Duration::from_millis(delay), ended).await;
        mock.waiting.send_modify(|waiting| *waiting -= 1);
    }
    let request: Value = serde_json::from_slice(&request).expect("a request is JSON");
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let results: Vec<&Value> = messages.iter().filter(|message| message["role"] == "tool").collect();
    let bad = results.iter().filter(|result| !result["content"].to_string().contains(ANSWER)).count();
    mock.bad_results.fetch_add(bad as u64, Ordering::Relaxed);

    let tools = request["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let spawn = tools.iter().map(|tool| &tool["function"]).find(|tool| tool["name"] == "AgentTool");
    let (mut message, reason) = match spawn {
        Some(tool) if results.is_empty() => (call(tool, number), "tool_calls"),
        Some(_) | None => (json!({ "role": "assistant", "content": ANSWER }), "stop"),
    };
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12 });
    if request["stream"] == true {
        if let Some(call) = message.pointer_mut("/tool_calls/0") {
            call["index"] = 0.into();
        }
        let delta = json!({ "choices": [{ "index": 0, "delta": message, "finish_reason": null }] });
        let end =
            json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }], "usage": usage });
        let events = format!("data: {delta}\n\ndata: {end}\n\ndata: [DONE]\n\n");
        return ([(CONTENT_TYPE, "text/event-stream")], events).into_response();
    }
    let choice = json!({ "index": 0, "message": message, "finish_reason": reason });
    let answer = json!({ "id": "a", "object": "chat.completion", "created": 1, "model": request["model"],
        "choices": [choice], "usage": usage });
    ([(CONTENT_TYPE, "application/json")], answer.to_string()).into_response()
}

/// A call with every argument that is required.
fn call(tool: &Value, number: u64) -> Value {
    let required = tool["parameters"]["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let arguments: Value = required
        .iter()
        .filter_map(Value::as_str)
        .map(|name| (name.to_owned(), if name == "subagent_type" { "child" } else { "go" }))
        .collect::<std::collections::BTreeMap<_, _>>()
        .into_iter()
        .map(|(name, value)| (name, Value::from(value)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    json!({ "role": "assistant", "content": null, "tool_calls": [{
        "id": format!("call_{number}"),
        "type": "function",
        "function": { "name": tool["name"], "arguments": arguments.to_string() },
    }] })
}
