//! What every call passes on its way in: its rule, the caller, the limit of calls, its deadline, and a net for panics.

use std::{any::Any, collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt as _;
use http::{HeaderMap, Request, Response};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body};
use tower::ServiceExt as _;
use tracing::{debug, error};

use super::{
    Route,
    body::{Guarded, Guards},
    metrics::{Meter, MethodMetrics},
    refuse::{self, Refused},
};
use crate::{
    auth::{Authenticator, Identity, Rule},
    shutdown::Shutdown,
};

/// gRPC's own header. At most eight digits and a unit.
const TIMEOUT_HEADER: &str = "grpc-timeout";

/// When the caller stops to wait; in the extensions of every request that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(pub Instant);

/// The way in.
pub(super) struct Edge {
    domain: &'static str,
    authenticator: Authenticator,
    methods: HashMap<&'static str, Method>,
    permits: Arc<Semaphore>,
    shutdown: Shutdown,
    closing: CancellationToken,
}

/// What [`Edge`] is made of.
pub(super) struct Setup {
    pub(super) domain: &'static str,
    pub(super) authenticator: Authenticator,
    pub(super) routes: HashMap<&'static str, (Route, &'static Rule)>,
    pub(super) streaming: Vec<String>,
    pub(super) calls_max: usize,
}

struct Method {
    route: Route,
    rule: &'static Rule,
    metrics: Arc<MethodMetrics>,
    /// Streams end when the server closes; an answer to a single question does not.
    streaming: bool,
    /// Health and reflection stand outside every limiter.
    unlimited: bool,
}

impl Deadline {
    /// The time left for a call further on, minus what the way there takes. `None` where there is none left.
    pub fn remaining(self, hop: Duration) -> Option<Duration> {
        self.0.checked_duration_since(Instant::now())?.checked_sub(hop)
    }
}

impl Edge {
    pub(super) fn new(setup: Setup, shutdown: Shutdown, closing: CancellationToken) -> Self {
        let Setup { domain, authenticator, routes, streaming, calls_max } = setup;
        let methods = routes
            .into_iter()
            .map(|(path, (route, rule))| {
                let unlimited = path.starts_with("/grpc.");
                let streaming = unlimited || streaming.iter().any(|streaming| streaming == path);
                let metrics = Arc::new(MethodMetrics::new(path));
                (path, Method { route, rule, metrics, streaming, unlimited })
            })
            .collect();
        Self {
            domain,
            authenticator,
            methods,
            permits: Arc::new(Semaphore::new(calls_max)),
            shutdown,
            closing,
        }
    }

    /// Serves one call to the end of its response headers; what follows is guarded by its body.
    pub(super) async fn call(&self, mut request: Request<Body>) -> Response<Body> {
        let Some(method) = self.methods.get(request.uri().path()) else {
            debug!(path = request.uri().path(), "unknown method");
            return refuse::response(self.domain, Refused::UnknownMethod);
        };
        let meter = Meter::start(&method.metrics);
        let (identity, permit) = match self.admit(method, request.headers()) {
            Ok(admitted) => admitted,
            Err(refused) => return meter.finish(refuse::response(self.domain, refused)),
        };
        let deadline = timeout(request.headers()).and_then(|timeout| Instant::now().checked_add(timeout));
        request.extensions_mut().insert(identity);
        if let Some(deadline) = deadline {
            request.extensions_mut().insert(Deadline(deadline));
        }

        let handler = AssertUnwindSafe(method.route.clone().oneshot(request)).catch_unwind();
        let outcome = match deadline {
            Some(deadline) => timeout_at(deadline, handler).await.map_err(|_| Refused::DeadlineExceeded),
            None => Ok(handler.await),
        };
        let response = match outcome {
            Ok(Ok(Ok(response))) => refuse::complete(self.domain, response),
            Ok(Ok(Err(never))) => match never {},
            Ok(Err(panic)) => {
                error!(method = method.rule.method, panic = panic_text(&*panic), "a handler panicked");
                refuse::response(self.domain, Refused::Panicked)
            }
            Err(refused) => refuse::response(self.domain, refused),
        };
        let guards = Guards {
            domain: self.domain,
            deadline,
            closing: method.streaming.then(|| self.closing.clone()),
            permit,
        };
        Guarded::wrap(response, meter, guards)
    }

    fn admit(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<(Identity, Option<OwnedSemaphorePermit>), Refused> {
        if method.unlimited && method.rule.anonymous {
            return Ok((Identity::anonymous(), None));
        }
        let identity = self.authenticator.admit(headers, method.rule).map_err(Refused::Access)?;
        if method.rule.starts_work && self.shutdown.is_draining() {
            return Err(Refused::Draining);
        }
        if method.unlimited {
            return Ok((identity, None));
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| Refused::Overloaded)?;
        Ok((identity, Some(permit)))
    }
}

/// The identity that the server found for a request.
///
/// A request that did not come through the server has none, and then nobody vouches for its caller.
pub fn identity<T>(request: &tonic::Request<T>) -> Result<&Identity, Status> {
    request
        .extensions()
        .get::<Identity>()
        .ok_or_else(|| Status::unauthenticated("the caller was not identified"))
}

fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT_HEADER)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3_600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text")
}

#[cfg(test)]
mod tests;
