//! From a failure to `google.rpc.Status`: one verdict, rendered in one way, small enough for every client.

use std::{collections::HashMap, error::Error, time::Duration};

use http::HeaderMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use tracing::error;

/// Message and details together, as they are encoded in trailers: clients lose larger ones.
pub const ENCODED_BYTES_MAX: usize = 4 * 1024;

/// Field violations in one status: more do not help a person and would not fit.
pub const VIOLATIONS_MAX: usize = 16;

/// A metadata value is one identifier; a longer one is cut when space runs out.
const METADATA_VALUE_BYTES_MIN: usize = 128;

/// A message is never cut below this.
const MESSAGE_BYTES_MIN: usize = 64;

/// What a caller may learn from a failure, next to its text.
#[derive(Clone, Debug)]
pub struct Verdict {
    code: Code,
    reason: &'static str,
    metadata: Vec<(&'static str, String)>,
    violations: Vec<(String, String)>,
    retry_after: Option<Duration>,
    quota: Option<(String, String)>,
    resource: Option<(String, String)>,
}

/// A row of a reason table, for the generated documentation and the tests that look for every reason.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    pub reason: &'static str,
    pub code: Code,
    /// Metadata keys that a caller may rely on.
    pub metadata: &'static [&'static str],
    /// When it is answered and what helps, one sentence.
    pub meaning: &'static str,
}

impl Verdict {
    pub fn new(code: Code, reason: &'static str) -> Self {
        Self {
            code,
            reason,
            metadata: Vec::new(),
            violations: Vec::new(),
            retry_after: None,
            quota: None,
            resource: None,
        }
    }

    pub fn code(&self) -> Code {
        self.code
    }

    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// Adds a single value to the `ErrorInfo`.
    pub fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.metadata.push((key, value.to_string()));
        self
    }

    /// Adds a `BadRequest` violation; those beyond [`VIOLATIONS_MAX`] are left out.
    pub fn violation(mut self, field: impl Into<String>, description: impl Into<String>) -> Self {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push((field.into(), description.into()));
        }
        self
    }

    /// Adds a `RetryInfo`.
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Adds a `QuotaFailure`.
    pub fn quota(mut self, subject: impl Into<String>, description: impl Into<String>) -> Self {
        self.quota = Some((subject.into(), description.into()));
        self
    }

    /// Adds a `ResourceInfo`.
    pub fn resource(mut self, kind: impl Into<String>, name: impl Into<String>) -> Self {
        self.resource = Some((kind.into(), name.into()));
        self
    }
}

/// Renders `error` as `verdict` says. The text of an `INTERNAL` failure is for the log, not for the caller.
pub fn render(domain: &'static str, error: &(dyn Error + 'static), verdict: Verdict) -> Status {
    if verdict.code == Code::Internal {
        error!(reason = verdict.reason, error = %chain(error), "call failed");
        return fit(domain, "internal error".to_owned(), verdict);
    }
    fit(domain, error.to_string(), verdict)
}

/// Renders a verdict whose text is not an error of a domain.
pub fn refuse(domain: &'static str, message: impl Into<String>, verdict: Verdict) -> Status {
    fit(domain, message.into(), verdict)
}

/// A reason table as Markdown, for the generated documentation. Of two rows for one reason the first is shown.
pub fn reference(title: &str, domain: &str, reasons: &[Reason]) -> String {
    let mut text = format!(
        "## {title}\n\nDomain `{domain}`.\n\n| reason | code | metadata | when, and what helps |\n|---|---|---|---|\n"
    );
    for (index, Reason { reason, code, metadata, meaning }) in reasons.iter().enumerate() {
        if reasons[..index].iter().any(|earlier| earlier.reason == *reason) {
            continue;
        }
        let keys: Vec<String> = metadata.iter().map(|key| format!("`{key}`")).collect();
        text.push_str(&format!(
            "| `{reason}` | `{}` | {} | {meaning} |\n",
            code_name(*code),
            keys.join(", ")
        ));
    }
    text
}

/// The name of a code as the gRPC specification spells it.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// An error and all its sources in one line.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

/// Size of a status in trailers: names and values as they are sent.
pub fn encoded_bytes(status: &Status) -> usize {
    let mut headers = HeaderMap::new();
    match status.add_header(&mut headers) {
        Ok(()) => headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum(),
        Err(_) => usize::MAX,
    }
}

