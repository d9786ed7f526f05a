//! The registry's configuration. The comments of its fields are the reference in `docs/configuration.md`.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use service_kit::{
    auth::Credentials,
    config::{self, Address, Configuration, Section},
};

use crate::merge::OnBrokenOverride;

/// The name of the workspace that a request without one means.
pub const DEFAULT_WORKSPACE: &str = "default";

/// The store that needs nothing else.
const DIRECTORY_STORE: &str = "directory";

/// Configuration of `registry-svc`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the gRPC interface. Port 0 takes a free one.
    #[schemars(with = "Address")]
    pub listen: SocketAddr,
    /// Address of `/livez`, `/readyz` and `/metrics`.
    #[schemars(with = "Address")]
    pub admin: SocketAddr,
    /// Directory of the token and, below `registry`, of the store.
    pub data: PathBuf,
    /// Where authored definitions are kept: `directory`.
    pub store: String,
    /// Serves an address that is not loopback without TLS, and lets callers there read without credentials.
    pub insecure: bool,
    /// Offers gRPC reflection. Without a value: on loopback only. Elsewhere it needs credentials.
    pub reflection: Option<bool>,
    /// Who may call. Without any token, callers without credentials may read and reload.
    pub credentials: Credentials,
    /// Merges by name; `default` is the one that a request without a name means.
    pub workspaces: BTreeMap<String, WorkspaceConfig>,
}

/// Where one workspace takes its definitions from.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkspaceConfig {
    /// Directory from which project directories are looked for, upwards.
    pub cwd: PathBuf,
    /// Directory of the user directories; none where it is absent.
    pub home: Option<PathBuf>,
    /// Source families in their order, each with its dot.
    pub families: Vec<String>,
    /// Reads the plugins that Claude Code has installed.
    pub plugins: bool,
    /// Directories of definitions, such as a mounted ConfigMap, in their order.
    pub roots: Vec<PathBuf>,
    /// Ends with the definitions that are compiled in.
    pub bundled: bool,
    /// What a document that cannot be used does to its name: the next candidate comes into force, or none.
    pub on_broken_override: BrokenOverride,
    /// Names that only the operator's places may define.
    pub protected: Vec<String>,
    /// Families and roots whose files give a definition without a name theirs.
    pub name_from_file: Vec<String>,
    /// Directories that symbolic links may lead to, beside those they stand in.
    pub link_roots: Vec<PathBuf>,
}

/// What a document that cannot be used does to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BrokenOverride {
    FallThrough,
    Block,
}

/// The registry's part of `docs/configuration.md`.
pub fn reference() -> String {
    config::reference::<Config>(Section {
        title: "registry-svc",
        introduction: "File by `--config FILE`. Flags of `serve` that set keys: `--listen`, `--data`, `--store`, and \
                       `--root`, `--cwd`, `--home` for the workspace `default`.",
    })
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 7401).into(),
            admin: (Ipv4Addr::LOCALHOST, 7411).into(),
            data: "./var".into(),
            store: DIRECTORY_STORE.to_owned(),
            insecure: false,
            reflection: None,
            credentials: Credentials::default(),
            workspaces: [(DEFAULT_WORKSPACE.to_owned(), WorkspaceConfig::default())].into(),
        }
    }
}

impl Default for WorkspaceConfig {
    fn default() -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            cwd: ".".into(),
            home: Some("${env:HOME}".into()),
            families: words(&[".xcsh", ".claude", ".codex", ".gemini"]),
            plugins: true,
            roots: Vec::new(),
            bundled: true,
            on_broken_override: BrokenOverride::FallThrough,
            protected: words(&["default", "reviewer"]),
            name_from_file: words(&[".opencode", ".github", ".kilo"]),
            link_roots: Vec::new(),
        }
    }
}

impl Configuration for Config {
    fn check(&self) -> Vec<(String, String)> {
        let mut mistakes: Vec<_> = config::check_exposure(self.listen, self.insecure).into_iter().collect();
        if self.store != DIRECTORY_STORE {
            let message =
                format!("`{}` is not a store of this version; there is `{DIRECTORY_STORE}`", self.store);
            mistakes.push(("store".to_owned(), message));
        }
        if self.workspaces.is_empty() {
            mistakes
                .push(("workspaces".to_owned(), "has no workspace; leave it out for `default`".to_owned()));
        }
        for (name, workspace) in &self.workspaces {
            for family in workspace.families.iter().filter(|family| !is_family(family)) {
                let message = format!("`{family}` is not a family: a name with its dot, such as `.claude`");
                mistakes.push((format!("workspaces.{name}.families"), message));
            }
        }
        mistakes
    }
}

impl Config {
    /// True where reflection is offered.
    pub fn offers_reflection(&self) -> bool {
        self.reflection.unwrap_or_else(|| self.listen.ip().is_loopback())
    }
}

impl From<BrokenOverride> for OnBrokenOverride {
    fn from(value: BrokenOverride) -> Self {
        match value {
            BrokenOverride::FallThrough => Self::FallThrough,
            BrokenOverride::Block => Self::Block,
        }
    }
}

/// A family is one path component, so that no path is made of more than it.
fn is_family(text: &str) -> bool {
    text.strip_prefix('.').is_some_and(|name| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
            && !name.starts_with('.')
    })
}

#[cfg(test)]
mod tests {
    use service_kit::config::{Environment, Flag, load};

    use super::*;

    #[test]
    fn the_defaults_are_a_configuration() {
        let config: Config = load(None, &Environment::default(), Vec::new()).unwrap().config;

        assert_eq!(config.listen.to_string(), "127.0.0.1:7401");
        assert_eq!(config.workspaces["default"].home, None);
        assert!(config.offers_reflection());
    }

    #[test]
    fn what_cannot_be_served_is_refused_before_anything_is_bound() {
        let flags = vec![
            Flag::new("--listen", "listen", "0.0.0.0:7401"),
            Flag::new("--store", "store", "postgres://db/roster"),
        ];
        let environment =
            Environment::from([("ROSTER_WORKSPACES__DEFAULT__FAMILIES", "[.claude, ../etc, claude]")]);

        let invalid = load::<Config>(None, &environment, flags).unwrap_err();

        let keys: Vec<&str> = invalid.0.iter().map(|mistake| mistake.key.as_str()).collect();
        assert_eq!(
            keys,
            ["listen", "store", "workspaces.default.families", "workspaces.default.families"],
            "{invalid}"
        );
    }
}
