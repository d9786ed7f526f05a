//! Anthropic messages.

mod request;
mod stream;

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use service_kit::config::Secret;

#[cfg(fuzzing)]
pub(super) use self::stream::Answer;
use super::{
    Error, Listener, Reply, Turn, config,
    http::{Endpoint, Mistake, secret_header},
    retry::{Attempt, Failure},
};

const BASE_URL: &str = "https://api.anthropic.com";
/// The protocol's version that requests and streams here are written for.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");
/// The protocol wants a limit; every model in use can answer this much.
const OUTPUT_TOKENS_MAX: u32 = 8_192;

/// One model behind one endpoint.
pub(super) struct Messages {
    endpoint: Endpoint,
    model: String,
    output_tokens_max: u32,
    /// Learned from a refusal: not every model thinks.
    has_no_thinking: AtomicBool,
}

/// The endpoint of a configuration of this kind. The base URL may end in `/v1`, as other protocols have it.
pub(super) fn endpoint(provider: &str, config: &config::Provider) -> Result<Endpoint, Mistake> {
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static("anthropic-version"), VERSION);
    if let Some(key) = config.api_key.as_ref().map(Secret::expose).filter(|key| !key.is_empty()) {
        headers.insert(HeaderName::from_static("x-api-key"), secret_header(key)?);
    }
    let base_url = config.base_url.as_deref().unwrap_or(BASE_URL);
    let base_url = base_url.trim_end_matches('/').trim_end_matches("/v1");
    Endpoint::new(provider, config, base_url, &["v1", "messages"], headers)
}

impl Messages {
    pub(super) fn new(endpoint: Endpoint, model: &str, config: &config::Provider) -> Self {
        let output_tokens_max = config.max_output_tokens.unwrap_or(OUTPUT_TOKENS_MAX);
        let has_no_thinking = AtomicBool::new(false);
        Self { endpoint, model: model.to_owned(), output_tokens_max, has_no_thinking }
    }
}

#[async_trait]
impl Attempt for Messages {
    async fn attempt(&self, _: u32, turn: &Turn<'_>, listener: &dyn Listener) -> Result<Reply, Failure> {
        let mut turn = *turn;
        if self.has_no_thinking.load(Ordering::Relaxed) {
            turn.thinking = None;
        }
        let outcome = self.ask(&turn, listener).await;
        match &outcome {
            Err(Failure { error: Error::Status { status: 400, message, .. }, has_begun: false })
                if turn.thinking.is_some() && message.contains("thinking") =>
            {
                self.has_no_thinking.store(true, Ordering::Relaxed);
                turn.thinking = None;
                self.ask(&turn, listener).await
            }
            Ok(_) | Err(_) => outcome,
        }
    }
}

impl Messages {
    async fn ask(&self, turn: &Turn<'_>, listener: &dyn Listener) -> Result<Reply, Failure> {
        let body = request::body(&self.model, turn, self.output_tokens_max);
        self.endpoint.ask(&self.model, &body, stream::Answer::default(), listener).await
    }
}

#[cfg(test)]
mod tests;
