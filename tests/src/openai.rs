//! A server that speaks OpenAI's chat completions and answers with what the test wrote.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::post,
};
use futures::stream;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Barrier, Notify},
    task::JoinHandle,
};

/// A running server. It ends when it is dropped.
pub struct OpenAi {
    pub base_url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// One answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Text in pieces, as a model streams it.
    Text(Vec<&'static str>),
    /// Calls of tools: name and arguments.
    Calls(Vec<(&'static str, Value)>),
    /// Words, and calls with them.
    Both(String, Vec<(String, Value)>),
    /// Nothing until the test is over: a model that hangs.
    Silence,
}

struct Shared {
    answers: Answers,
    crowd: Option<Crowd>,
    requests: Mutex<Vec<Value>>,
    asked: Notify,
}

/// Requests that have to be there at the same time before the first of them is answered.
struct Crowd {
    all_are_here: Barrier,
    latency: Duration,
}

/// Where answers come from.
enum Answers {
    /// One after the other, and silence behind the last.
    Listed(Mutex<VecDeque<Answer>>),
    /// Made from what is asked.
    Made(Box<dyn Fn(&Value) -> Answer + Send + Sync>),
}

impl OpenAi {
    pub async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with(Answers::Listed(Mutex::new(answers.into_iter().collect())), None).await
    }

    /// A model whose answers follow from the requests.
    pub async fn answering(make: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> Self {
        Self::with(Answers::Made(Box::new(make)), None).await
    }

    /// The same for requests that come `size` at a time: each is answered `latency` after the last of them has come. It keeps
    /// none of them.
    pub async fn answering_crowds(
        size: usize,
        latency: Duration,
        make: impl Fn(&Value) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let crowd = Crowd { all_are_here: Barrier::new(size), latency };
        Self::with(Answers::Made(Box::new(make)), Some(crowd)).await
    }

    async fn with(answers: Answers, crowd: Option<Crowd>) -> Self {
        let shared = Arc::new(Shared { answers, crowd, requests: Mutex::default(), asked: Notify::new() });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("a bound address"));
        let router =
            Router::new().route("/v1/chat/completions", post(complete)).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("the mock serves");
        });
        Self { base_url, shared, task }
    }

    /// What was asked so far.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.requests.lock().expect("no test panics with the lock").clone()
    }

    /// Resolves once a request has arrived since the last call.
    pub async fn asked(&self) {
        self.shared.asked.notified().await;
    }
}

impl Drop for OpenAi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn complete(State(shared): State<Arc<Shared>>, request: Bytes) -> Response {
    let request = serde_json::from_slice(&request).expect("a request is JSON");
    let answer = match &shared.answers {
        Answers::Listed(answers) => answers.lock().expect("no test panics with the lock").pop_front(),
        Answers::Made(make) => Some(make(&request)),
    };
    match &shared.crowd {
        Some(Crowd { all_are_here, latency }) => {
            all_are_here.wait().await;
            tokio::time::sleep(*latency).await;
        }
        None => shared.requests.lock().expect("no test panics with the lock").push(request),
    }
    shared.asked.notify_one();
    let deltas = match answer {
        Some(Answer::Text(pieces)) => pieces.into_iter().map(|text| json!({ "content": text })).collect(),
        Some(Answer::Calls(calls)) => {
            calls.iter().enumerate().map(|(index, (name, arguments))| delta(index, name, arguments)).collect()
        }
        Some(Answer::Both(text, calls)) => {
            let calls =
                calls.iter().enumerate().map(|(index, (name, arguments))| delta(index, name, arguments));
            std::iter::once(json!({ "content": text })).chain(calls).collect::<Vec<_>>()
        }
        Some(Answer::Silence) | None => return std::future::pending().await,
    };
    let mut events: Vec<String> = deltas
        .into_iter()
        .map(|delta| json!({ "choices": [{ "index": 0, "delta": delta }] }).to_string())
        .collect();
    let usage = json!({ "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 });
    events.push(json!({ "choices": [], "usage": usage }).to_string());
    events.push("[DONE]".to_owned());
    let chunks = events.into_iter().map(|event| Ok::<_, Infallible>(format!("data: {event}\n\n")));
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream::iter(chunks))).into_response()
}

/// The piece of an answer that calls a tool.
fn delta(index: usize, name: &str, arguments: &Value) -> Value {
    json!({ "tool_calls": [{
        "index": index,
        "id": format!("call-{index}"),
        "type": "function",
        "function": { "name": name, "arguments": arguments.to_string() },
    }] })
}
