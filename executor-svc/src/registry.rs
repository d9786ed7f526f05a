//! The registry, asked at spawn time. The only place of the executor that calls another service.

mod client;
mod flight;
mod from_proto;
mod pool;

use async_trait::async_trait;
use tokio::time::Instant;

pub use self::client::Client;
use crate::{
    definition::{Definition, SpawnPolicy},
    prompt::{CatalogEntry, Skill},
};

/// Where definitions come from. Reads only; each call is retried inside a bound, and not beyond the caller's deadline.
#[async_trait]
pub trait Registry: Send + Sync + 'static {
    /// The definition in force under a name.
    async fn by_name(
        &self,
        workspace: &str,
        name: &str,
        deadline: Option<Instant>,
    ) -> Result<Definition, LookupError>;
    /// The agents that a policy allows, without the reserved ones, in merge order.
    async fn catalog(
        &self,
        workspace: &str,
        policy: &SpawnPolicy,
        deadline: Option<Instant>,
    ) -> Result<Catalog, LookupError>;
    /// The skills active for a text, those asked for by name among them.
    async fn skills(
        &self,
        workspace: &str,
        names: &[String],
        text: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<Skill>, LookupError>;
}

/// What a session may be told of the agents there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    pub entries: Vec<CatalogEntry>,
    /// How many more there are.
    pub omitted: usize,
    pub generation: u64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// `message` is the registry's own, with the names there are.
    #[error("{message}")]
    Unknown { message: String, suggestion: String, available_count: String },
    #[error("{message}")]
    Broken { message: String },
    #[error("the registry does not know the workspace")]
    WorkspaceNotFound,
    #[error("the registry does not answer")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}
