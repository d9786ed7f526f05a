//! Everything a caller may learn from a failure: one table from error to status.

use std::time::Duration;

use service_kit::{
    auth, page, server,
    status::{self, Reason, Verdict},
};
use tonic::{Code, Status};

use crate::{error::Error, snapshot::Miss};

/// The domain of every `ErrorInfo` of this service.
pub const DOMAIN: &str = "registry.roster";

/// Another replica, or this one restarted, is there after this.
const DRAIN_RETRY: Duration = Duration::from_secs(1);

/// Why the edge itself refuses a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("`{field}` {description}")]
    InvalidRequest { field: &'static str, description: String },
    #[error("generation {generation} is no longer kept; list again from the first page")]
    PageExpired { generation: u64 },
    #[error("the watch fell too far behind; begin again")]
    WatchLagged,
    #[error("the service is draining; watch another replica, or this one when it is back")]
    Draining,
}

/// The reasons of this service, in the order of its documentation.
pub fn reasons() -> Vec<Reason> {
    let own = [
        reason(
            "INVALID_REQUEST",
            Code::InvalidArgument,
            &[],
            "An argument or a page token is not valid; `BadRequest` names the field.",
        ),
        reason(
            "WORKSPACE_NOT_FOUND",
            Code::NotFound,
            &["workspace"],
            "There is no such workspace, or the caller may not see it.",
        ),
        reason(
            "UNKNOWN_AGENT",
            Code::NotFound,
            &["agent", "suggestion", "available_count"],
            "Nothing in force has the name. The message lists the names there are.",
        ),
        reason(
            "AGENT_BROKEN",
            Code::FailedPrecondition,
            &["agent", "path", "codes"],
            "A document that cannot be used keeps the name. Mend it, or remove it.",
        ),
        reason(
            "UNKNOWN_DIGEST",
            Code::NotFound,
            &["agent", "digest"],
            "No candidate of the name has the digest, or its file has changed since.",
        ),
        reason("UNKNOWN_COMMAND", Code::NotFound, &["command"], "There is no such command."),
        reason(
            "PAGE_EXPIRED",
            Code::Aborted,
            &["generation"],
            "The generation of the listing is no longer kept. List again from the first page.",
        ),
        reason(
            "WATCH_LAGGED",
            Code::Aborted,
            &[],
            "The watcher read too slowly. Watch again from the last generation.",
        ),
        reason(
            "INVALID_DOCUMENT",
            Code::InvalidArgument,
            &[],
            "The document cannot be used; `BadRequest` has one violation an error.",
        ),
        reason(
            "NAME_MISMATCH",
            Code::InvalidArgument,
            &["expected", "actual"],
            "The document defines another name than `expected_name`.",
        ),
        reason(
            "DIGEST_MISMATCH",
            Code::Aborted,
            &["expected", "actual"],
            "The authored definition is another than `expected_digest`. Read it again, then retry.",
        ),
        reason(
            "REQUEST_ID_REUSED",
            Code::InvalidArgument,
            &["request_id"],
            "The same caller used the id with other content within 24 h.",
        ),
        reason(
            "NOT_AUTHORED",
            Code::FailedPrecondition,
            &["agent"],
            "Only files define the name; `Remove` takes away authored definitions.",
        ),
        reason(
            "TOO_MANY_DEFINITIONS",
            Code::ResourceExhausted,
            &["maximum"],
            "The workspace holds as many authored definitions as it may.",
        ),
        reason(
            "STORE_FAILED",
            Code::Internal,
            &[],
            "The store failed; nothing was written. The log of the service has the cause.",
        ),
        reason(
            "SCAN_FAILED",
            Code::Internal,
            &[],
            "Reading the sources ended unexpectedly; what was in force stays. The log has the cause.",
        ),
    ];
    own.into_iter().chain(auth::REASONS.iter().copied()).chain(server::REASONS.iter().copied()).collect()
}

