//! The registry: discovers agent definitions in many sources, merges them in a fixed order and serves the result.

// -- domain --
pub mod agent;
pub mod catalog;
pub mod command;
pub mod definition;
pub mod diagnostic;
pub mod document;
pub mod explain;
mod front_matter;
pub mod merge;
pub mod skill;
pub mod snapshot;

// -- application --
pub mod error;
pub mod source;
pub mod store;
pub mod workspace;

// -- edge --
pub mod cli;
pub mod config;
pub mod grpc;

use std::sync::Arc;

use proto::registry::v1::{
    command_service_server::CommandServiceServer, skill_service_server::SkillServiceServer,
};
use service_kit::{
    auth::Authenticator,
    limited,
    server::{Listeners, Server},
    shutdown::Shutdown,
    status::chain,
};
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::{
    config::{Config, WorkspaceConfig},
    error::StartError,
    grpc::{Collections, Registry, WithReadyAnswers, access::RULES, status::DOMAIN},
    merge::Policy,
    snapshot::Snapshot,
    store::{Store, directory::DirectoryStore},
};

/// Where the registry keeps its state inside the data directory.
pub const STORE_DIRECTORY: &str = "registry";

/// Serves the registry until `shutdown` begins and calls in flight have ended.
///
/// # Errors
///
/// Fails where the store or the token cannot be opened, or a bundled definition is malformed.
pub async fn serve(config: Config, listeners: Listeners, shutdown: Shutdown) -> anyhow::Result<()> {
    let store = DirectoryStore::open(config.data.join(STORE_DIRECTORY)).await?;
    serve_from(Arc::new(store), config, listeners, shutdown).await
}

/// As [`serve`], from a store of the caller's.
///
/// # Errors
///
/// Fails where the store cannot be read or the token not opened, or a bundled definition is malformed.
pub async fn serve_from(
    store: Arc<dyn Store>,
    config: Config,
    listeners: Listeners,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let reflection = config.offers_reflection();
    let Config { data, credentials, workspaces, .. } = config;
    let authenticator = Authenticator::open(&data, &credentials)?;
    let whole_paths = listeners.grpc.local_addr()?.ip().is_loopback() && authenticator.is_open();

    let stop = CancellationToken::new();
    let mut owners = JoinSet::new();
    let mut handles = Vec::new();
    for (name, config) in &workspaces {
        let (handle, owner) = workspace::open(settings(name, config), Arc::clone(&store)).await?;
        owners.spawn(owner.run(stop.clone()));
        handles.push(handle);
    }
    let registry = Registry::new(handles, whole_paths);
    let collections = Collections(registry.clone());
    let server = Server::new(DOMAIN, authenticator, ::proto::DESCRIPTOR_SET, reflection)
        .add(WithReadyAnswers::new(registry), RULES)
        .add(limited!(CommandServiceServer::new(collections.clone())), RULES)
        .add(limited!(SkillServiceServer::new(collections)), RULES);

    let served = server.run(listeners, shutdown, std::future::ready(())).await;
    stop.cancel();
    while let Some(ended) = owners.join_next().await {
        if let Err(failure) = ended {
            error!(error = %chain(&failure), "the owner of a workspace ended unexpectedly");
        }
    }
    served
}

/// Reads the sources of one workspace as the service would, without its store: what the command line shows offline.
///
/// # Errors
///
/// Fails where a bundled definition is malformed.
pub async fn read_sources(name: &str, config: &WorkspaceConfig) -> Result<Arc<Snapshot>, StartError> {
    let settings = settings(name, config);
    let lost = || StartError::Scan { workspace: name.to_owned() };
    let read = spawn_blocking(move || workspace::read_once(&settings)).await;
    read.map_err(|_| lost())?.map(Arc::new)
}

fn settings(name: &str, config: &WorkspaceConfig) -> workspace::Settings {
    let WorkspaceConfig {
        cwd,
        home,
        families,
        plugins,
        roots,
        bundled,
        on_broken_override,
        protected,
        name_from_file,
        link_roots,
    } = config.clone();
    workspace::Settings {
        name: name.to_owned(),
        sources: source::Settings {
            cwd: Some(cwd),
            home,
            families,
            plugins,
            roots,
            bundled,
            name_from_file,
            link_roots,
        },
        policy: Policy { protected, on_broken_override: on_broken_override.into() },
    }
}
