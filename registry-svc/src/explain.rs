//! What a document would do to a workspace, and whether what it names is there.

use std::sync::Arc;

use crate::{
    agent::{Agent, Source, SourceKind, SpawnPolicy},
    diagnostic::{Code, Diagnostic, Severity},
    merge::Standing,
    snapshot::Snapshot,
};

/// What a document would do if it were written through `Replace`.
#[derive(Debug)]
pub struct Preview {
    /// Places whose definitions it would keep out of force, in merge order.
    pub would_shadow: Vec<Arc<Source>>,
    /// Names in it that nothing in force has.
    pub diagnostics: Vec<Diagnostic>,
}

/// Looks at an agent against a snapshot, as `Validate` with a workspace does.
pub fn preview(snapshot: &Snapshot, agent: &Agent) -> Preview {
    Preview {
        would_shadow: shadowed_by(snapshot, agent.name.as_str()),
        diagnostics: unknown_names(snapshot, agent),
    }
}

/// The places of usable definitions of a name that an authored one goes before.
pub fn shadowed_by(snapshot: &Snapshot, name: &str) -> Vec<Arc<Source>> {
    let Some(named) = snapshot.named(name) else { return Vec::new() };
    let below = named.candidates.iter().filter(|candidate| match candidate.standing {
        Standing::InForce | Standing::Shadowed => candidate.document.source.kind != SourceKind::Authored,
        Standing::Broken | Standing::Protected => false,
    });
    below.map(|candidate| Arc::clone(&candidate.document.source)).collect()
}

fn unknown_names(snapshot: &Snapshot, agent: &Agent) -> Vec<Diagnostic> {
    let spawns: &[String] = match &agent.spawns {
        SpawnPolicy::Listed(names) => names,
        SpawnPolicy::None | SpawnPolicy::All => &[],
    };
    let has_agent = |name: &str| name == agent.name.as_str() || snapshot.by_name(name).is_ok();
    let has_skill = |name: &str| snapshot.skills().iter().any(|skill| skill.name == name);

    let unknown_agents = spawns.iter().filter(|name| !has_agent(name)).map(|name| {
        warning(
            agent,
            Code::UnknownSpawn,
            format!("no agent `{name}` is in force; correct the name or define it"),
        )
    });
    let unknown_skills = agent.skills.iter().filter(|name| !has_skill(name)).map(|name| {
        warning(
            agent,
            Code::UnknownSkill,
            format!("no skill `{name}` is known; correct the name or define it"),
        )
    });
    unknown_agents.chain(unknown_skills).collect()
}

fn warning(agent: &Agent, code: Code, message: String) -> Diagnostic {
    let mut diagnostic = Diagnostic::new(Severity::Warning, code, 0, 0, message);
    diagnostic.agent = agent.name.as_str().to_owned();
    diagnostic
}
