//! The operator's settings of tools: the section `tools` of the configuration.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use service_kit::config::Span;

use super::Class;
use crate::toolbag::Pattern;

/// What is never opened unless the operator says otherwise: environment files, keys, and git's stored credentials.
pub const READ_DENY: [&str; 4] = [".env*", "*.pem", "id_*", ".git/config"];

/// Tools: which there are, how dangerous they are, and what they may open. A pattern is a name with any number of `*`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether there is a tool `bash`. It runs any command with the rights of the executor, so it is off by default.
    pub bash: bool,

    /// How dangerous tools are, by pattern of their name. Of several patterns that match, the most dangerous counts. It
    /// decides before anything the tool says of itself.
    pub classes: BTreeMap<String, Class>,

    /// Names that definitions may use for tools: a tool's name, `mcp__<server>`, or a pattern.
    pub aliases: BTreeMap<String, String>,

    /// How long one call may take, by pattern of the tool's name. Of several patterns that match, the longest counts.
    /// Otherwise `limits.tool_timeout`.
    pub timeouts: BTreeMap<String, Span>,

    /// Names of files and directories that tools never open, compared without case. A pattern with a slash is a path, at
    /// any depth.
    pub read_deny: Vec<String>,

    /// Whether the built-in tools leave alone what `.gitignore` files leave out.
    pub gitignore: bool,

    /// Directories that tools never change, such as the roots that definitions are read from; relative ones lie in each
    /// workspace's `cwd`. Those of version control and of the known agent products are never changed anyhow.
    pub frozen: Vec<String>,

    /// What a mistake with a tool would reach, by pattern of the tool's name: words shown to the people who decide.
    pub blast_radius: BTreeMap<String, String>,

    /// Tools that models call though they are not theirs, each with the agent to dispatch instead.
    pub redirects: BTreeMap<String, String>,
}

impl Settings {
    /// How long one call of a tool may take, where the operator has said so.
    pub fn timeout(&self, tool: &str) -> Option<Duration> {
        Pattern::longest(&self.timeouts, tool).map(|span| span.0)
    }

    /// What a mistake with a tool would reach, where the operator has said so.
    pub fn blast_radius(&self, tool: &str) -> Option<&str> {
        Pattern::longest(&self.blast_radius, tool).map(String::as_str)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bash: false,
            classes: BTreeMap::new(),
            aliases: BTreeMap::new(),
            timeouts: BTreeMap::new(),
            read_deny: READ_DENY.map(str::to_owned).to_vec(),
            gitignore: true,
            frozen: Vec::new(),
            blast_radius: BTreeMap::new(),
            redirects: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, Settings};

    #[test]
    fn the_example_of_the_manual_is_understood() {
        let settings: Settings = serde_json::from_str(
            r#"{"bash": false, "classes": {"mcp__files__write_*": "write"}, "aliases": {}, "timeouts": {"bash": "2m"},
                "read_deny": [".env*"], "blast_radius": {}, "redirects": {"host_bash": "specialist-ops"}}"#,
        )
        .unwrap();

        assert_eq!(settings.classes["mcp__files__write_*"], Class::Write);
        assert_eq!(settings.timeouts["bash"].0.as_secs(), 120);
        assert!(settings.gitignore);
    }

    #[test]
    fn the_longest_pattern_counts() {
        let settings: Settings = serde_json::from_str(
            r#"{"timeouts": {"*": "1s", "mcp__*": "2s"}, "blast_radius": {"mcp__dns__*": "every host"}}"#,
        )
        .unwrap();

        assert_eq!(settings.timeout("mcp__dns__set").unwrap().as_secs(), 2);
        assert_eq!(settings.timeout("read").unwrap().as_secs(), 1);
        assert_eq!(settings.blast_radius("mcp__dns__set"), Some("every host"));
        assert_eq!(settings.blast_radius("read"), None);
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let result: Result<Settings, _> = serde_json::from_str(r#"{"bsah": true}"#);
        assert!(result.is_err());
    }
}
