//! Calls through the edge in memory: no socket, so the clock can be held.

use std::convert::Infallible;

use http_body_util::BodyExt as _;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{advance, sleep},
};
use tonic::Code;
use tonic_types::StatusExt as _;
use tower::service_fn;

use super::*;
use crate::{
    auth::{Credentials, Role},
    server::stall::{self, OnStall},
};

const METHOD: &str = "/roster.test.v1.TestService/Do";
const RULES: &[Rule] = &[Rule::work(METHOD, &[Role::Reader], true)];

struct Fixture {
    edge: Arc<Edge>,
    shutdown: Shutdown,
    closing: CancellationToken,
    _data: tempfile::TempDir,
}

impl Fixture {
    fn new<F>(handler: impl Fn(Request<Body>) -> F + Clone + Send + Sync + 'static, calls_max: usize) -> Self
    where
        F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
    {
        let data = tempfile::tempdir().unwrap();
        let (shutdown, closing) = (Shutdown::new(), CancellationToken::new());
        let setup = Setup {
            domain: "test.roster",
            authenticator: Authenticator::open(data.path(), &Credentials::default()).unwrap(),
            routes: [(METHOD, (Route::new(service_fn(handler)), &RULES[0]))].into(),
            streaming: vec![METHOD.to_owned()],
            calls_max,
        };
        let edge = Arc::new(Edge::new(setup, shutdown.clone(), closing.clone()));
        Self { edge, shutdown, closing, _data: data }
    }

    fn request(&self, path: &str, timeout: Option<&str>) -> Request<Body> {
        let mut request = Request::builder().uri(path);
        if let Some(timeout) = timeout {
            request = request.header(TIMEOUT_HEADER, timeout);
        }
        request.body(Body::empty()).unwrap()
    }

    async fn call(&self, path: &str, timeout: Option<&str>) -> Response<Body> {
        self.edge.call(self.request(path, timeout)).await
    }

    fn free(&self) -> usize {
        self.edge.permits.available_permits()
    }
}

/// A stream that says nothing and does not end.
async fn silent(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    let frames = futures::stream::pending::<Result<http_body::Frame<bytes::Bytes>, Status>>();
    Ok(Response::new(Body::new(http_body_util::StreamBody::new(frames))))
}

/// A stream that always has something to say, and what it ends with where nobody listens.
async fn talkative(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    let frame = || Ok::<_, Status>(http_body::Frame::data(bytes::Bytes::from("word")));
    let frames = futures::stream::repeat_with(frame);
    let mut response = Response::new(Body::new(http_body_util::StreamBody::new(frames)));
    response.extensions_mut().insert(OnStall(refuse::status("test.roster", Refused::Panicked)));
    Ok(response)
}

/// A stream in the task of its connection, and the peer's side of it.
struct Served {
    task: JoinHandle<()>,
    take: mpsc::Sender<oneshot::Sender<HeaderMap>>,
}

impl Served {
    async fn new(fixture: &Fixture, timeout: Option<&str>) -> Self {
        let request = fixture.request(METHOD, timeout);
        let edge = Arc::clone(&fixture.edge);
        let (take, mut taken) = mpsc::channel::<oneshot::Sender<HeaderMap>>(1);
        let served = Self {
            task: tokio::spawn(stall::watched(async move {
                let mut body = edge.call(request).await.into_body();
                while let Some(reply) = taken.recv().await {
                    let frame = body.frame().await.expect("it has not ended").expect("no error");
                    let _ = reply.send(frame.into_trailers().unwrap_or_default());
                }
            })),
            take,
        };
        served.take().await;
        served
    }

    /// Makes room for one frame; answers the trailers if it was them.
    async fn take(&self) -> HeaderMap {
        let (reply, answer) = oneshot::channel();
        self.take.send(reply).await.expect("it is served");
        answer.await.expect("it is served")
    }
}

async fn never(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    std::future::pending().await
}

#[track_caller]
fn check(headers: &HeaderMap, code: Code, reason: &str) {
    let status = Status::from_header_map(headers).expect("a status");
    assert_eq!(status.code(), code, "{status:?}");
    let info = status.get_details_error_info().expect("an ErrorInfo");
    assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason, "test.roster"));
}

