//! The end of a process: a first signal drains, a second one hurries.

use std::{future::Future, io};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Tells every part of a process that it is ending. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    begun: CancellationToken,
    hurried: CancellationToken,
}

impl Shutdown {
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the drain.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    /// Ends the drain at once.
    pub fn hurry(&self) {
        self.begun.cancel();
        self.hurried.cancel();
    }

    pub fn is_draining(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Resolves when the drain begins.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// Resolves when there is no time left for what is still running.
    pub async fn hurried(&self) {
        self.hurried.cancelled().await;
    }

    /// The token that is cancelled when the drain begins, for tasks that take one.
    pub fn token(&self) -> CancellationToken {
        self.begun.clone()
    }
}

/// Runs `work` while SIGINT and SIGTERM are turned into `shutdown`.
///
/// # Errors
///
/// Fails where the process may not install signal handlers.
pub async fn with_signals<T>(shutdown: &Shutdown, work: impl Future<Output = T>) -> io::Result<T> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let forward = async {
        loop {
            let name = tokio::select! {
                _ = interrupt.recv() => "SIGINT",
                _ = terminate.recv() => "SIGTERM",
            };
            if shutdown.is_draining() {
                warn!(signal = name, "second signal, ending at once");
                shutdown.hurry();
            } else {
                info!(signal = name, "draining");
                shutdown.begin();
            }
        }
    };
    tokio::select! {
        result = work => Ok(result),
        () = forward => unreachable!("the loop over signals has no end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hurrying_also_begins() {
        let shutdown = Shutdown::new();
        assert!(!shutdown.is_draining());

        shutdown.clone().hurry();

        shutdown.begun().await;
        shutdown.hurried().await;
        assert!(shutdown.is_draining());
    }

    #[tokio::test]
    async fn work_that_ends_by_itself_ends_the_wait_for_signals() {
        let result = with_signals(&Shutdown::new(), async { 7 }).await.unwrap();

        assert_eq!(result, 7);
    }
}