/// The registry's part of `docs/errors.md`.
pub fn reference() -> String {
    status::reference("registry-svc", DOMAIN, &reasons())
}

impl Failure {
    pub(super) fn invalid(field: &'static str, description: impl Into<String>) -> Self {
        Self::InvalidRequest { field, description: description.into() }
    }
}

impl From<page::Invalid> for Failure {
    fn from(invalid: page::Invalid) -> Self {
        match invalid {
            page::Invalid::Token => Self::invalid("page_token", "is not one that this listing gave out"),
            page::Invalid::Size => Self::invalid("page_size", "is negative"),
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let verdict = match &failure {
            Failure::InvalidRequest { field, description } => {
                Verdict::new(Code::InvalidArgument, "INVALID_REQUEST").violation(*field, description)
            }
            Failure::PageExpired { generation } => {
                Verdict::new(Code::Aborted, "PAGE_EXPIRED").with("generation", generation)
            }
            Failure::WatchLagged => Verdict::new(Code::Aborted, "WATCH_LAGGED"),
            Failure::Draining => draining(),
        };
        status::render(DOMAIN, &failure, verdict)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        status::render(DOMAIN, &error, verdict(&error))
    }
}

fn verdict(error: &Error) -> Verdict {
    match error {
        Error::WorkspaceNotFound { workspace } => Verdict::new(Code::NotFound, "WORKSPACE_NOT_FOUND")
            .with("workspace", workspace)
            .resource("workspace", workspace),
        Error::Miss(miss) => missed(miss),
        Error::UnknownDigest { name, digest } => {
            Verdict::new(Code::NotFound, "UNKNOWN_DIGEST").with("agent", name).with("digest", digest)
        }
        Error::UnknownCommand { name } => {
            Verdict::new(Code::NotFound, "UNKNOWN_COMMAND").with("command", name).resource("command", name)
        }
        Error::InvalidDocument { diagnostics } => diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.is_error())
            .fold(Verdict::new(Code::InvalidArgument, "INVALID_DOCUMENT"), |verdict, diagnostic| {
                let field = format!("document:{}:{}", diagnostic.line, diagnostic.column);
                verdict.violation(field, format!("{} {}", diagnostic.code.as_str(), diagnostic.message))
            }),
        Error::NameMismatch { expected, actual } => Verdict::new(Code::InvalidArgument, "NAME_MISMATCH")
            .with("expected", expected)
            .with("actual", actual)
            .violation("expected_name", format!("the document defines `{actual}`")),
        Error::DigestMismatch { expected, actual } => {
            Verdict::new(Code::Aborted, "DIGEST_MISMATCH").with("expected", expected).with("actual", actual)
        }
        Error::RequestIdReused { request_id } => Verdict::new(Code::InvalidArgument, "REQUEST_ID_REUSED")
            .with("request_id", request_id)
            .violation("request_id", "was used with other content"),
        Error::NotAuthored { name } => {
            Verdict::new(Code::FailedPrecondition, "NOT_AUTHORED").with("agent", name).resource("agent", name)
        }
        Error::AdministratorRequired { name, action: _ } => {
            Verdict::new(Code::PermissionDenied, "ROLE_REQUIRED").with("roles", "admin").with("agent", name)
        }
        Error::TooManyAuthored { max } => Verdict::new(Code::ResourceExhausted, "TOO_MANY_DEFINITIONS")
            .with("maximum", max)
            .quota("authored definitions", format!("at most {max} in a workspace")),
        Error::Store(_) => Verdict::new(Code::Internal, "STORE_FAILED"),
        Error::Stopping => draining(),
        Error::ScanFailed => Verdict::new(Code::Internal, "SCAN_FAILED"),
    }
}

