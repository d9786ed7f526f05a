//! One request to a provider over HTTP: what is sent, how long is waited, how much is read, and what a failure is called.

use std::time::{Duration, SystemTime};

use reqwest::{
    Client, Response, Url,
    header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::{
    Error, Listener, Reply,
    answer::{Assembly, Fault},
    config,
    reader::{self, Limits, Trouble},
    redact::Redactor,
    retry::Failure,
};

/// What OpenAI and Azure send beside `Retry-After`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// An error body says what it has to say in its first lines.
const ERROR_BYTES_MAX: usize = 64 * 1024;
/// Idle connections kept for a provider, so that a turn rarely begins with a handshake.
const IDLE_CONNECTIONS_MAX: usize = 32;

/// Where a provider's requests go.
#[derive(Clone)]
pub(super) struct Endpoint {
    provider: String,
    client: Client,
    url: Url,
    headers: HeaderMap,
    limits: Limits,
    redactor: Redactor,
}

/// Why an endpoint cannot be made of a configuration: the key and what is wrong with it.
pub(super) type Mistake = (&'static str, String);

impl Endpoint {
    /// `headers` carry the key; `path` goes behind the base URL.
    pub(super) fn new(
        provider: &str,
        config: &config::Provider,
        base_url: &str,
        path: &[&str],
        headers: HeaderMap,
    ) -> Result<Self, Mistake> {
        let mut url = Url::parse(base_url)
            .map_err(|error| ("base_url", format!("`{base_url}` is not a URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
            return Err(("base_url", format!("`{base_url}` is neither an `http` nor an `https` URL")));
        }
        url.path_segments_mut().expect("a base URL has segments").pop_if_empty().extend(path);

        // A redirect would send the prompt to an address that the operator did not name; so would a proxy from the
        // environment.
        let mut client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(config.connect_timeout.0)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .user_agent(concat!("roster/", env!("CARGO_PKG_VERSION")));
        if url.scheme() == "http" {
            // A machine without certificates may still talk to a server of its own.
            client = client.tls_certs_only([]);
        }
        let client = client
            .build()
            .map_err(|error| ("base_url", format!("no client can be made: {}", chain(&error))))?;
        Ok(Self {
            provider: provider.to_owned(),
            client,
            url,
            headers,
            limits: Limits {
                first_token: config.first_token_timeout.0,
                next_token: config.next_token_timeout.0,
            },
            redactor: Redactor::new(config.api_key.as_ref().map(service_kit::config::Secret::expose)),
        })
    }

    /// Asks for one answer. The time limit of the first token begins here.
    pub(super) async fn ask<A: Assembly>(
        &self,
        model: &str,
        body: &Value,
        assembly: A,
        listener: &dyn Listener,
    ) -> Result<Reply, Failure> {
        let deadline = Instant::now() + self.limits.first_token;
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).json(body);
        let response = match timeout_at(deadline, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(before(self.unreachable(error))),
            Err(_) => return Err(before(self.silent(self.limits.first_token))),
        };
        if !response.status().is_success() {
            return Err(before(self.refused(model, response, deadline).await));
        }
        let stream = response.bytes_stream();
        let outcome = reader::read(stream, assembly, self.limits, deadline, &self.redactor, listener).await;
        outcome.map_err(|(trouble, has_begun)| {
            let error = match trouble {
                Trouble::Fault(fault) => self.fault(model, fault, None),
                Trouble::Connection(error) => self.unreachable(error),
                Trouble::Silent(waited) => self.silent(waited),
            };
            Failure { error, has_begun }
        })
    }

    async fn refused(&self, model: &str, mut response: Response, deadline: Instant) -> Error {
        let status = response.status().as_u16();
        let wait = retry_after(response.headers(), SystemTime::now());
        let mut body = Vec::new();
        // The status is known; a body that does not come only costs its words.
        while body.len() < ERROR_BYTES_MAX
            && let Ok(Ok(Some(piece))) = timeout_at(deadline, response.chunk()).await
        {
            body.extend_from_slice(&piece);
        }
        body.truncate(ERROR_BYTES_MAX);
        self.fault(model, Fault::from_body(status, &body), wait)
    }

    fn fault(&self, model: &str, fault: Fault, retry_after: Option<Duration>) -> Error {
        let provider = self.provider.clone();
        match fault {
            Fault::Status { status, message } => {
                Error::Status { provider, status, message: self.redactor.redact(message), retry_after }
            }
            Fault::ContextTooLong => Error::ContextTooLong { model: format!("{provider}/{model}") },
            Fault::Malformed(message) => {
                Error::Malformed { provider, message: self.redactor.redact(message) }
            }
            Fault::Cut => {
                Error::Unreachable { provider, source: "the answer ended before it was whole".into() }
            }
        }
    }

    /// The URL stays out of it: it may hold credentials.
    fn unreachable(&self, error: reqwest::Error) -> Error {
        Error::Unreachable { provider: self.provider.clone(), source: Box::new(error.without_url()) }
    }

    fn silent(&self, waited: Duration) -> Error {
        Error::Silent { provider: self.provider.clone(), waited }
    }
}

/// A header with a secret in it, which is never printed.
pub(super) fn secret_header(text: &str) -> Result<HeaderValue, Mistake> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| ("api_key", "has characters that no HTTP header can carry".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// An error with its causes, for a person who reads one line.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |cause| cause.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn before(error: Error) -> Failure {
    Failure { error, has_begun: false }
}

/// `Retry-After` in either form, and the finer header that some providers send beside it. A date that is past means now.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| *number >= 0.0);
    if let Some(milliseconds) = text(&RETRY_AFTER_MS).and_then(number) {
        return Duration::try_from_secs_f64(milliseconds / 1_000.0).ok();
    }
    let text = text(&RETRY_AFTER)?;
    if let Some(seconds) = number(text) {
        return Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let headers = |name: HeaderName, text| HeaderMap::from_iter([(name, HeaderValue::from_static(text))]);
        for (text, milliseconds) in [
            ("7", Some(7_000)),
            (" 0 ", Some(0)),
            ("1.5", Some(1_500)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7_000)),
            ("Sun, 06 Nov 1994 08:49:20 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
            ("NaN", None),
            ("", None),
        ] {
            let wait = retry_after(&headers(RETRY_AFTER, text), now);
            assert_eq!(wait, milliseconds.map(Duration::from_millis), "{text:?}");
        }
        assert_eq!(retry_after(&headers(RETRY_AFTER, "1e30"), now), Some(Duration::MAX));
        assert_eq!(retry_after(&HeaderMap::new(), now), None);

        let mut both = headers(RETRY_AFTER, "7");
        both.insert(RETRY_AFTER_MS, HeaderValue::from_static("250"));
        assert_eq!(retry_after(&both, now), Some(Duration::from_millis(250)));
    }

    #[test]
    fn the_path_goes_behind_any_base_url() {
        for (base, expected) in [
            ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/chat/completions"),
            ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1/chat/completions"),
            ("https://gateway.example", "https://gateway.example/chat/completions"),
            (
                "https://gateway.example/a?api-version=1",
                "https://gateway.example/a/chat/completions?api-version=1",
            ),
        ] {
            let config = config::Provider::new(config::Kind::Openai);
            let endpoint = Endpoint::new("p", &config, base, &["chat", "completions"], HeaderMap::new())
                .unwrap_or_else(|_| panic!("{base}"));
            assert_eq!(endpoint.url.as_str(), expected);
        }
    }

    #[test]
    fn a_base_url_of_another_kind_is_refused() {
        let config = config::Provider::new(config::Kind::Openai);
        for base in ["", "127.0.0.1:8080", "file:///etc", "mailto:a@b"] {
            let mistake = Endpoint::new("p", &config, base, &[], HeaderMap::new()).err();
            assert_eq!(mistake.map(|(key, _)| key), Some("base_url"), "{base:?}");
        }
    }
}
