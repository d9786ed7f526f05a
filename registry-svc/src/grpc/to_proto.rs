//! What goes out. Every field of every message is named, so that a new one has to be thought of here.

use std::sync::Arc;

use ::proto::{agent::v1 as agent_proto, registry::v1 as proto};

use super::from_proto::View;
use crate::{
    agent::{Agent, PermissionMode, Source, SourceKind, SpawnPolicy, ThinkingLevel, ToolSelection},
    catalog,
    command::Command,
    diagnostic::{Code, Diagnostic, Severity},
    document::Definition,
    merge::{Candidate, Standing},
    skill::{Activation, Skill},
    snapshot::Snapshot,
};

/// How much of a path a caller may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Paths {
    /// As the configuration leads to it: for administrators, and on loopback without configured credentials.
    Absolute,
    /// Below its source's directory. Findings do not know their source; these are the directories to look in.
    Below(Vec<Arc<str>>),
}

impl Paths {
    /// Concealed, with the directories of a snapshot's sources.
    pub(super) fn below(snapshot: &Snapshot) -> Self {
        let mut directories: Vec<Arc<str>> =
            snapshot.in_force().iter().map(|definition| Arc::clone(&definition.source.directory)).collect();
        directories
            .sort_unstable_by(|left, right| right.len().cmp(&left.len()).then_with(|| left.cmp(right)));
        directories.dedup();
        directories.retain(|directory| !directory.is_empty());
        Self::Below(directories)
    }

    fn source(&self, source: &Source) -> String {
        match self {
            Self::Absolute => source.path.clone(),
            Self::Below(_) => below(&source.path, &source.directory).unwrap_or(&source.path).to_owned(),
        }
    }

