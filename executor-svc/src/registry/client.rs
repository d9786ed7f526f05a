//! Calls over gRPC, with retries inside a bound and with the faults of a connection told from the registry's own answers.

use std::{error::Error as _, future::Future, time::Duration};

use async_trait::async_trait;
use proto::registry::v1::{
    ByNameRequest, GetCatalogRequest, ResolveSkillsRequest, registry_service_client::RegistryServiceClient,
    skill_service_client::SkillServiceClient,
};
use service_kit::config::Secret;
use tokio::time::Instant;
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;
use tracing::debug;

use super::{Catalog, LookupError, Registry, from_proto};
use crate::{
    definition::{Definition, SpawnPolicy},
    prompt::Skill,
};

/// How long a lookup is tried; then the spawn is refused. A registry that restarts is back within it.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(2);

/// One attempt: long enough for a busy registry, short enough to try another connection.
const ATTEMPT_TIME_MAX: Duration = Duration::from_millis(900);

/// First wait between attempts; each further one is twice as long.
const RETRY_WAIT_MIN: Duration = Duration::from_millis(25);

/// A dead connection is noticed after this long without an answer to a ping.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The registry behind one address.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    bearer: Option<MetadataValue<Ascii>>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum InvalidAddress {
    #[error("`{0}` is not a URL such as `http://127.0.0.1:7401`")]
    Url(String),
    #[error("the registry's token cannot be sent in a header")]
    Token,
}

impl Client {
    /// A client that connects when it is first asked, and again whenever the connection is lost.
    ///
    /// # Errors
    ///
    /// Fails where the address is no URL or the token no header value.
    pub fn new(url: &str, token: Option<&Secret>) -> Result<Self, InvalidAddress> {
        let channel = Endpoint::from_shared(url.to_owned())
            .map_err(|_| InvalidAddress::Url(url.to_owned()))?
            .connect_timeout(ATTEMPT_TIME_MAX)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .tcp_nodelay(true)
            .connect_lazy();
        let bearer = token
            .map(|token| format!("Bearer {}", token.expose()).parse())
            .transpose()
            .map_err(|_| InvalidAddress::Token)?;
        Ok(Self { channel, bearer })
    }

    fn request<T>(&self, message: T, time_left: Duration) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(time_left.min(ATTEMPT_TIME_MAX));
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        request
    }

    /// Repeats a read while the registry is unavailable, until the bound.
    async fn retried<T, F>(&self, call: impl Fn(Duration) -> F) -> Result<T, LookupError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let until = Instant::now() + LOOKUP_TIME_MAX;
        let mut wait = RETRY_WAIT_MIN;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let answer = tokio::time::timeout(left.min(ATTEMPT_TIME_MAX), call(left)).await;
            let status = match answer {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("the registry did not answer in time"),
            };
            if !is_unavailable(&status) {
                return Err(answered(status));
            }
            if Instant::now() + wait >= until {
                return Err(LookupError::Unavailable(Box::new(status)));
            }
            debug!(code = ?status.code(), "registry unavailable, trying again");
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }
}

#[async_trait]
impl Registry for Client {
    async fn by_name(&self, workspace: &str, name: &str) -> Result<Definition, LookupError> {
        let response = self
            .retried(async |left| {
                let message = ByNameRequest { workspace: workspace.to_owned(), name: name.to_owned() };
                let mut client = RegistryServiceClient::new(self.channel.clone());
                client.by_name(self.request(message, left)).await
            })
            .await?;
        response
            .into_inner()
            .agent
            .map(from_proto::definition)
            .ok_or_else(|| LookupError::Unavailable("the registry sent no definition".into()))
    }

    async fn catalog(&self, workspace: &str, policy: &SpawnPolicy) -> Result<Catalog, LookupError> {
        let response = self
            .retried(async |left| {
                let spawns = Some(from_proto::policy_message(policy));
                let message = GetCatalogRequest { workspace: workspace.to_owned(), spawns };
                let mut client = RegistryServiceClient::new(self.channel.clone());
                client.get_catalog(self.request(message, left)).await
            })
            .await?;
        Ok(from_proto::catalog(response.into_inner()))
    }

    async fn skills(&self, workspace: &str, names: &[String], text: &str) -> Result<Vec<Skill>, LookupError> {
        let response = self
            .retried(async |left| {
                let message = ResolveSkillsRequest {
                    workspace: workspace.to_owned(),
                    names: names.to_vec(),
                    user_text: text.to_owned(),
                };
                let mut client = SkillServiceClient::new(self.channel.clone());
                client.resolve_skills(self.request(message, left)).await
            })
            .await?;
        Ok(from_proto::skills(response.into_inner()))
    }
}

/// True where nobody answered: the registry itself, or the connection to it.
fn is_unavailable(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded => true,
        // A connection that breaks, or is told to go away, shows as one of these, with the fault as its source.
        Code::Cancelled | Code::Internal | Code::Unknown => status.source().is_some(),
        _ => false,
    }
}

/// The registry's own refusal.
fn answered(status: Status) -> LookupError {
    let details = status.get_error_details();
    let Some(info) = details.error_info() else { return LookupError::Unavailable(Box::new(status)) };
    let metadata = |key: &str| info.metadata.get(key).cloned().unwrap_or_default();
    match info.reason.as_str() {
        "UNKNOWN_AGENT" => LookupError::Unknown {
            message: status.message().to_owned(),
            suggestion: metadata("suggestion"),
            available_count: metadata("available_count"),
        },
        "AGENT_BROKEN" => LookupError::Broken { message: status.message().to_owned() },
        "WORKSPACE_NOT_FOUND" => LookupError::WorkspaceNotFound,
        _ => LookupError::Unavailable(Box::new(status)),
    }
}
