//! Language models behind one trait: one call is one turn.

mod answer;
mod anthropic;
pub mod config;
#[cfg(fuzzing)]
pub mod fuzz;
mod http;
#[cfg(test)]
mod mutation;
mod openai;
mod pace;
pub mod provider;
mod reader;
mod redact;
mod rehearsal;
mod retry;
#[cfg(test)]
mod sample;
mod sse;
#[cfg(test)]
mod stub;
#[cfg(any(test, fuzzing))]
mod trial;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    definition::ThinkingLevel,
    transcript::{Message, ToolCall},
    worker::Usage,
};

/// One model of one provider.
#[async_trait]
pub trait Model: Send + Sync {
    /// Asks for one answer. Retries before the first token and time limits are inside. Dropping the future or `cancel`
    /// ends the request.
    async fn complete(
        &self,
        turn: &Turn<'_>,
        listener: &dyn Listener,
        cancel: &CancellationToken,
    ) -> Result<Reply, Error>;
}

/// Who waits for an answer. A closure over text, `|text: &str| …`, is one.
#[async_trait]
pub trait Listener: Send + Sync {
    /// Takes a piece of text as it arrives.
    fn text(&self, text: &str);

    /// Waits before a retry. A worker gives its slot back here and returns with another one.
    async fn pause(&self, wait: Duration) {
        tokio::time::sleep(wait).await;
    }
}

#[async_trait]
impl<F: Fn(&str) + Send + Sync> Listener for F {
    fn text(&self, text: &str) {
        self(text);
    }
}

/// What one turn is asked with.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// The agent and the turn's number from 1, for rehearsals and for logs.
    pub agent: &'a str,
    pub number: u32,
    /// The worker's own prompt, for rehearsals.
    pub prompt: &'a str,
    pub system: &'a str,
    pub messages: &'a [Message],
    /// Repeated at the end of the input on every turn, never stored: critical reminders. Empty when there are none.
    pub reminder: &'a str,
    pub tools: &'a [ToolSpec],
    pub tool_choice: ToolChoice<'a>,
    pub thinking: Option<ThinkingLevel>,
}

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
}

/// Whether a tool has to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice<'a> {
    Auto,
    /// No tool may be called; none is offered.
    None,
    /// This one must be called.
    Forced(&'a str),
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub text: String,
    pub tool_calls: Vec<ToolCall>,
    /// `turns` is 1, `duration_ms` 0: the loop counts time.
    pub usage: Usage,
    pub finish: Finish,
}

/// Why the model stopped. A hint only: servers often give the wrong one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Stop,
    ToolCalls,
    /// Its output limit was reached: the text is cut.
    Length,
    /// A filter of the provider.
    Refused,
}

/// Why there is no answer. No variant carries a key; a `message` is one line of the server's own words or about its protocol,
/// cut short, which may quote a piece of the request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `status` is that of HTTP, or the one that an error object inside an accepted answer stands for.
    #[error("model provider `{provider}` answered {status}: {message}")]
    Status { provider: String, status: u16, message: String, retry_after: Option<Duration> },

    #[error("model provider `{provider}` cannot be reached")]
    Unreachable { provider: String, source: Box<dyn std::error::Error + Send + Sync> },

    #[error("model provider `{provider}` sent nothing for {} s", .waited.as_secs())]
    Silent { provider: String, waited: Duration },

    /// The answer is not what the protocol says. Three in a row end a worker.
    #[error("model provider `{provider}` sent a malformed answer: {message}")]
    Malformed { provider: String, message: String },

    /// A rehearsal has no rule that matches.
    #[error("no rehearsal rule matches agent `{agent}`, turn {turn}, last message {last:?}")]
    NoRule { agent: String, turn: u32, last: String },

    #[error("the context is too long for the model `{model}`")]
    ContextTooLong { model: String },

    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// The provider's name, where one was asked.
    pub fn provider(&self) -> Option<&str> {
        match self {
            Self::Status { provider, .. }
            | Self::Unreachable { provider, .. }
            | Self::Silent { provider, .. }
            | Self::Malformed { provider, .. } => Some(provider),
            Self::NoRule { .. } | Self::ContextTooLong { .. } | Self::Cancelled => None,
        }
    }

    /// The provider's status, where it answered with one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Unreachable { .. }
            | Self::Silent { .. }
            | Self::Malformed { .. }
            | Self::NoRule { .. }
            | Self::ContextTooLong { .. }
            | Self::Cancelled => None,
        }
    }
}