    /// A path whose source is not known; where it is below none, only its last part is shown.
    pub(super) fn finding(&self, path: &str) -> String {
        match self {
            Self::Absolute => path.to_owned(),
            Self::Below(_) if !path.starts_with('/') => path.to_owned(),
            Self::Below(directories) => directories
                .iter()
                .find_map(|directory| below(path, directory))
                .or_else(|| path.rsplit('/').next())
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// A finding's message. Those that name another place do so between backticks.
    fn message(&self, code: Code, message: &str) -> String {
        let names_place = matches!(
            code,
            Code::DuplicateName | Code::LinkEscapes | Code::PluginEntryInvalid | Code::PluginRegistryInvalid
        );
        if !names_place || *self == Self::Absolute {
            return message.to_owned();
        }
        message.split('`').map(|part| self.finding_if_path(part)).collect::<Vec<_>>().join("`")
    }

    fn finding_if_path(&self, text: &str) -> String {
        if text.starts_with('/') { self.finding(text) } else { text.to_owned() }
    }
}

pub(super) fn definition(definition: &Definition, view: View, paths: &Paths) -> agent_proto::AgentDefinition {
    let Agent {
        name,
        description,
        when_to_use,
        system_prompt,
        tools,
        disallowed_tools,
        spawns,
        models,
        thinking_level,
        output_schema,
        permission_mode,
        max_turns,
        critical_reminder,
        skills,
        mcp_servers,
        blocking,
        extra_json,
        digest,
    } = &*definition.agent;
    let whole = |text: &str| match view {
        View::Basic => String::new(),
        View::Full => text.to_owned(),
    };
    agent_proto::AgentDefinition {
        name: name.as_str().to_owned(),
        description: description.clone(),
        when_to_use: when_to_use.clone(),
        system_prompt: whole(system_prompt),
        tools: Some(tool_selection(tools)),
        disallowed_tools: disallowed_tools.clone(),
        spawns: Some(spawn_policy(spawns)),
        models: models.clone(),
        thinking_level: level(*thinking_level).into(),
        output_schema: output_schema.clone(),
        permission_mode: mode(*permission_mode).into(),
        max_turns: *max_turns,
        critical_reminder: critical_reminder.clone(),
        skills: skills.clone(),
        mcp_servers: mcp_servers.clone(),
        blocking: *blocking,
        extra_json: whole(extra_json),
        source: Some(source(&definition.source, paths)),
        digest: digest.to_string(),
    }
}

/// All of a definition but its prompt.
pub(super) fn without_prompt(definition: &Definition, paths: &Paths) -> agent_proto::AgentDefinition {
    agent_proto::AgentDefinition {
        extra_json: definition.agent.extra_json.clone(),
        ..self::definition(definition, View::Basic, paths)
    }
}

pub(super) fn source(source: &Source, paths: &Paths) -> agent_proto::Source {
    let Source { kind, family, path: _, directory: _, plugin, precedence } = source;
    agent_proto::Source {
        kind: source_kind(*kind).into(),
        family: family.clone(),
        path: paths.source(source),
        plugin: plugin.clone(),
        precedence: *precedence,
    }
}

pub(super) fn candidate(candidate: &Candidate, paths: &Paths) -> proto::Candidate {
    let Candidate { standing, document, findings } = candidate;
    let located = |finding: &Diagnostic| {
        let mut message = diagnostic(finding, paths);
        if finding.path == document.source.path {
            message.path = paths.source(&document.source);
        }
        message
    };
    proto::Candidate {
        source: Some(source(&document.source, paths)),
        standing: candidate_standing(*standing).into(),
        digest: document.digest.to_string(),
        size_bytes: document.size_bytes,
        diagnostics: document.diagnostics.iter().chain(findings).map(located).collect(),
    }
}

pub(super) fn diagnostic(diagnostic: &Diagnostic, paths: &Paths) -> proto::Diagnostic {
    let Diagnostic { severity, code, message, path, line, column, agent } = diagnostic;
    let severity = match severity {
        Severity::Warning => proto::diagnostic::Severity::Warning,
        Severity::Error => proto::diagnostic::Severity::Error,
    };
    proto::Diagnostic {
        severity: severity.into(),
        code: code.as_str().to_owned(),
        message: paths.message(*code, message),
        path: paths.finding(path),
        line: *line,
        column: *column,
        agent: agent.clone(),
    }
}

pub(super) fn catalog_entry(entry: catalog::Entry) -> proto::get_catalog_response::Entry {
    let catalog::Entry { name, description, when_to_use } = entry;
    proto::get_catalog_response::Entry { name, description, when_to_use }
}

pub(super) fn command(command: &Command, paths: &Paths) -> proto::Command {
    let Command { name, description, content, source: place, digest: _ } = command;
    proto::Command {
        name: name.clone(),
        description: description.clone(),
        content: content.clone(),
        source: Some(source(place, paths)),
    }
}

/// Bodies are for `ResolveSkills` only.
pub(super) fn skill(skill: &Skill, with_body: bool, paths: &Paths) -> proto::Skill {
    let Skill { name, description, prompt_body, activation, source: place, digest: _ } = skill;
    let (activation, keywords) = match activation {
        Activation::Named => (proto::skill::Activation::Named, Vec::new()),
        Activation::Keyword(keywords) => (proto::skill::Activation::Keyword, keywords.clone()),
        Activation::Always => (proto::skill::Activation::Always, Vec::new()),
    };
    proto::Skill {
        name: name.clone(),
        description: description.clone(),
        prompt_body: if with_body { prompt_body.clone() } else { String::new() },
        activation: activation.into(),
        keywords,
        source: Some(source(place, paths)),
    }
}

pub(super) fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn tool_selection(tools: &ToolSelection) -> agent_proto::ToolSelection {
    use agent_proto::tool_selection::Mode;
    let (mode, names) = match tools {
        ToolSelection::Inherit => (Mode::Inherit, Vec::new()),
        ToolSelection::All => (Mode::All, Vec::new()),
        ToolSelection::Listed(names) => (Mode::Listed, names.clone()),
    };
    agent_proto::ToolSelection { mode: mode.into(), names }
}

fn spawn_policy(spawns: &SpawnPolicy) -> agent_proto::SpawnPolicy {
    use agent_proto::spawn_policy::Mode;
    let (mode, names) = match spawns {
        SpawnPolicy::None => (Mode::None, Vec::new()),
        SpawnPolicy::All => (Mode::All, Vec::new()),
        SpawnPolicy::Listed(names) => (Mode::Listed, names.clone()),
    };
    agent_proto::SpawnPolicy { mode: mode.into(), names }
}

fn level(level: Option<ThinkingLevel>) -> agent_proto::ThinkingLevel {
    match level {
        None => agent_proto::ThinkingLevel::Unspecified,
        Some(ThinkingLevel::Off) => agent_proto::ThinkingLevel::Off,
        Some(ThinkingLevel::Minimal) => agent_proto::ThinkingLevel::Minimal,
        Some(ThinkingLevel::Low) => agent_proto::ThinkingLevel::Low,
        Some(ThinkingLevel::Medium) => agent_proto::ThinkingLevel::Medium,
        Some(ThinkingLevel::High) => agent_proto::ThinkingLevel::High,
        Some(ThinkingLevel::Xhigh) => agent_proto::ThinkingLevel::Xhigh,
    }
}

fn mode(mode: Option<PermissionMode>) -> agent_proto::PermissionMode {
    match mode {
        None => agent_proto::PermissionMode::Unspecified,
        Some(PermissionMode::ReadOnly) => agent_proto::PermissionMode::ReadOnly,
        Some(PermissionMode::DualSign) => agent_proto::PermissionMode::DualSign,
        Some(PermissionMode::MutatingWithReview) => agent_proto::PermissionMode::MutatingWithReview,
    }
}

fn source_kind(kind: SourceKind) -> agent_proto::source::Kind {
    use agent_proto::source::Kind;
    match kind {
        SourceKind::Authored => Kind::Authored,
        SourceKind::Project => Kind::Project,
        SourceKind::User => Kind::User,
        SourceKind::Plugin => Kind::Plugin,
        SourceKind::Root => Kind::Root,
        SourceKind::Bundled => Kind::Bundled,
    }
}

fn candidate_standing(standing: Standing) -> proto::candidate::Standing {
    match standing {
        Standing::InForce => proto::candidate::Standing::InForce,
        Standing::Shadowed => proto::candidate::Standing::Shadowed,
        Standing::Broken => proto::candidate::Standing::Broken,
        Standing::Protected => proto::candidate::Standing::Protected,
    }
}

/// The part of a path below a directory.
fn below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    if directory.is_empty() {
        return None;
    }
    path.strip_prefix(directory)?.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_concealed_below_their_source() {
        let paths = Paths::Below(vec![Arc::from("/srv/team/.claude/agents")]);

        assert_eq!(paths.finding("/srv/team/.claude/agents/a/b.md"), "a/b.md");
        assert_eq!(paths.finding("/home/ann/secret/b.md"), "b.md");
        assert_eq!(paths.finding("embedded:explore.md"), "embedded:explore.md");
        assert_eq!(Paths::Absolute.finding("/home/ann/b.md"), "/home/ann/b.md");
    }

    #[test]
    fn a_message_conceals_the_places_it_names() {
        let paths = Paths::Below(vec![Arc::from("/srv/team/.claude/agents")]);
        let twice = "`a` is also defined in `/srv/team/.claude/agents/b/a.md`, which is asked first";

        assert_eq!(
            paths.message(Code::DuplicateName, twice),
            "`a` is also defined in `b/a.md`, which is asked first"
        );
        assert_eq!(paths.message(Code::LinkEscapes, "leads to `/home/ann/b.md`"), "leads to `b.md`");
        assert_eq!(Paths::Absolute.message(Code::DuplicateName, twice), twice);
        // A value of the document, not a place.
        assert_eq!(paths.message(Code::InvalidName, "`/etc` begins with `/`"), "`/etc` begins with `/`");
    }

    #[test]
    fn a_directory_is_no_prefix_of_its_neighbour() {
        assert_eq!(below("/srv/agents2/a.md", "/srv/agents"), None);
        assert_eq!(below("/srv/agents/a.md", "/srv/agents"), Some("a.md"));
        assert_eq!(below("/srv/agents/a.md", ""), None);
    }
}
