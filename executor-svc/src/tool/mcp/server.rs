//! One configured server as the rest of the executor sees it: what it offers now, and calls to it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rmcp::{
    Peer, RoleClient, ServiceError,
    model::{CallToolRequestParams, JsonObject},
};
use service_kit::status::chain;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    answer,
    connection::{self, Reply},
    offer::Offer,
};
use crate::tool::{Error, limits};

/// Most bytes of a server's own error message.
const MESSAGE_MAX: usize = 2 * 1024;

/// One server.
pub(super) struct Server {
    pub(super) name: String,
    status: watch::Sender<Status>,
    calls_open: AtomicUsize,
    /// Wakes whoever keeps the connection: a call ended as if the server were not there.
    suspect: Notify,
    /// Calls run in tasks of their own, so that one that is given up still tells the server.
    tasks: TaskTracker,
}

/// Whether a server is there.
#[derive(Clone)]
pub(super) enum Status {
    /// Nothing is known yet.
    Starting,
    Up {
        peer: Peer<RoleClient>,
        offers: Offers,
    },
    Down {
        reason: String,
        /// What it offered when it was there.
        offers: Offers,
    },
}

/// A server's tools by their names on the wire.
pub(super) type Offers = Arc<BTreeMap<String, Arc<Offer>>>;

/// Counts a call for as long as it is open.
struct Open<'a>(&'a AtomicUsize);

impl Server {
    pub(super) fn new(name: String, tasks: TaskTracker) -> Self {
        Self {
            name,
            status: watch::channel(Status::Starting).0,
            calls_open: AtomicUsize::new(0),
            suspect: Notify::new(),
            tasks,
        }
    }

    pub(super) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(super) fn set(&self, status: Status) {
        self.status.send_replace(status);
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Resolves when it is known whether the server is there.
    pub(super) async fn settled(&self) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.subscribe().wait_for(|status| !matches!(status, Status::Starting)).await;
    }

    /// Resolves when a call has ended as if the server were not there.
    pub(super) async fn suspected(&self) {
        self.suspect.notified().await;
    }

    /// True while nobody waits for the server, so that it has no reason to be silent.
    pub(super) fn is_idle(&self) -> bool {
        self.calls_open.load(Ordering::Relaxed) == 0
    }

    /// Calls a tool that was offered like this.
    pub(super) async fn call(
        self: &Arc<Self>,
        offered: &Offer,
        arguments: &JsonObject,
        cancel: &CancellationToken,
    ) -> Result<String, Error> {
        let peer = self.find(offered)?;
        let parameters =
            CallToolRequestParams::new(offered.own_name.clone()).with_arguments(arguments.clone());
        let (mut sender, receiver) = oneshot::channel();
        let (server, cancel) = (Arc::clone(self), cancel.clone());
        self.tasks.spawn(async move {
            let reply = {
                let _open = Open::new(&server.calls_open);
                let given_up = async {
                    tokio::select! {
                        () = cancel.cancelled() => {}
                        () = sender.closed() => {}
                    }
                };
                connection::call(&peer, parameters, given_up).await
            };
            // Nobody may be there to hear it.
            let _ = sender.send(server.judge(reply));
        });
        receiver.await.unwrap_or(Err(Error::Cancelled))
    }

    /// The way to a tool that is still what it was. Whether it may run was decided for that: one that has become more
    /// dangerous, or takes other arguments, is another tool under the same name.
    fn find(&self, offered: &Offer) -> Result<Peer<RoleClient>, Error> {
        let failed = |what: &str| Err(Error::Failed(format!("the MCP server `{}` {what}", self.name)));
        match &*self.status.borrow() {
            Status::Starting | Status::Down { .. } => failed("is not connected at the moment"),
            Status::Up { peer, offers } => match offers.get(&offered.spec.name) {
                None => failed("does not offer this tool any more"),
                Some(now) if now.class > offered.class => failed(
                    "says now that this tool is more dangerous than it was; it is not called any more in this run",
                ),
                Some(now) if !now.takes_the_same(offered) => failed(
                    "has changed what this tool takes since this run began; it is not called any more in this run",
                ),
                Some(_) => Ok(peer.clone()),
            },
        }
    }

    fn judge(&self, reply: Reply) -> Result<String, Error> {
        let failed = |what: String| Err(Error::Failed(format!("the MCP server `{}` {what}", self.name)));
        match reply {
            Reply::Answered(result) => answer::text(result),
            Reply::Strange => failed("gave an answer that is none to a call".to_owned()),
            Reply::GivenUp => {
                self.suspect.notify_one();
                Err(Error::Cancelled)
            }
            Reply::Failed(ServiceError::McpError(error)) => {
                failed(format!("refused the call: {}", limits::start(&error.message, MESSAGE_MAX)))
            }
            Reply::Failed(error) => {
                tracing::debug!(server = self.name, error = %chain(&error), "an MCP call failed");
                self.suspect.notify_one();
                Err(Error::Lost(format!(
                    "the MCP server `{}` ended the connection before it answered, so what the call has done is not known",
                    self.name
                )))
            }
        }
    }
}

impl<'a> Open<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
