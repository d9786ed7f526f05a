//! OpenAI-compatible chat completions: vLLM, Ollama, llama.cpp, LiteLLM, gateways, OpenAI itself.

mod calls;
mod request;
mod stream;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use service_kit::config::Secret;

use super::{
    Listener, Reply, Turn, config,
    http::{Endpoint, Mistake, secret_header},
    retry::{Attempt, Failure},
};

/// One model behind one endpoint.
pub(super) struct Chat {
    endpoint: Endpoint,
    model: String,
    output_tokens_max: Option<u32>,
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
        Self { endpoint, model: model.to_owned(), output_tokens_max: config.max_output_tokens }
    }
}

#[async_trait]
impl Attempt for Chat {
    async fn attempt(&self, _: u32, turn: &Turn<'_>, listener: &dyn Listener) -> Result<Reply, Failure> {
        let body = request::body(&self.model, turn, self.output_tokens_max);
        self.endpoint.ask(&self.model, &body, stream::Answer::default(), listener).await
    }
}

#[cfg(test)]
mod tests;
