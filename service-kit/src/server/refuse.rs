//! The refusals of the server itself, and `ErrorInfo` for those of the library below it, which sends none.

use std::time::Duration;

use http::{HeaderMap, Response};
use tonic::{Code, Status, body::Body};

use crate::{
    auth,
    status::{Reason, Verdict, refuse},
};

/// A shed caller comes back after this, plus its own jitter.
const OVERLOAD_RETRY: Duration = Duration::from_secs(1);

/// Another replica, or this one restarted, is there after this.
const DRAIN_RETRY: Duration = Duration::from_secs(1);

/// How a call ended, as gRPC says it in headers and trailers.
const GRPC_STATUS: &str = "grpc-status";

/// The refusals of this module, for the reason tables of both services.
pub const REASONS: &[Reason] = &[
    reason("UNKNOWN_METHOD", Code::Unimplemented, "The service has no such method, or not in this version."),
    reason(
        "DRAINING",
        Code::Unavailable,
        "The service is ending. Retry: another replica or its successor answers.",
    ),
    reason("OVERLOADED", Code::ResourceExhausted, "Too much is in flight. Retry after the delay given."),
    reason("DEADLINE_EXCEEDED", Code::DeadlineExceeded, "The deadline that the caller set passed."),
    reason("REQUEST_TOO_LARGE", Code::ResourceExhausted, "The request message is larger than 2 MiB."),
    reason(
        "RESPONSE_TOO_LARGE",
        Code::ResourceExhausted,
        "The answer would be larger than 4 MiB. Ask for less at a time.",
    ),
    reason("INTERNAL", Code::Internal, "A fault of the service; its log has the cause."),
];

const fn reason(reason: &'static str, code: Code, meaning: &'static str) -> Reason {
    Reason { reason, code, metadata: &[], meaning }
}

/// Why a call does not reach its handler, or its answer not its end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    Access(auth::Refusal),
    UnknownMethod,
    Draining,
    Overloaded,
    DeadlineExceeded,
    Panicked,
}

pub(super) fn status(domain: &'static str, refused: Refused) -> Status {
    match refused {
        Refused::Access(refusal) => refuse(domain, refusal.to_string(), refusal.verdict()),
        Refused::UnknownMethod => {
            refuse(domain, "no such method", Verdict::new(Code::Unimplemented, "UNKNOWN_METHOD"))
        }
        Refused::Draining => {
            let verdict = Verdict::new(Code::Unavailable, "DRAINING").retry_after(DRAIN_RETRY);
            refuse(domain, "the service is draining", verdict)
        }
        Refused::Overloaded => {
            let verdict = Verdict::new(Code::ResourceExhausted, "OVERLOADED").retry_after(OVERLOAD_RETRY);
            refuse(domain, "too many calls are in flight", verdict)
        }
        Refused::DeadlineExceeded => {
            let verdict = Verdict::new(Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
            refuse(domain, "the deadline of the call passed", verdict)
        }
        Refused::Panicked => refuse(domain, "internal error", Verdict::new(Code::Internal, "INTERNAL")),
    }
}

pub(super) fn response(domain: &'static str, refused: Refused) -> Response<Body> {
    status(domain, refused).into_http()
}

pub(super) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        trailers.insert(GRPC_STATUS, http::HeaderValue::from_static("13"));
    }
    trailers
}

/// A response whose refusal came from the library gets what ours have.
pub(super) fn complete(domain: &'static str, response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()).and_then(|status| completed(domain, &status)) {
        Some(status) => status.into_http(),
        None => response,
    }
}

/// True for the trailers of a call that went well, as nearly all do: told without reading all of them.
pub(super) fn is_ok(trailers: &HeaderMap) -> bool {
    trailers.get(GRPC_STATUS).is_some_and(|status| status == "0")
}

/// The same for a refusal at the end of a body; `None` where nothing is missing.
pub(super) fn complete_trailers(domain: &'static str, headers: &HeaderMap) -> Option<HeaderMap> {
    let status = Status::from_header_map(headers)?;
    Some(trailers(&completed(domain, &status)?))
}

fn completed(domain: &'static str, status: &Status) -> Option<Status> {
    if status.code() == Code::Ok || !status.details().is_empty() {
        return None;
    }
    let message = status.message();
    let (code, reason) = match status.code() {
        Code::OutOfRange if message.contains("encoded") => (Code::ResourceExhausted, "RESPONSE_TOO_LARGE"),
        Code::OutOfRange => (Code::ResourceExhausted, "REQUEST_TOO_LARGE"),
        Code::Unimplemented => (Code::Unimplemented, "UNKNOWN_METHOD"),
        Code::Internal if message.contains("decode") => (Code::InvalidArgument, "INVALID_REQUEST"),
        Code::InvalidArgument => (Code::InvalidArgument, "INVALID_REQUEST"),
        Code::Internal | Code::Unknown => (Code::Internal, "INTERNAL"),
        // Health answers `NOT_FOUND` for a name it does not know; its specification has no details.
        _ => return None,
    };
    Some(refuse(domain, message, Verdict::new(code, reason)))
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt as _;

    use super::*;

    #[test]
    fn every_refusal_carries_a_reason_of_the_table() {
        for refused in [
            Refused::UnknownMethod,
            Refused::Draining,
            Refused::Overloaded,
            Refused::DeadlineExceeded,
            Refused::Panicked,
        ] {
            let status = status("registry.roster", refused);
            let info = status.get_details_error_info().unwrap();
            let row = REASONS.iter().find(|row| row.reason == info.reason).unwrap();
            assert_eq!((row.code, info.domain.as_str()), (status.code(), "registry.roster"));
        }
    }

    #[test]
    fn refusals_of_the_library_are_completed_and_ours_left_alone() {
        let too_large = Status::out_of_range("decoded message length too large");
        let completed = completed("registry.roster", &too_large).unwrap();
        assert_eq!(completed.code(), Code::ResourceExhausted);
        assert_eq!(completed.get_details_error_info().unwrap().reason, "REQUEST_TOO_LARGE");

        let ours = status("registry.roster", Refused::Draining);
        assert!(super::completed("registry.roster", &ours).is_none());
        assert!(complete_trailers("registry.roster", &trailers(&Status::ok(""))).is_none());
        assert!(is_ok(&trailers(&Status::ok(""))) && !is_ok(&trailers(&ours)));
    }
}
