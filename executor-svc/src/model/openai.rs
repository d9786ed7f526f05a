//! OpenAI-compatible chat completions: vLLM, Ollama, llama.cpp, LiteLLM, gateways, OpenAI itself.

mod calls;
mod dialect;
mod request;
mod stream;

use async_trait::async_trait;
use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use service_kit::config::Secret;

use self::dialect::Dialect;
#[cfg(fuzzing)]
pub(super) use self::stream::Answer;
use super::{
    Error, Listener, Reply, Turn, config,
    http::{Endpoint, Mistake, secret_header},
    retry::{Attempt, Failure},
};

/// One model behind one endpoint.
pub(super) struct Chat {
    endpoint: Endpoint,
    model: String,
    output_tokens_max: Option<u32>,
    dialect: Mutex<Dialect>,
}

/// The endpoint of a configuration of this kind.
pub(super) fn endpoint(provider: &str, config: &config::Provider) -> Result<Endpoint, Mistake> {
    let mut headers = HeaderMap::new();
    if let Some(key) = config.api_key.as_ref().map(Secret::expose).filter(|key| !key.is_empty()) {
        headers.insert(AUTHORIZATION, secret_header(&format!("Bearer {key}"))?);
    }
    let base_url = config.base_url.as_deref().unwrap_or_default();
    Endpoint::new(provider, config, base_url, &["chat", "completions"], headers)
}

impl Chat {
    pub(super) fn new(endpoint: Endpoint, model: &str, config: &config::Provider) -> Self {
        let output_tokens_max = config.max_output_tokens;
        Self { endpoint, model: model.to_owned(), output_tokens_max, dialect: Mutex::new(Dialect::FULL) }
    }
}

#[async_trait]
impl Attempt for Chat {
    async fn attempt(&self, _: u32, turn: &Turn<'_>, listener: &dyn Listener) -> Result<Reply, Failure> {
        loop {
            let dialect = *self.dialect.lock();
            let body = request::body(&self.model, turn, self.output_tokens_max, dialect);
            let outcome = self.endpoint.ask(&self.model, &body, stream::Answer::default(), listener).await;
            let learned = match &outcome {
                Err(Failure {
                    error: Error::Status { status: 400 | 422, message, .. },
                    has_begun: false,
                }) => dialect.learn(message),
                Ok(_) | Err(_) => None,
            };
            // Each lesson is learned once, so this ends.
            match learned {
                Some(learned) => *self.dialect.lock() = learned,
                None => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests;
