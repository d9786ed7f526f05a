//! Keeps one server connected: starts it, notices when its tools change or it is gone, and starts it again with back-off.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rmcp::model::Tool;
use service_kit::status::chain;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    config,
    connection::{Connection, Failure},
    offer,
    server::{Offers, Server, Status},
};
use crate::tool::limits;

/// The rest before a server that failed is started again; it doubles with each failure.
const REST_MIN: Duration = Duration::from_millis(500);

/// The longest rest: a server that is mended is back within a minute.
const REST_MAX: Duration = Duration::from_secs(60);

/// A connection that held this long was a good one: the next rest is a short one.
const GOOD_TIME: Duration = Duration::from_secs(60);

/// How often a server that nobody calls is asked whether it is there.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The least time between two looks at the tools of a server that changes them all the time.
const CHANGE_REST: Duration = Duration::from_millis(200);

/// Most bytes of the reason why a server is not there.
const REASON_MAX: usize = 500;

/// What keeps one server.
pub(super) struct Keeper {
    pub(super) server: Arc<Server>,
    pub(super) config: config::Server,
    /// Where it is started.
    pub(super) directory: PathBuf,
    pub(super) stop: CancellationToken,
}

impl Keeper {
    /// Runs until `stop` is cancelled. Then nothing of the server is left.
    pub(super) async fn run(self) {
        let mut rest = REST_MIN;
        loop {
            let began = Instant::now();
            let opened = tokio::select! {
                () = self.stop.cancelled() => return,
                opened = Connection::open(&self.config, &self.directory) => opened,
            };
            let failure = match opened {
                Ok((mut connection, tools)) => {
                    let failure = tokio::select! {
                        () = self.stop.cancelled() => None,
                        failure = self.keep(&mut connection, tools) => Some(failure),
                    };
                    // Nobody finds a connection that is being closed.
                    let reason = failure
                        .as_ref()
                        .map_or_else(|| "it is being ended".to_owned(), |failure| chain(failure));
                    self.down(&reason);
                    connection.close().await;
                    failure
                }
                Err(failure) => {
                    self.down(&chain(&failure));
                    Some(failure)
                }
            };
            let Some(failure) = failure else { return };
            if began.elapsed() > GOOD_TIME {
                rest = REST_MIN;
            }
            let reason = limits::start(&chain(&failure), REASON_MAX);
            warn!(server = self.server.name, %reason, rest = ?rest, "an MCP server is not there; it is started again");
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(rest) => {}
            }
            rest = (rest * 2).min(REST_MAX);
        }
    }

    /// Follows a connection until it fails.
    async fn keep(&self, connection: &mut Connection, tools: Vec<Tool>) -> Failure {
        self.up(connection, tools);
        let changes = connection.changes();
        let mut checks = interval_at(Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_changed = tokio::select! {
                () = connection.ended() => return Failure::Ended,
                () = changes.notified() => true,
                () = self.server.suspected() => false,
                _ = checks.tick() => false,
            };
            if is_changed {
                match connection.tools().await {
                    Ok(tools) => self.up(connection, tools),
                    Err(failure) => return failure,
                }
                sleep(CHANGE_REST).await;
            } else if self.server.is_idle()
                && let Err(failure) = connection.check().await
            {
                return failure;
            }
        }
    }

    fn up(&self, connection: &Connection, tools: Vec<Tool>) {
        let (offers, left_out) = offer::all(&self.server.name, self.config.trust_annotations, tools);
        // Once a connection: a server may change its tools all the time.
        if !matches!(self.server.status(), Status::Up { .. }) {
            info!(server = self.server.name, tools = offers.len(), "an MCP server is connected");
            if !left_out.is_empty() {
                let left_out = limits::start(&left_out.join(", "), REASON_MAX);
                warn!(server = self.server.name, %left_out, "tools of an MCP server cannot be used");
            }
        }
        self.server.set(Status::Up { peer: connection.peer(), offers });
    }

    fn down(&self, reason: &str) {
        let offers = match self.server.status() {
            Status::Starting => Offers::default(),
            Status::Up { offers, .. } | Status::Down { offers, .. } => offers,
        };
        self.server.set(Status::Down { reason: limits::start(reason, REASON_MAX), offers });
    }
}