fn missed(miss: &Miss) -> Verdict {
    match miss {
        Miss::Unknown { name, available: _, suggestion, available_count } => {
            let verdict = Verdict::new(Code::NotFound, "UNKNOWN_AGENT")
                .with("agent", name)
                .with("available_count", available_count)
                .resource("agent", name);
            match suggestion {
                Some(suggestion) => verdict.with("suggestion", suggestion),
                None => verdict,
            }
        }
        Miss::Broken { name, path, codes } => Verdict::new(Code::FailedPrecondition, "AGENT_BROKEN")
            .with("agent", name)
            .with("path", path)
            .with("codes", codes.join(", "))
            .resource("agent", name),
    }
}

fn draining() -> Verdict {
    Verdict::new(Code::Unavailable, "DRAINING").retry_after(DRAIN_RETRY)
}

const fn reason(
    reason: &'static str,
    code: Code,
    metadata: &'static [&'static str],
    meaning: &'static str,
) -> Reason {
    Reason { reason, code, metadata, meaning }
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt as _;

    use super::*;
    use crate::{
        diagnostic::{Code as Finding, Diagnostic, Severity},
        error::StoreError,
    };

    fn unknown() -> Error {
        Error::Miss(Miss::Unknown {
            name: "nobody".to_owned(),
            available: "default, explore".to_owned(),
            suggestion: None,
            available_count: 2,
        })
    }

    fn text(value: &str) -> String {
        value.to_owned()
    }

    /// One of each, so that a new kind of error has to be put here too.
    fn every_error() -> Vec<Error> {
        let finding = |severity| Diagnostic::new(severity, Finding::MissingField, 2, 1, "`name` is missing");
        vec![
            Error::WorkspaceNotFound { workspace: text("team") },
            unknown(),
            Error::Miss(Miss::Broken {
                name: text("a"),
                path: text("/x/a.md"),
                codes: vec!["INVALID_FIELD"],
            }),
            Error::UnknownDigest { name: text("a"), digest: text("00") },
            Error::UnknownCommand { name: text("c") },
            Error::InvalidDocument {
                diagnostics: vec![finding(Severity::Error), finding(Severity::Warning)],
            },
            Error::NameMismatch { expected: text("a"), actual: text("b") },
            Error::DigestMismatch { expected: text("00"), actual: String::new() },
            Error::RequestIdReused { request_id: text("r") },
            Error::NotAuthored { name: text("a") },
            Error::AdministratorRequired { name: text("default"), action: text("define a protected name") },
            Error::TooManyAuthored { max: 4096 },
            Error::Store(StoreError::Refusing),
            Error::Stopping,
            Error::ScanFailed,
        ]
    }

    #[test]
    fn every_error_is_a_row_of_the_reason_table() {
        let reasons = reasons();
        for error in every_error() {
            let shown = error.to_string();
            let status = Status::from(error);
            let info = status.get_details_error_info().unwrap();

            let row =
                reasons.iter().find(|row| row.reason == info.reason).unwrap_or_else(|| panic!("{shown}"));
            assert_eq!(row.code, status.code(), "{shown}");
            assert_eq!(info.domain, DOMAIN);
            let documented = |key: &String| {
                row.metadata.contains(&key.as_str()) || (row.reason == "ROLE_REQUIRED" && key == "agent")
            };
            assert!(info.metadata.keys().all(documented), "{shown}: {:?}", info.metadata);
        }
    }

    #[test]
    fn the_text_about_an_unknown_agent_is_the_contract() {
        let status = Status::from(unknown());

        assert_eq!(status.message(), "Unknown agent \"nobody\". Available: default, explore");
    }

    #[test]
    fn an_invalid_document_has_one_violation_an_error() {
        let status = Status::from(every_error().remove(5));

        let violations = status.get_details_bad_request().unwrap().field_violations;
        let shown: Vec<(&str, &str)> =
            violations.iter().map(|it| (it.field.as_str(), it.description.as_str())).collect();
        assert_eq!(shown, [("document:2:1", "MISSING_FIELD `name` is missing")]);
    }

    #[test]
    fn no_reason_stands_twice_in_the_table() {
        let mut names: Vec<&str> = reasons().iter().map(|row| row.reason).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();

        assert_eq!(names.len(), count);
    }
}
