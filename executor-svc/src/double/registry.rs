//! A registry that has one agent under every name, and one that has those of the test.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::{
    admission::REVIEWER,
    definition::{Definition, SpawnPolicy, ToolSelection},
    prompt::Skill,
    registry::{Catalog, LookupError, Registry},
};

pub(super) struct OneAgent {
    pub(super) reviewer: Reviewer,
}

/// What is answered where the reviewer is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reviewer {
    /// A definition that asks for every tool and every agent.
    #[default]
    There,
    Unknown,
    Broken,
    /// The registry does not answer.
    Away,
}

/// Agents by their names.
pub(crate) struct Agents(pub(crate) BTreeMap<String, Definition>);

/// An agent that may spawn everybody.
pub(crate) fn definition(name: &str) -> Definition {
    Definition {
        name: name.to_owned(),
        description: "Does it.".to_owned(),
        system_prompt: "Do it.".to_owned(),
        tools: ToolSelection::Inherit,
        disallowed_tools: Vec::new(),
        spawns: SpawnPolicy::All,
        models: Vec::new(),
        thinking_level: None,
        output_schema: None,
        permission_mode: None,
        max_turns: None,
        critical_reminder: String::new(),
        skills: Vec::new(),
        mcp_servers: Vec::new(),
        blocking: false,
        digest: "digest".to_owned(),
    }
}

#[async_trait]
impl Registry for OneAgent {
    async fn by_name(&self, _: &str, name: &str, _: Option<Instant>) -> Result<Definition, LookupError> {
        match self.reviewer {
            Reviewer::Unknown if name == REVIEWER => Err(LookupError::Unknown {
                message: "Unknown agent \"reviewer\".".to_owned(),
                suggestion: String::new(),
                available_count: "1".to_owned(),
            }),
            Reviewer::Broken if name == REVIEWER => {
                Err(LookupError::Broken { message: "Agent \"reviewer\" cannot be used.".to_owned() })
            }
            Reviewer::Away if name == REVIEWER => Err(LookupError::Unavailable("connection refused".into())),
            Reviewer::There | Reviewer::Unknown | Reviewer::Broken | Reviewer::Away => Ok(definition(name)),
        }
    }

    async fn catalog(&self, _: &str, _: &SpawnPolicy, _: Option<Instant>) -> Result<Catalog, LookupError> {
        Ok(Catalog::default())
    }

    async fn skills(
        &self,
        _: &str,
        _: &[String],
        _: &str,
        _: Option<Instant>,
    ) -> Result<Vec<Skill>, LookupError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Registry for Agents {
    async fn by_name(&self, _: &str, name: &str, _: Option<Instant>) -> Result<Definition, LookupError> {
        self.0.get(name).cloned().ok_or_else(|| LookupError::Unknown {
            message: format!("Unknown agent \"{name}\"."),
            suggestion: String::new(),
            available_count: self.0.len().to_string(),
        })
    }

    async fn catalog(&self, _: &str, _: &SpawnPolicy, _: Option<Instant>) -> Result<Catalog, LookupError> {
        Ok(Catalog::default())
    }

    async fn skills(
        &self,
        _: &str,
        _: &[String],
        _: &str,
        _: Option<Instant>,
    ) -> Result<Vec<Skill>, LookupError> {
        Ok(Vec::new())
    }
}
