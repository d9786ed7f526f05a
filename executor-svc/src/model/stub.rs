//! A provider for tests, on a free port of this machine: it answers as it is told and remembers what it was asked.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};

const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The running server. It ends with the test.
pub(super) struct Stub {
    /// Without a path.
    pub(super) url: String,
    inner: Arc<Inner>,
    server: JoinHandle<()>,
}

/// One answer.
#[derive(Clone)]
pub(super) struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    pieces: Vec<Bytes>,
    is_cut: bool,
}

/// What a request was.
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

#[derive(Default)]
struct Inner {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<Asked>>,
    cuts: AtomicUsize,
}

impl Answer {
    /// An event stream, all at once.
    pub(super) fn stream(events: &str) -> Self {
        Self::new(200, "text/event-stream", events.to_owned())
    }

    pub(super) fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: vec![("content-type", content_type.to_owned())],
            pieces: vec![body.into()],
            is_cut: false,
        }
    }

    pub(super) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// The same body in pieces of three bytes, so that characters and lines are torn.
    pub(super) fn torn(mut self) -> Self {
        let body = self.pieces.concat();
        self.pieces = body.chunks(3).map(Bytes::copy_from_slice).collect();
        self
    }

    /// The connection breaks behind the body.
    pub(super) fn cut(mut self) -> Self {
        self.is_cut = true;
        self
    }
}

impl Stub {
    /// Gives the answers in order, one a request.
    pub(super) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let inner =
            Arc::new(Inner { answers: Mutex::new(answers.into_iter().collect()), ..Inner::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&inner));
        let server =
            tokio::spawn(async move { axum::serve(listener, router).await.expect("the stub serves") });
        Self { url, inner, server }
    }

    /// What was asked so far. Panics where planned answers are left, since then a test did not see what it is about.
    pub(super) fn finish(self) -> Vec<Asked> {
        let left = self.inner.answers.lock().len();
        assert_eq!(left, 0, "{left} planned answers were never asked for");
        std::mem::take(&mut self.inner.asked.lock())
    }

    /// The bodies of the requests so far.
    pub(super) fn asked(&self) -> Vec<Value> {
        self.inner.asked.lock().iter().map(|asked| asked.body.clone()).collect()
    }

    /// How many connections were broken on purpose.
    pub(super) fn cuts(&self) -> usize {
        self.inner.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX).await.expect("a request's body is small");
    inner.asked.lock().push(Asked {
        path: head.uri.path().to_owned(),
        headers: head.headers,
        body: serde_json::from_slice(&body).expect("a request is JSON"),
    });
    let unplanned = || Answer::new(418, "text/plain", "no more answers are planned");
    let Answer { status, headers, pieces, is_cut } =
        inner.answers.lock().pop_front().unwrap_or_else(unplanned);

    let pieces = pieces.into_iter().map(Ok::<_, std::io::Error>);
    let end = move || {
        is_cut.then(|| {
            inner.cuts.fetch_add(1, Ordering::SeqCst);
            Err(std::io::Error::other("cut on purpose"))
        })
    };
    // Yielding in between lets the pieces before a cut reach the socket.
    let end = stream::once(async move {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        end()
    });
    let body = stream::iter(pieces).chain(end.filter_map(std::future::ready));
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(Body::from_stream(body)).expect("the planned answer is a response")
}
