//! One connection to one server, from its start to the last of its processes.

use std::{io, path::Path, sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use rmcp::{
    ClientHandler, Peer, RoleClient, ServiceError, ServiceExt as _,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig,
        ClientRequest, Implementation, ListToolsRequest, PaginatedRequestParams, PingRequest, ServerResult,
        Tool,
    },
    service::{NotificationContext, PeerRequestOptions, RunningServiceCancellationToken},
};
use service_kit::{config::Span, status::chain};
use tokio::{sync::Notify, time::timeout};

use super::{config::Server, process::Process, shorten::Shorten, transport};

/// Most tools of one server. A model that is offered more finds none of them.
const TOOLS_MAX: usize = 512;

/// How long the protocol may take to close: the rest of 5 s is for the process.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// How long it may take to tell a server that nobody waits for a call any more.
const CANCEL_TIME: Duration = Duration::from_secs(5);

/// An open connection.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    cancel: RunningServiceCancellationToken,
    /// Resolves when the protocol is over.
    service: Shared<BoxFuture<'static, ()>>,
    process: Option<Process>,
    changed: Arc<Notify>,
    patience: Span,
}

/// Why there is no connection. The text is for operators.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("failed to start `{program}`")]
    Start { program: String, source: io::Error },
    #[error("no HTTP client can be made")]
    Client(#[source] reqwest::Error),
    #[error("it was silent for {0}")]
    Silent(Span),
    #[error("it cannot be talked to: {0}")]
    Introduction(String),
    #[error("it does not list its tools")]
    List(#[source] ServiceError),
    #[error("it does not answer any more")]
    Deaf(#[source] ServiceError),
    #[error("it ended")]
    Ended,
}

/// How a call ended.
pub(super) enum Reply {
    Answered(CallToolResult),
    Failed(ServiceError),
    /// The answer is none to a call.
    Strange,
    /// Nobody waited any more, and the server was told.
    GivenUp,
}

/// Our side of a connection: it offers the server nothing.
struct Client {
    changed: Arc<Notify>,
}

impl ClientHandler for Client {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("roster", env!("CARGO_PKG_VERSION")),
        )
    }
}

impl Connection {
    /// Connects to a server and asks for its tools. A process that was started and failed is gone when this returns.
    pub(super) async fn open(server: &Server, directory: &Path) -> Result<(Self, Vec<Tool>), Failure> {
        let mut process = None;
        let introduced = timeout(server.start_timeout.0, introduce(server, directory, &mut process)).await;
        let failure = match introduced {
            Ok(Ok((connection, tools))) => return Ok((Self { process, ..connection }, tools)),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Silent(server.start_timeout),
        };
        let Some(process) = process else { return Err(failure) };
        // No call was made yet, so what it wrote cannot be about one.
        let complaint = process.complaint();
        if !complaint.is_empty() {
            tracing::warn!(%complaint, "an MCP server that failed wrote to its standard error");
        }
        process.end().await;
        Err(failure)
    }

    pub(super) fn peer(&self) -> Peer<RoleClient> {
        self.peer.clone()
    }

    /// Resolves when the connection is over, from whatever side.
    pub(super) async fn ended(&mut self) {
        let service = self.service.clone();
        match &mut self.process {
            Some(process) => tokio::select! {
                () = service => {}
                () = process.ended() => {}
            },
            None => service.await,
        }
    }

    /// Wakes when the server says that its tools have changed.
    pub(super) fn changes(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// The server's tools as they are now.
    pub(super) async fn tools(&self) -> Result<Vec<Tool>, Failure> {
        timeout(self.patience.0, list(&self.peer)).await.unwrap_or(Err(Failure::Silent(self.patience)))
    }

    /// Asks the server whether it is there.
    pub(super) async fn check(&self) -> Result<(), Failure> {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        match timeout(self.patience.0, self.peer.send_request(ping)).await {
            // One that does not know the question is there all the same.
            Ok(Ok(_) | Err(ServiceError::McpError(_) | ServiceError::UnexpectedResponse)) => Ok(()),
            Ok(Err(ServiceError::TransportClosed)) => Err(Failure::Ended),
            Ok(Err(error)) => Err(Failure::Deaf(error)),
            Err(_) => Err(Failure::Silent(self.patience)),
        }
    }

    /// Ends the connection and everything that belongs to it, within 5 s.
    pub(super) async fn close(self) {
        let Self { cancel, service, process, .. } = self;
        cancel.cancel();
        // Its end lets go of the process's input.
        let _ = timeout(CLOSE_TIME, service).await;
        if let Some(process) = process {
            process.end().await;
        }
    }
}

/// Calls a tool, until there is an answer or `given_up` resolves. Then the server is told that nobody waits.
pub(super) async fn call(
    peer: &Peer<RoleClient>,
    parameters: CallToolRequestParams,
    given_up: impl Future<Output = ()>,
) -> Reply {
    let mut given_up = std::pin::pin!(given_up);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(parameters));
    let sent = tokio::select! {
        sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options()) => sent,
        () = &mut given_up => return Reply::GivenUp,
    };
    let mut handle = match sent {
        Ok(handle) => handle,
        Err(error) => return Reply::Failed(error),
    };
    tokio::select! {
        answer = &mut handle.rx => match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
            Ok(ServerResult::CallToolResult(result)) => Reply::Answered(result),
            Ok(_) => Reply::Strange,
            Err(error) => Reply::Failed(error),
        },
        () = &mut given_up => {
            let _ = timeout(CANCEL_TIME, handle.cancel(Some("nobody waits for the answer any more".to_owned()))).await;
            Reply::GivenUp
        }
    }
}

/// Opens the connection. A process is put into `process` at once, so that it is there to be ended whatever happens.
async fn introduce(
    server: &Server,
    directory: &Path,
    process: &mut Option<Process>,
) -> Result<(Connection, Vec<Tool>), Failure> {
    let changed = Arc::new(Notify::new());
    let client = Client { changed: Arc::clone(&changed) };
    let service = match &server.url {
        Some(url) => client.serve(transport::http(server, url).map_err(Failure::Client)?).await,
        None => {
            let started = Process::start(server, directory);
            let (started, output, input) = started.map_err(|source| Failure::Start {
                program: server.command.first().cloned().unwrap_or_default(),
                source,
            })?;
            *process = Some(started);
            client.serve((Shorten::new(output), input)).await
        }
    };
    let service = service.map_err(|error| Failure::Introduction(chain(&error)))?;
    let peer = service.peer().clone();
    let tools = list(&peer).await?;
    let connection = Connection {
        peer,
        cancel: service.cancellation_token(),
        service: async move {
            let _ = service.waiting().await;
        }
        .boxed()
        .shared(),
        process: None,
        changed,
        patience: server.start_timeout,
    };
    Ok((connection, tools))
}

/// All pages of the server's tools, asked for anew: what was listed before is no answer.
async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, Failure> {
    let mut tools = Vec::new();
    let mut cursor = None;
    loop {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
        let page = match peer.send_request(request).await.map_err(Failure::List)? {
            ServerResult::ListToolsResult(page) => page,
            _ => return Err(Failure::List(ServiceError::UnexpectedResponse)),
        };
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if tools.len() > TOOLS_MAX {
            tracing::warn!(
                tools = tools.len(),
                "an MCP server lists more than {TOOLS_MAX} tools; the rest is left out"
            );
            tools.truncate(TOOLS_MAX);
            return Ok(tools);
        }
        if cursor.is_none() {
            return Ok(tools);
        }
    }
}
