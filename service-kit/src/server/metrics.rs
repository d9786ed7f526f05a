//! Counts and times every call by method and code. Both are closed sets, so the labels are bounded.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use http::Response;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tonic::{Code, Status, body::Body};

use crate::status::code_name;

/// gRPC has this many codes.
const CODES: usize = 17;

/// The instruments of one method, looked up once.
pub(super) struct MethodMetrics {
    method: &'static str,
    handled: [OnceLock<Counter>; CODES],
    seconds: Histogram,
    in_flight: Gauge,
}

/// One call, counted when it is dropped; a call that nobody saw end was cancelled.
pub(super) struct Meter {
    metrics: Arc<MethodMetrics>,
    started: Instant,
    code: Code,
}

impl MethodMetrics {
    pub(super) fn new(method: &'static str) -> Self {
        Self {
            method,
            handled: [const { OnceLock::new() }; CODES],
            seconds: histogram!("grpc_server_handling_seconds", "method" => method),
            in_flight: gauge!("grpc_server_in_flight", "method" => method),
        }
    }

    fn handled(&self, code: Code) -> &Counter {
        let code_name = code_name(code);
        self.handled[code as usize].get_or_init(
            || counter!("grpc_server_handled_total", "method" => self.method, "code" => code_name),
        )
    }
}

impl Meter {
    pub(super) fn start(metrics: &Arc<MethodMetrics>) -> Self {
        metrics.in_flight.increment(1);
        Self { metrics: Arc::clone(metrics), started: Instant::now(), code: Code::Cancelled }
    }

    pub(super) fn set(&mut self, code: Code) {
        self.code = code;
    }

    /// Counts a response that has only headers.
    pub(super) fn finish(mut self, response: Response<Body>) -> Response<Body> {
        if let Some(status) = Status::from_header_map(response.headers()) {
            self.set(status.code());
        }
        response
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.metrics.in_flight.decrement(1);
        self.metrics.handled(self.code).increment(1);
        self.metrics.seconds.record(self.started.elapsed());
    }
}