/// Gives up the least useful part first, until the whole fits.
fn fit(domain: &'static str, mut message: String, mut verdict: Verdict) -> Status {
    loop {
        let status = assemble(domain, &message, &verdict);
        if encoded_bytes(&status) <= ENCODED_BYTES_MAX {
            return status;
        }
        if verdict.violations.len() > 1 {
            verdict.violations.pop();
        } else if let Some(longest) = longest_value(&mut verdict) {
            cut(longest, longest.len() * 3 / 4);
        } else if message.len() > MESSAGE_BYTES_MIN {
            let shorter = message.len() * 7 / 8;
            cut(&mut message, shorter);
        } else {
            return Status::new(verdict.code, message);
        }
    }
}

fn longest_value(verdict: &mut Verdict) -> Option<&mut String> {
    let metadata = verdict.metadata.iter_mut().map(|(_, value)| value);
    let violations = verdict.violations.iter_mut().flat_map(|(field, description)| [field, description]);
    let others = verdict.quota.iter_mut().chain(verdict.resource.iter_mut()).flat_map(|(a, b)| [a, b]);
    metadata
        .chain(violations)
        .chain(others)
        .filter(|value| value.len() > METADATA_VALUE_BYTES_MIN)
        .max_by_key(|value| value.len())
}

/// Cuts at a character, with a mark that something is missing.
fn cut(text: &mut String, bytes: usize) {
    text.truncate(text.floor_char_boundary(bytes));
    text.push('…');
}

fn assemble(domain: &'static str, message: &str, verdict: &Verdict) -> Status {
    let Verdict { code, reason, metadata, violations, retry_after, quota, resource } = verdict;
    let metadata: HashMap<String, String> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();

    let mut details = ErrorDetails::new();
    details.set_error_info(*reason, domain, metadata);
    for (field, description) in violations {
        details.add_bad_request_violation(field, description);
    }
    if let Some(delay) = retry_after {
        details.set_retry_info(Some(*delay));
    }
    if let Some((subject, description)) = quota {
        details.add_quota_failure_violation(subject, description);
    }
    if let Some((kind, name)) = resource {
        details.set_resource_info(kind, name, "", "");
    }
    Status::with_error_details(*code, message, details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the disk is gone")]
    struct Disk;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to write `{0}`")]
    struct Write(String, #[source] Disk);

    #[test]
    fn a_status_carries_one_error_info_with_its_metadata() {
        let verdict = Verdict::new(Code::NotFound, "UNKNOWN_AGENT").with("agent", "nobody");

        let status = refuse("registry.roster", "Unknown agent \"nobody\". Available: none", verdict);

        let info = status.get_details_error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("UNKNOWN_AGENT", "registry.roster"));
        assert_eq!(info.metadata["agent"], "nobody");
        assert_eq!(status.message(), "Unknown agent \"nobody\". Available: none");
    }

    #[test]
    fn an_internal_failure_does_not_tell_its_cause() {
        let failure = Write("/srv/secret/place".to_owned(), Disk);

        let status = render("registry.roster", &failure, Verdict::new(Code::Internal, "STORE_FAILED"));

        assert_eq!(status.message(), "internal error");
        assert!(!String::from_utf8_lossy(status.details()).contains("secret"));
        assert_eq!(chain(&failure), "failed to write `/srv/secret/place`: the disk is gone");
    }

    #[test]
    fn whatever_goes_in_the_encoded_status_stays_within_its_limit() {
        for text in ["a", "é", "\u{1f600}", "\"%", "日本"] {
            let mut verdict = Verdict::new(Code::InvalidArgument, "INVALID_REQUEST")
                .with("agent", text.repeat(3_000))
                .resource("agent", text.repeat(2_000))
                .retry_after(Duration::from_secs(1));
            for index in 0..40 {
                verdict = verdict.violation(format!("document:{index}"), text.repeat(400));
            }

            let status = refuse("registry.roster", text.repeat(9_000), verdict);

            assert!(encoded_bytes(&status) <= ENCODED_BYTES_MAX, "{text}");
            assert!(status.message().len() >= MESSAGE_BYTES_MIN, "{text}");
            let details = status.get_error_details();
            assert_eq!(details.error_info().unwrap().reason, "INVALID_REQUEST");
            assert!(!details.bad_request().unwrap().field_violations.is_empty());
        }
    }

    #[test]
    fn at_most_sixteen_violations_are_sent() {
        let verdict = (0..40)
            .fold(Verdict::new(Code::InvalidArgument, "INVALID_REQUEST"), |verdict, index| {
                verdict.violation(format!("f{index}"), "bad")
            });

        let status = refuse("registry.roster", "bad", verdict);

        assert_eq!(status.get_details_bad_request().unwrap().field_violations.len(), VIOLATIONS_MAX);
    }
}
