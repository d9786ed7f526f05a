//! The executor's configuration: every key with its default and its documentation. The environment is read here only.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use service_kit::{
    auth::Credentials,
    config::{self, Address, Configuration, Environment, Secret, Section, Span, check_exposure},
};

use crate::{
    limits::{Limits, Overrides},
    model::config::Models,
    prompt::Prompts,
    tool::{mcp, settings::Settings},
};

/// The workspace of a request that names none.
pub const DEFAULT_WORKSPACE: &str = "default";

/// Variables that name an agent nobody may spawn, set by a program that runs as that agent and started the executor.
const BLOCKED_AGENT_VARIABLES: [&str; 2] = ["ROSTER_BLOCKED_AGENT", "PI_BLOCKED_AGENT"];

/// Configuration of `executor-svc`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the gRPC interface. Port 0 takes a free one.
    #[schemars(with = "Address")]
    pub listen: SocketAddr,
    /// Address of `/livez`, `/readyz` and `/metrics`. Port 0 takes a free one.
    #[schemars(with = "Address")]
    pub admin: SocketAddr,
    /// Directory of the store, the lock and the token. A registry that shares it shares the token.
    pub data: PathBuf,
    /// `sqlite`: in the data directory.
    pub store: Store,
    /// URL of the registry.
    pub registry: String,
    /// Token for the registry, where it needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry_token: Option<Secret>,
    /// Language models and their providers.
    pub models: Models,
    /// Tools.
    pub tools: Settings,
    /// What the executor does for, by name.
    pub workspaces: BTreeMap<String, Workspace>,
    /// Limits; a workspace may set its own.
    pub limits: Limits,
    /// Identical calls.
    pub dedupe: Dedupe,
    /// Texts around the agents' own prompts.
    pub prompts: Prompts,
    /// The review gate before tools that change something.
    pub review: Review,
    /// MCP servers, by the name that stands in `mcp__<server>__<tool>`.
    pub mcp_servers: BTreeMap<String, mcp::config::Server>,
    /// The end of the process.
    pub drain: Drain,
    /// Root sessions.
    pub sessions: Sessions,
    /// How long records are kept.
    pub retention: Retention,
    /// Traces.
    pub otel: Otel,
    /// Who may call.
    pub credentials: Credentials,
    /// Serve an address that is not loopback without TLS.
    pub insecure: bool,
    /// Offer the interface to `grpcurl` and its like. Absent: on loopback only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reflection: Option<bool>,
}

/// Which store keeps the sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Store {
    #[default]
    Sqlite,
}

/// One workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workspace {
    /// Directory that the built-in tools may look into.
    pub cwd: PathBuf,
    /// The agent a conversation runs under; it is never dispatched.
    pub coordinator: String,
    /// Limits of this workspace, in place of those in `limits`.
    pub limits: Overrides,
}

/// Identical calls are answered once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dedupe {
    /// How long after its completion a worker answers an identical call. `0s` joins running ones only.
    pub ttl: Span,
    /// How many calls are remembered; the least recently used is forgotten first.
    #[schemars(range(min = 1))]
    pub capacity: usize,
}

/// The review gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Review {
    /// Tools that pass without a review, by pattern of their name.
    pub exempt: Vec<String>,
    /// Reviews at a time, in slots of their own.
    #[schemars(range(min = 1))]
    pub slots: u32,
    /// How long the reviewer has; then the call is rejected.
    pub timeout: Span,
    /// How long a person has, where a second approval is needed.
    pub person_timeout: Span,
}

/// Root sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sessions {
    /// A named root without a worker for this long is closed.
    pub idle: Span,
}

/// How long records are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Trees that are closed for this long are deleted.
    pub closed: Span,
}

/// Traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Otel {
    /// OTLP endpoint; empty sends nothing.
    pub endpoint: String,
}

/// The end of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// How long workers may go on after SIGTERM. Then they are stopped as `DRAINED`.
    pub timeout: Span,
}

impl Config {
    /// True where reflection is on: as configured, otherwise on loopback.
    pub fn offers_reflection(&self) -> bool {
        self.reflection.unwrap_or_else(|| self.listen.ip().is_loopback())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7402)),
            admin: SocketAddr::from(([127, 0, 0, 1], 7412)),
            data: PathBuf::from("./var"),
            store: Store::Sqlite,
            registry: "http://127.0.0.1:7401".to_owned(),
            registry_token: None,
            models: Models::default(),
            tools: Settings::default(),
            workspaces: BTreeMap::from([(DEFAULT_WORKSPACE.to_owned(), Workspace::default())]),
            limits: Limits::default(),
            dedupe: Dedupe::default(),
            prompts: Prompts::default(),
            review: Review::default(),
            mcp_servers: BTreeMap::new(),
            drain: Drain::default(),
            sessions: Sessions::default(),
            retention: Retention::default(),
            otel: Otel::default(),
            credentials: Credentials::default(),
            insecure: false,
            reflection: None,
        }
    }
}

impl Default for Workspace {
    fn default() -> Self {
        Self { cwd: PathBuf::from("."), coordinator: "default".to_owned(), limits: Overrides::default() }
    }
}

impl Default for Dedupe {
    fn default() -> Self {
        // Long enough for a coordinator that repeats itself in one breath, short enough that work is never stale.
        Self { ttl: Span::seconds(120), capacity: 4096 }
    }
}

impl Default for Review {
    fn default() -> Self {
        Self {
            exempt: Vec::new(),
            slots: 8,
            timeout: Span::seconds(60),
            person_timeout: Span::seconds(30 * 60),
        }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self { idle: Span::seconds(24 * 60 * 60) }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { closed: Span::seconds(30 * 24 * 60 * 60) }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self { timeout: Span::seconds(60) }
    }
}

