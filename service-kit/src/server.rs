//! The server of both services: one way in, with every limit, the same refusals and a drain that ends.
//!
//! tonic's own server is not used: its accept loop spins when file descriptors run out, its timeouts end at the response
//! headers, and a peer that says nothing can hold its shutdown for ever.

mod accept;
mod admin;
mod body;
mod call;
mod connection;
mod health;
mod metrics;
mod refuse;
mod stall;

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use http::{Request, Response};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{body::Body, server::NamedService};
use tower::{Service, util::BoxCloneSyncService};
use tracing::{info, warn};

pub use self::{
    call::{Deadline, identity},
    health::HEALTH_RULES,
    refuse::REASONS,
    stall::OnStall,
};
use crate::{
    auth::{Authenticator, Rule},
    shutdown::Shutdown,
    telemetry,
};

/// Largest request message: a definition document is at most 1 MiB, a prompt too.
pub const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Largest response message: what clients accept by default.
pub const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Header list of a request: room for a token and trace context.
const HEADER_BYTES_MAX: u32 = 16 * 1024;

/// Streams of one connection: an executor's workers share a few connections.
const STREAMS_MAX: u32 = 200;

/// Connections at a time: below the usual 1,024 file descriptors there would be none left for files.
const CONNECTIONS_MAX: usize = 1_024;

/// Connections of the admin port at a time: a scraper, probes and a person.
const ADMIN_CONNECTIONS_MAX: usize = 64;

/// Calls in flight at a time, over all connections, long streams included; more are shed.
const CALLS_MAX: usize = 8_192;

/// A connection without a frame for this long is asked whether its peer is still there.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// And is closed when it has not answered after this.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that calls in flight get once the service has drained.
const GRACE: Duration = Duration::from_secs(5);

/// Time that connections get to notice that they were cut.
const CUT_GRACE: Duration = Duration::from_secs(1);

type Route = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The two ports of a service, bound before anything else happens.
#[derive(Debug)]
pub struct Listeners {
    pub grpc: TcpListener,
    pub admin: TcpListener,
}

/// What a service tells the outside of its state.
#[derive(Clone, Debug)]
pub struct Readiness {
    ready: Arc<AtomicBool>,
    shutdown: Shutdown,
}

/// A gRPC server in the making.
pub struct Server {
    domain: &'static str,
    authenticator: Authenticator,
    reflection: bool,
    descriptors: &'static [u8],
    names: Vec<&'static str>,
    routes: HashMap<&'static str, (Route, &'static Rule)>,
    unruled: Vec<&'static str>,
}

/// Sets both message limits on a generated server, which has them per type.
#[macro_export]
macro_rules! limited {
    ($server:expr) => {
        $server
            .max_decoding_message_size($crate::server::REQUEST_BYTES_MAX)
            .max_encoding_message_size($crate::server::RESPONSE_BYTES_MAX)
    };
}

impl Listeners {
    /// Binds both addresses; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// Fails where an address is taken or not ours.
    pub async fn bind(grpc: SocketAddr, admin: SocketAddr) -> io::Result<Self> {
        let named = |address: SocketAddr| {
            move |error: io::Error| {
                io::Error::new(error.kind(), format!("failed to listen on {address}: {error}"))
            }
        };
        Ok(Self {
            grpc: TcpListener::bind(grpc).await.map_err(named(grpc))?,
            admin: TcpListener::bind(admin).await.map_err(named(admin))?,
        })
    }

    /// The line that programs wait for: `listening grpc=<addr> admin=<addr>`.
    ///
    /// # Errors
    ///
    /// Fails where a listener has lost its address.
    pub fn announcement(&self) -> io::Result<String> {
        Ok(format!("listening grpc={} admin={}", self.grpc.local_addr()?, self.admin.local_addr()?))
    }
}

impl Readiness {
    /// True where new work is welcome.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && !self.shutdown.is_draining()
    }
}

impl Server {
    /// A server whose refusals carry `domain`, and whose methods are those of `descriptors`, an encoded
    /// `FileDescriptorSet`. `reflection` offers them to `grpcurl` and its like.
    pub fn new(
        domain: &'static str,
        authenticator: Authenticator,
        descriptors: &'static [u8],
        reflection: bool,
    ) -> Self {
        let (names, routes, unruled) = (Vec::new(), HashMap::new(), Vec::new());
        Self { domain, authenticator, reflection, descriptors, names, routes, unruled }
    }