async fn trailers(response: Response<Body>) -> HeaderMap {
    response.into_body().collect().await.expect("the body ends well").trailers().cloned().expect("trailers")
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_too_slow_is_answered_for_it() {
    let fixture = Fixture::new(never, 1);

    let response = fixture.call(METHOD, Some("2S")).await;

    check(response.headers(), Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_bounds_the_body_too() {
    let fixture = Fixture::new(silent, 1);

    let started = Instant::now();
    let response = fixture.call(METHOD, Some("2S")).await;
    assert!(started.elapsed().is_zero());

    check(&trailers(response).await, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    assert_eq!(started.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_handler_knows_its_caller_and_its_deadline() {
    let handler = |request: Request<Body>| async move {
        let Deadline(deadline) = *request.extensions().get::<Deadline>().expect("a deadline");
        assert_eq!(deadline - Instant::now(), Duration::from_secs(2));
        assert!(request.extensions().get::<Identity>().expect("an identity").is_anonymous());
        Ok(Status::aborted("reached").into_http())
    };
    let fixture = Fixture::new(handler, 1);

    let response = fixture.call(METHOD, Some("2S")).await;

    assert_eq!(Status::from_header_map(response.headers()).unwrap().code(), Code::Aborted);
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_peer_takes_nothing_is_ended_and_says_so_later() {
    let fixture = Fixture::new(talkative, 1);
    let served = Served::new(&fixture, None).await;

    advance(stall::STALL_MAX - Duration::from_millis(1)).await;
    assert_eq!(fixture.free(), 0);
    sleep(Duration::from_millis(2)).await;
    assert_eq!(fixture.free(), 1);

    check(&served.take().await, Code::Internal, "INTERNAL");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_comes_back_for_is_reset() {
    let fixture = Fixture::new(talkative, 1);
    let started = Instant::now();
    let served = Served::new(&fixture, None).await;

    served.task.await.unwrap();

    assert_eq!(started.elapsed().as_secs(), (stall::STALL_MAX + stall::LINGER).as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_slow_peer_that_takes_something_now_and_then_keeps_its_stream() {
    let fixture = Fixture::new(talkative, 1);
    let served = Served::new(&fixture, None).await;

    for _ in 0..20 {
        sleep(stall::STALL_MAX - Duration::from_millis(1)).await;
        assert!(served.take().await.is_empty());
    }

    assert_eq!(fixture.free(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_nothing_to_say_may_be_silent_for_long() {
    let handler = |request| async move {
        let mut response = silent(request).await?;
        response.extensions_mut().insert(OnStall(refuse::status("test.roster", Refused::Panicked)));
        Ok(response)
    };
    let fixture = Fixture::new(handler, 1);
    let edge = Arc::clone(&fixture.edge);
    let request = fixture.request(METHOD, None);
    let serving = stall::watched(async move { edge.call(request).await.into_body().frame().await });

    assert!(tokio::time::timeout(stall::LINGER * 2, serving).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_also_ends_a_stream_whose_peer_takes_nothing() {
    let fixture = Fixture::new(talkative, 1);
    let served = Served::new(&fixture, Some("2S")).await;

    advance(Duration::from_millis(1_999)).await;
    assert_eq!(fixture.free(), 0);
    sleep(Duration::from_millis(2)).await;
    assert_eq!(fixture.free(), 1);

    check(&served.take().await, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
}

#[tokio::test]
async fn calls_beyond_the_limit_are_shed_until_a_body_ends() {
    let fixture = Fixture::new(silent, 1);

    let first = fixture.call(METHOD, None).await;
    let shed = fixture.call(METHOD, None).await;
    drop(first);
    let next = fixture.call(METHOD, None).await;

    check(shed.headers(), Code::ResourceExhausted, "OVERLOADED");
    let delay = Status::from_header_map(shed.headers()).unwrap().get_details_retry_info();
    assert_eq!(delay.unwrap().retry_delay, Some(Duration::from_secs(1)));
    assert!(Status::from_header_map(next.headers()).is_none());
}

#[tokio::test]
async fn a_panic_is_an_internal_failure_that_tells_nothing() {
    let handler = |_: Request<Body>| async { panic!("the secret is 42") };
    let fixture = Fixture::new(handler, 1);

    let response = fixture.call(METHOD, None).await;

    check(response.headers(), Code::Internal, "INTERNAL");
    assert!(!format!("{:?}", response.headers()).contains("42"));
}

#[tokio::test]
async fn a_panic_in_a_stream_ends_it_with_a_status() {
    let handler = |_: Request<Body>| async {
        let poll = |_: &mut std::task::Context<'_>| panic!("in the stream");
        let frames = futures::stream::poll_fn::<Result<http_body::Frame<bytes::Bytes>, Status>, _>(poll);
        Ok(Response::new(Body::new(http_body_util::StreamBody::new(frames))))
    };
    let fixture = Fixture::new(handler, 1);

    let response = fixture.call(METHOD, None).await;

    check(&trailers(response).await, Code::Internal, "INTERNAL");
}

#[tokio::test]
async fn draining_refuses_new_work_and_closing_ends_streams() {
    let fixture = Fixture::new(silent, 2);
    let open = fixture.call(METHOD, None).await;

    fixture.shutdown.begin();
    let refused = fixture.call(METHOD, None).await;
    fixture.closing.cancel();

    check(refused.headers(), Code::Unavailable, "DRAINING");
    check(&trailers(open).await, Code::Unavailable, "DRAINING");
}

#[tokio::test]
async fn what_has_no_rule_cannot_be_called() {
    let fixture = Fixture::new(never, 1);

    let response = fixture.call("/roster.test.v1.TestService/Undo", None).await;

    check(response.headers(), Code::Unimplemented, "UNKNOWN_METHOD");
}

#[test]
fn timeouts_are_read_as_grpc_writes_them() {
    for (text, expected) in [
        ("1H", Some(Duration::from_secs(3_600))),
        ("90S", Some(Duration::from_secs(90))),
        ("250m", Some(Duration::from_millis(250))),
        ("99999999n", Some(Duration::from_nanos(99_999_999))),
        ("123456789S", None),
        ("S", None),
        ("", None),
        ("-1S", None),
        ("1s", None),
        ("1é", None),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(TIMEOUT_HEADER, http::HeaderValue::from_bytes(text.as_bytes()).unwrap());
        assert_eq!(timeout(&headers), expected, "{text}");
    }
    assert_eq!(timeout(&HeaderMap::new()), None);
}
