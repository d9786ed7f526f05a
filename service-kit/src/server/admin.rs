//! The admin port: `/livez`, `/readyz` and `/metrics` over plain HTTP/1, outside every limiter of the service.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{net::TcpStream, sync::OwnedSemaphorePermit};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::debug;

use super::Readiness;

/// A client of this port sends one short request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Samples are folded into buckets this often, so that they do not pile up where nobody scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Serves the admin port.
pub(super) struct Admin {
    pages: Arc<Pages>,
    tasks: TaskTracker,
    cut: CancellationToken,
}

struct Pages {
    recorder: PrometheusHandle,
    readiness: Readiness,
}

impl Admin {
    pub(super) fn new(
        recorder: PrometheusHandle,
        readiness: Readiness,
        tasks: TaskTracker,
        cut: CancellationToken,
    ) -> Self {
        Self { pages: Arc::new(Pages { recorder, readiness }), tasks, cut }
    }

    pub(super) fn serve(&self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        let pages = Arc::clone(&self.pages);
        let cut = self.cut.clone();
        let service = service_fn(move |request| {
            let response = pages.answer(&request);
            async move { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        self.tasks.spawn(async move {
            let _permit = permit;
            tokio::select! {
                result = connection => if let Err(error) = result {
                    debug!(%error, "admin connection failed");
                },
                () = cut.cancelled() => {}
            }
        });
    }

    pub(super) async fn upkeep(&self, stop: &CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(UPKEEP_INTERVAL) => self.pages.recorder.run_upkeep(),
            }
        }
    }
}

impl Pages {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return page(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        }
        match request.uri().path() {
            "/livez" => page(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" if self.readiness.is_ready() => page(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => page(StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned()),
            "/metrics" => page(StatusCode::OK, self.recorder.render()),
            _ => page(StatusCode::NOT_FOUND, "/livez /readyz /metrics\n".to_owned()),
        }
    }
}

fn page(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    response
}
