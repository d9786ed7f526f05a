//! The body of a response, guarded to its end: the deadline of the call, the end of the server, panics, and its count.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep, sleep_until},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Code, Status, body::Body};
use tracing::error;

use super::{
    call::panic_text,
    metrics::Meter,
    refuse::{self, Refused},
    stall::{self, OnStall, Stream},
};

/// What a body is held to.
pub(super) struct Guards {
    pub(super) domain: &'static str,
    pub(super) deadline: Option<Instant>,
    pub(super) closing: Option<CancellationToken>,
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// A response body that ends on time and is counted when it ends.
pub(super) struct Guarded {
    inner: Body,
    domain: &'static str,
    deadline: Option<Pin<Box<Sleep>>>,
    closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    account: Account,
    ended: bool,
}

/// Where a call is counted and what it occupies, until it ends.
enum Account {
    /// An answer to a single question: its body is its own.
    Own { meter: Meter, _permit: Option<OwnedSemaphorePermit> },
    /// A stream, which may have to be ended while nobody asks its body for more.
    Shared(Arc<Stream>),
}

impl Account {
    fn set(&mut self, code: Code) {
        match self {
            Self::Own { meter, _permit } => meter.set(code),
            Self::Shared(stream) => stream.set(code),
        }
    }
}

impl Guarded {
    /// Guards a response; one that has only headers is counted at once.
    pub(super) fn wrap(response: Response<Body>, mut meter: Meter, guards: Guards) -> Response<Body> {
        if let Some(status) = Status::from_header_map(response.headers()) {
            meter.set(status.code());
            return response;
        }
        let Guards { domain, deadline, closing, permit } = guards;
        let account = if closing.is_some() {
            let stream = Stream::new(meter, permit);
            let too_late = deadline.map(|at| (at, refuse::status(domain, Refused::DeadlineExceeded)));
            stall::watch(&stream, too_late, response.extensions().get::<OnStall>().cloned());
            Account::Shared(stream)
        } else {
            Account::Own { meter, _permit: permit }
        };
        response.map(|inner| {
            Body::new(Self {
                inner,
                domain,
                deadline: deadline.map(|deadline| Box::pin(sleep_until(deadline))),
                closing: closing.map(|closing| Box::pin(closing.cancelled_owned())),
                account,
                ended: false,
            })
        })
    }

    /// Ends the body with a status of ours.
    fn end(&mut self, refused: Refused) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let status = refuse::status(self.domain, refused);
        self.end_with(&status)
    }

    fn end_with(&mut self, status: &Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.ended = true;
        self.inner = Body::empty();
        self.account.set(status.code());
        Poll::Ready(Some(Ok(Frame::trailers(refuse::trailers(status)))))
    }

    fn expired(&mut self, context: &mut Context<'_>) -> Option<Refused> {
        let deadline = self.deadline.as_mut().is_some_and(|sleep| sleep.as_mut().poll(context).is_ready());
        if deadline {
            return Some(Refused::DeadlineExceeded);
        }
        let closing = self.closing.as_mut().is_some_and(|closing| closing.as_mut().poll(context).is_ready());
        closing.then_some(Refused::Draining)
    }
}

impl http_body::Body for Guarded {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Account::Shared(stream) = &self.account
            && let Some(last_word) = stream.asked()
        {
            return self.end_with(&last_word);
        }
        if let Some(refused) = self.expired(context) {
            return self.end(refused);
        }
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.inner).poll_frame(context)));
        match polled {
            Ok(Poll::Ready(Some(Ok(frame)))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    if refuse::is_ok(trailers) {
                        self.account.set(Code::Ok);
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    let code =
                        Status::from_header_map(trailers).map_or(Code::Unknown, |status| status.code());
                    self.account.set(code);
                    return match refuse::complete_trailers(self.domain, trailers) {
                        Some(completed) => Poll::Ready(Some(Ok(Frame::trailers(completed)))),
                        None => Poll::Ready(Some(Ok(frame))),
                    };
                }
                if let Account::Shared(stream) = &self.account {
                    stream.given();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Ok(polled) => polled,
            Err(panic) => {
                error!(panic = panic_text(&*panic), "a stream panicked");
                self.end(Refused::Panicked)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