impl Configuration for Config {
    fn check(&self) -> Vec<(String, String)> {
        let mut mistakes: Vec<_> = check_exposure(self.listen, self.insecure).into_iter().collect();
        if !self.workspaces.contains_key(DEFAULT_WORKSPACE) {
            mistakes.push(("workspaces".to_owned(), format!("there is no workspace `{DEFAULT_WORKSPACE}`")));
        }
        mistakes.extend(self.mcp_servers.iter().flat_map(|(name, server)| server.mistakes(name)));
        if self.tools.bash && self.credentials.tokens.is_empty() {
            let message =
                "needs `credentials.tokens`: a worker could call the services itself, as anybody".to_owned();
            mistakes.push(("tools.bash".to_owned(), message));
        }
        mistakes
    }
}

impl Config {
    /// Keys that are set and have no effect in this version. Each is told when the executor starts.
    pub fn without_effect(&self) -> Vec<&'static str> {
        [("otel.endpoint", !self.otel.endpoint.is_empty())]
            .into_iter()
            .filter_map(|(key, is_set)| is_set.then_some(key))
            .collect()
    }
}

/// The executor's part of `docs/configuration.md`.
pub fn reference() -> String {
    config::reference::<Config>(Section {
        title: "executor-svc",
        introduction: "File by `--config FILE`. Flags of `serve` that set keys: `--listen`, `--admin`, `--registry`, `--data`, \
                       `--store`, and `--rehearsal FILE`, which sets `models.default` and the provider `offline`.",
    })
}

/// The agents that the process environment blocks.
pub fn blocked_agents(environment: &Environment) -> Vec<String> {
    BLOCKED_AGENT_VARIABLES
        .iter()
        .filter_map(|name| environment.get(name))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use service_kit::config::load;

    use super::*;

    /// The manual's example, with the keys that others rely on.
    const MANUAL: &str = r#"
listen: 127.0.0.1:7402
admin: 127.0.0.1:7412
data: ./var
store: sqlite
registry: http://127.0.0.1:7401
models:
  default: local/qwen3
  aliases: {sonnet: local/qwen3}
  providers:
    local: {kind: openai, base_url: http://127.0.0.1:11434/v1}
    claude: {kind: anthropic, api_key: "${env:ANTHROPIC_API_KEY}"}
    offline: {kind: rehearsal, script: rehearsal.yaml}
workspaces: {default: {cwd: ., coordinator: default}}
mcp_servers:
  files: {command: [mcp-server-filesystem, /srv/docs], trust_annotations: false}
  search: {url: http://127.0.0.1:3901/mcp}
tools: {bash: false, classes: {"mcp__files__write_*": write}, aliases: {}, timeouts: {}, read_deny: [".env*"], blast_radius: {}, redirects: {host_bash: specialist-ops}}
limits: {max_recursion_depth: 2, root_spawns: "*", root_tools: "*", disabled_agents: [], blocked_agents: []}
dedupe: {ttl: 120s, capacity: 4096}
review: {exempt: [], slots: 8, timeout: 60s, person_timeout: 30m}
prompts: {base: "", plan: "", skill_header: "[能力: <name>]"}
drain: {timeout: 60s}
sessions: {idle: 24h}
retention: {closed: 30d}
insecure: false
reflection: true
otel: {endpoint: ""}
"#;

    fn read(text: &str, environment: &Environment) -> Result<Config, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        match load::<Config>(Some(file.path()), environment, Vec::new()) {
            Ok(loaded) => Ok(loaded.config),
            Err(invalid) => Err(invalid.to_string()),
        }
    }

    #[test]
    fn the_manuals_example_is_understood() {
        let environment = Environment::from([("ANTHROPIC_API_KEY", "key")]);

        let config = read(MANUAL, &environment).unwrap();

        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.dedupe, Dedupe::default());
        assert_eq!(config.retention, Retention::default());
        assert!(config.without_effect().is_empty());
    }

    #[test]
    fn the_environment_sets_limits_and_words_among_them() {
        let environment = Environment::from([
            ("ROSTER_LIMITS__MAX_TURNS", "12"),
            ("ROSTER_LIMITS__TREE_TOKENS", "unlimited"),
            ("ROSTER_LIMITS__ROOT_SPAWNS", "[explore]"),
            ("ROSTER_WORKSPACES__DEFAULT__LIMITS__QUEUE_WAIT", "1s"),
        ]);
        let mistakes = read("", &environment).unwrap_err();
        assert!(mistakes.contains("queue_wait"), "a replica's limit is no workspace's: {mistakes}");

        let environment = Environment::from([("ROSTER_LIMITS__MAX_TURNS", "12")]);
        let config = read("", &environment).unwrap();
        assert_eq!(config.limits.max_turns, crate::limits::Bound::Of(12));
    }

    #[test]
    fn every_mistake_is_told_with_its_key() {
        let text =
            "listen: 0.0.0.0:7402\nlimits: {max_turn: 3}\nmcp_servers: {Files: {}}\ntools: {bash: true}\n";

        let mistakes = read(text, &Environment::default()).unwrap_err();

        assert!(mistakes.contains("max_turn"), "{mistakes}");
        let text = text.replace("max_turn:", "max_turns:");
        let mistakes = read(&text, &Environment::default()).unwrap_err();
        for expected in ["insecure", "`[a-z0-9-]{1,24}`", "needs either", "credentials.tokens"] {
            assert!(mistakes.contains(expected), "{expected}: {mistakes}");
        }
    }

    #[test]
    fn blocked_agents_come_from_two_variables() {
        let environment =
            Environment::from([("ROSTER_BLOCKED_AGENT", "outer"), ("PI_BLOCKED_AGENT", " inner ")]);

        assert_eq!(blocked_agents(&environment), ["outer", "inner"]);
    }
}
