//! The same over HTTP: answers of every form and size, refusals, and connections that break.

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use futures::stream;
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::*;

/// Longer than any message that is held whole.
const VAST: usize = 50_000_000;

/// A server of tools that are called after what they do.
struct HttpServer {
    url: String,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

/// What a server has been told.
struct Seen {
    messages: watch::Sender<Vec<Value>>,
    /// The session that it knows; every earlier one is gone.
    session: watch::Sender<u32>,
}

impl HttpServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let seen = Arc::new(Seen { messages: watch::Sender::default(), session: watch::Sender::default() });
        let router = Router::new().route("/mcp", post(answer)).with_state(Arc::clone(&seen));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, seen, task }
    }

    /// The first message that fits, once it is there.
    async fn told(&self, fits: impl Fn(&Value) -> bool) -> Value {
        let mut messages = self.seen.messages.subscribe();
        let told = messages.wait_for(|all| all.iter().any(&fits));
        let all = tokio::time::timeout(PATIENCE, told).await.expect("it is told in time").unwrap();
        all.iter().find(|message| fits(message)).unwrap().clone()
    }

    fn fixture(&self) -> Fixture {
        Fixture::with("", |server| {
            *server = config::Server {
                url: Some(self.url.clone()),
                trust_annotations: true,
                start_timeout: Span(PATIENCE),
                ..config::Server::default()
            };
        })
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(seen): State<Arc<Seen>>, headers: HeaderMap, request: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&request).unwrap();
    seen.messages.send_modify(|all| all.push(request.clone()));
    let reply = |result: Value| json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    let names = ["document", "events", "pretty", "refusal", "page", "cut", "endless", "echo", "hang"];
    let method = request["method"].as_str().unwrap();
    let session = seen.session.borrow().to_string();
    if method != "initialize" && headers.get("mcp-session-id").is_none_or(|given| *given != session) {
        return StatusCode::NOT_FOUND.into_response();
    }
    match method {
        "initialize" => {
            let answer = document(&reply(json!({
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "http", "version": "1"},
            })));
            ([("mcp-session-id", session)], answer).into_response()
        }
        "tools/list" => {
            let tools = names.map(|name| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}));
            document(&reply(json!({ "tools": tools })))
        }
        "tools/call" if request["params"]["name"] == "hang" => std::future::pending().await,
        "tools/call" => call_answer(request["params"]["name"].as_str().unwrap(), &reply),
        method if method.starts_with("notifications/") => StatusCode::ACCEPTED.into_response(),
        _ => document(&reply(json!({}))),
    }
}

fn call_answer(name: &str, reply: &dyn Fn(Value) -> Value) -> Response {
    let vast =
        || reply(json!({"content": [{"type": "text", "text": format!("begin {}", "x".repeat(VAST))}]}));
    match name {
        "document" => document(&vast()),
        "pretty" => typed("application/json; charset=utf-8", format!("{:#}", vast()).into()),
        "events" => {
            typed("text/event-stream", format!(": hello\n\nevent: message\ndata: {}\n\n", vast()).into())
        }
        "refusal" => {
            let mut error = reply(Value::Null);
            error.as_object_mut().unwrap().remove("result");
            error["error"] = json!({"code": -32602, "message": "no such city"});
            (StatusCode::BAD_REQUEST, document(&error)).into_response()
        }
        "echo" => document(&reply(json!({"content": [{"type": "text", "text": "hello"}]}))),
        "page" => (StatusCode::BAD_GATEWAY, "<html>Bad Gateway</html>").into_response(),
        "cut" => {
            let begin = Ok::<_, std::io::Error>(Bytes::from_static(b"{\"jsonrpc\": "));
            let cut = Err(std::io::Error::other("cut on purpose"));
            typed("application/json", Body::from_stream(stream::iter([begin, cut])))
        }
        _ => {
            let many = "\"text\",".repeat(2_000_000);
            typed("application/json", format!("[{many}null]").into())
        }
    }
}

fn document(value: &Value) -> Response {
    typed("application/json", value.to_string().into())
}

fn typed(kind: &'static str, body: Body) -> Response {
    ([("content-type", kind)], body).into_response()
}

#[tokio::test]
async fn a_vast_answer_is_cut_in_every_form_that_it_may_have() {
    let server = HttpServer::start().await;
    let fixture = server.fixture();

    for form in ["document", "pretty", "events"] {
        let text = fixture.call(form).await.unwrap_or_else(|error| panic!("{form}: {error}"));
        assert!(text.starts_with("begin xxx") && text.len() <= RESULT_MAX, "{form}: {text}");
        assert!(text.ends_with(" bytes more)"), "{form}: {text}");
    }
    fixture.servers.close().await;
}

#[tokio::test]
async fn a_refusal_is_told_and_a_break_is_of_unknown_outcome() {
    let server = HttpServer::start().await;
    let fixture = server.fixture();

    let error = fixture.call("refusal").await.unwrap_err();
    assert!(error.contains("refused the call: no such city"), "{error}");
    for name in ["page", "cut", "endless"] {
        let tool = fixture.tool(name).await;
        let error = tool.call(&context(), &json!({})).await.unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{name}: {error:?}");
    }
    fixture.servers.close().await;
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_at_the_server_by_http_too() {
    let server = HttpServer::start().await;
    let fixture = server.fixture();
    let hang = fixture.tool("hang").await;
    let is_call = |message: &Value| message["params"]["name"] == "hang";

    // Dropped in the middle, as the caller's timeout does it.
    let context = context();
    let called = tokio::select! {
        answer = call(&*hang, &context) => panic!("{answer:?}"),
        called = server.told(is_call) => called,
    };

    let is_cancelled = |message: &Value| message["method"] == "notifications/cancelled";
    let cancelled = server.told(is_cancelled).await;
    assert_eq!(cancelled["params"]["requestId"], called["id"]);
    assert_eq!(fixture.call("echo").await.unwrap(), "hello", "the server goes on");
    fixture.servers.close().await;
}

#[tokio::test]
async fn a_server_that_has_forgotten_its_session_is_greeted_again() {
    let server = HttpServer::start().await;
    let fixture = server.fixture();
    let echo = fixture.tool("echo").await;
    assert_eq!(call(&*echo, &context()).await.unwrap(), "hello");

    server.seen.session.send_modify(|session| *session += 1);

    assert_eq!(call(&*echo, &context()).await.unwrap(), "hello");
    let greetings = server.seen.messages.borrow().iter().filter(|it| it["method"] == "initialize").count();
    assert_eq!(greetings, 2);
    fixture.servers.close().await;
}
