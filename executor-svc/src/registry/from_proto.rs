//! From the registry's messages to what the executor keeps.

use proto::{
    agent::v1::{self as agent, AgentDefinition},
    registry::v1::{GetCatalogResponse, ResolveSkillsResponse, get_catalog_response::Entry},
};

use super::Catalog;
use crate::{
    definition::{Definition, PermissionMode, SpawnPolicy, ThinkingLevel, ToolSelection},
    prompt::{CatalogEntry, Skill},
};

pub(super) fn definition(message: AgentDefinition) -> Definition {
    let thinking_level = thinking(message.thinking_level());
    let permission_mode = mode(message.permission_mode());
    let AgentDefinition {
        name,
        description,
        when_to_use: _,
        system_prompt,
        tools,
        disallowed_tools,
        spawns,
        models,
        thinking_level: _,
        output_schema,
        permission_mode: _,
        max_turns,
        critical_reminder,
        skills,
        mcp_servers,
        blocking,
        extra_json: _,
        source: _,
        digest,
    } = message;
    Definition {
        name,
        description,
        system_prompt,
        tools: tools.map_or(ToolSelection::Inherit, selection),
        disallowed_tools,
        spawns: spawns.map_or(SpawnPolicy::None, policy),
        models,
        thinking_level,
        output_schema,
        permission_mode,
        max_turns,
        critical_reminder,
        skills,
        mcp_servers,
        blocking,
        digest,
    }
}

pub(super) fn policy_message(policy: &SpawnPolicy) -> agent::SpawnPolicy {
    use agent::spawn_policy::Mode;
    let (mode, names) = match policy {
        SpawnPolicy::None => (Mode::None, Vec::new()),
        SpawnPolicy::All => (Mode::All, Vec::new()),
        SpawnPolicy::Listed(names) => (Mode::Listed, names.clone()),
    };
    agent::SpawnPolicy { mode: mode.into(), names }
}

pub(super) fn catalog(message: GetCatalogResponse) -> Catalog {
    let GetCatalogResponse { entries, omitted, generation } = message;
    let entries = entries
        .into_iter()
        .map(|Entry { name, description, when_to_use }| CatalogEntry { name, description, when_to_use })
        .collect();
    Catalog { entries, omitted: omitted as usize, generation }
}

pub(super) fn skills(message: ResolveSkillsResponse) -> Vec<Skill> {
    let body = |skill: proto::registry::v1::Skill| Skill { name: skill.name, body: skill.prompt_body };
    message.skills.into_iter().map(body).collect()
}

fn selection(message: agent::ToolSelection) -> ToolSelection {
    use agent::tool_selection::Mode;
    match message.mode() {
        Mode::Unspecified | Mode::Inherit => ToolSelection::Inherit,
        Mode::All => ToolSelection::All,
        Mode::Listed => ToolSelection::Listed(message.names),
    }
}

/// A policy that says nothing allows nothing.
fn policy(message: agent::SpawnPolicy) -> SpawnPolicy {
    use agent::spawn_policy::Mode;
    match message.mode() {
        Mode::Unspecified | Mode::None => SpawnPolicy::None,
        Mode::All => SpawnPolicy::All,
        Mode::Listed => SpawnPolicy::Listed(message.names),
    }
}

fn thinking(level: agent::ThinkingLevel) -> Option<ThinkingLevel> {
    match level {
        agent::ThinkingLevel::Unspecified => None,
        agent::ThinkingLevel::Off => Some(ThinkingLevel::Off),
        agent::ThinkingLevel::Minimal => Some(ThinkingLevel::Minimal),
        agent::ThinkingLevel::Low => Some(ThinkingLevel::Low),
        agent::ThinkingLevel::Medium => Some(ThinkingLevel::Medium),
        agent::ThinkingLevel::High => Some(ThinkingLevel::High),
        agent::ThinkingLevel::Xhigh => Some(ThinkingLevel::Xhigh),
    }
}

fn mode(mode: agent::PermissionMode) -> Option<PermissionMode> {
    match mode {
        agent::PermissionMode::Unspecified => None,
        agent::PermissionMode::ReadOnly => Some(PermissionMode::ReadOnly),
        agent::PermissionMode::MutatingWithReview => Some(PermissionMode::MutatingWithReview),
        agent::PermissionMode::DualSign => Some(PermissionMode::DualSign),
    }
}
