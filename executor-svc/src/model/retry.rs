//! Asks again where asking again may help and no harm is done: before the first token.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rand::Rng as _;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Error, Listener, Model, Reply, Turn, pace::Pace};

/// More would hide a provider that is down from whoever waits.
const RETRIES_MAX: u32 = 3;
/// The first wait where the provider names none. Each further one is twice as long.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// A longer `Retry-After` is not waited for: the worker had better fail and say so.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// One request to a provider.
#[async_trait]
pub(super) trait Attempt: Send + Sync {
    /// Asks once. `number` counts from 0.
    async fn attempt(&self, number: u32, turn: &Turn<'_>, listener: &dyn Listener) -> Result<Reply, Failure>;
}

#[async_trait]
impl<A: Attempt> Attempt for Arc<A> {
    async fn attempt(&self, number: u32, turn: &Turn<'_>, listener: &dyn Listener) -> Result<Reply, Failure> {
        A::attempt(self, number, turn, listener).await
    }
}

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    /// True once a token has come: the request is never repeated then.
    pub(super) has_begun: bool,
}

/// A model that is asked again, and whose provider is asked no faster than it likes.
pub(super) struct Retrying<A> {
    attempt: A,
    pace: Arc<Pace>,
}

impl<A: Attempt> Retrying<A> {
    pub(super) fn new(attempt: A, pace: Arc<Pace>) -> Self {
        Self { attempt, pace }
    }

    async fn ask(&self, turn: &Turn<'_>, listener: &dyn Listener) -> Result<Reply, Error> {
        let mut number = 0;
        loop {
            let error = match self.ask_once(number, turn, listener).await {
                Ok(reply) => return Ok(reply),
                Err(Failure { error, has_begun }) if has_begun || number == RETRIES_MAX => return Err(error),
                Err(Failure { error, .. }) => error,
            };
            let Some(wait) = wait_before_retry(&error, number, rand::rng().random_range(0.5..=1.0)) else {
                return Err(error);
            };
            number += 1;
            let provider = error.provider();
            let status = error.status();
            warn!(agent = turn.agent, provider, status, retry = number, ?wait, "asking the model again");
            listener.pause(wait).await;
        }
    }

    async fn ask_once(
        &self,
        number: u32,
        turn: &Turn<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Failure> {
        let permit = self.pace.enter().await;
        let outcome = self.attempt.attempt(number, turn, listener).await;
        match &outcome {
            Ok(_) => permit.taken(),
            Err(failure) if failure.error.status() == Some(429) => permit.slowed(),
            Err(_) => drop(permit),
        }
        outcome
    }
}

#[async_trait]
impl<A: Attempt> Model for Retrying<A> {
    async fn complete(
        &self,
        turn: &Turn<'_>,
        listener: &dyn Listener,
        cancel: &CancellationToken,
    ) -> Result<Reply, Error> {
        match cancel.run_until_cancelled(self.ask(turn, listener)).await {
            Some(outcome) => outcome,
            None => Err(Error::Cancelled),
        }
    }
}

/// `None` where the same request would only fail again, or would have to wait too long. `jitter` is from 0.5 to 1.
fn wait_before_retry(error: &Error, retries: u32, jitter: f64) -> Option<Duration> {
    match error {
        Error::Status { status: 429 | 500..=599, retry_after, .. } => match retry_after {
            Some(wait) => (*wait <= RETRY_AFTER_MAX).then_some(*wait),
            None => Some(backoff(retries, jitter)),
        },
        Error::Unreachable { .. } => Some(backoff(retries, jitter)),
        Error::Status { .. }
        | Error::Silent { .. }
        | Error::Malformed { .. }
        | Error::NoRule { .. }
        | Error::ContextTooLong { .. }
        | Error::Cancelled => None,
    }
}

fn backoff(retries: u32, jitter: f64) -> Duration {
    BACKOFF_MIN.saturating_mul(2u32.saturating_pow(retries)).mul_f64(jitter)
}

#[cfg(test)]
mod tests;