    /// Adds a service. `rules` may hold the rows of others too; one without any row does not start.
    pub fn add<S>(mut self, service: S, rules: &'static [Rule]) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        let route = BoxCloneSyncService::new(service);
        let prefix = format!("/{}/", S::NAME);
        let own = rules.iter().filter(|rule| rule.method.starts_with(&prefix));
        self.routes.extend(own.map(|rule| (rule.method, (route.clone(), rule))));
        if !self.routes.keys().any(|method| method.starts_with(&prefix)) {
            self.unruled.push(S::NAME);
        }
        self.names.push(S::NAME);
        self
    }

    /// Serves until `shutdown` begins, `drained` has resolved and calls in flight have ended, each within its bound.
    ///
    /// Between the two the service still answers, but refuses what starts work. Then it stops to accept, ends what
    /// streams, gives calls in flight five seconds and cuts what is left.
    ///
    /// # Errors
    ///
    /// Fails where a method has no rule, or the metrics recorder cannot be installed.
    pub async fn run(
        mut self,
        listeners: Listeners,
        shutdown: Shutdown,
        drained: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let recorder = telemetry::metrics().context("metrics are not to be had")?;
        let methods = methods(self.descriptors).context("the descriptor set cannot be read")?;
        self.check_rules(&methods)?;
        let loopback = listeners.grpc.local_addr()?.ip().is_loopback();
        let health = health::Health::new(&self.names);
        let readiness = Readiness { ready: Arc::new(AtomicBool::new(true)), shutdown: shutdown.clone() };
        let closing = CancellationToken::new();
        let cut = CancellationToken::new();
        let tasks = TaskTracker::new();

        self = self.add(health.server(), HEALTH_RULES);
        if self.reflection {
            self = health::add_reflection(self, loopback)?;
        }
        let edge = call::Edge::new(
            call::Setup {
                domain: self.domain,
                authenticator: self.authenticator,
                routes: self.routes,
                streaming: methods.streaming,
                calls_max: CALLS_MAX,
            },
            shutdown.clone(),
            closing.clone(),
        );
        let connections =
            connection::Connections::new(Arc::new(edge), tasks.clone(), closing.clone(), cut.clone());
        let admin = admin::Admin::new(recorder, readiness, tasks.clone(), cut.clone());

        health.serving().await;
        let lifecycle = async {
            shutdown.begun().await;
            health.not_serving().await;
            tokio::select! {
                () = drained => {}
                () = shutdown.hurried() => warn!("the drain was hurried"),
            }
            closing.cancel();
            tasks.close();
            tokio::select! {
                () = connections.finished() => info!("all connections have ended"),
                () = tokio::time::sleep(GRACE) => warn!("cutting connections that have not ended"),
                () = shutdown.hurried() => warn!("cutting connections at once"),
            }
            cut.cancel();
            let _ = tokio::time::timeout(CUT_GRACE, tasks.wait()).await;
        };
        tokio::join!(
            accept::run(listeners.grpc, CONNECTIONS_MAX, &closing, |stream, permit| connections
                .serve(stream, permit)),
            accept::run(listeners.admin, ADMIN_CONNECTIONS_MAX, &cut, |stream, permit| admin
                .serve(stream, permit)),
            admin.upkeep(&cut),
            lifecycle,
        );
        Ok(())
    }

    /// Nothing is reachable by default: each method of a served service has a row.
    fn check_rules(&self, methods: &Methods) -> anyhow::Result<()> {
        let served = |method: &str| {
            let service = method.trim_start_matches('/').split('/').next();
            self.names.iter().any(|name| Some(*name) == service)
        };
        let without = methods
            .all
            .iter()
            .find(|method| served(method) && !self.routes.contains_key(method.as_str()))
            .map(String::as_str)
            .or_else(|| self.unruled.first().copied());
        match without {
            Some(method) => anyhow::bail!("`{method}` has no access rule"),
            None => Ok(()),
        }
    }
}

/// The methods of a descriptor set as paths.
struct Methods {
    all: Vec<String>,
    /// Those that answer with a stream.
    streaming: Vec<String>,
}

fn methods(descriptors: &[u8]) -> Result<Methods, prost::DecodeError> {
    let set = FileDescriptorSet::decode(descriptors)?;
    let mut methods = Methods { all: Vec::new(), streaming: Vec::new() };
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                if method.server_streaming() {
                    methods.streaming.push(path.clone());
                }
                methods.all.push(path);
            }
        }
    }
    Ok(methods)
}
