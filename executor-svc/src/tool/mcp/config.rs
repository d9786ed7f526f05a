//! The `mcp_servers` section of the configuration.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use service_kit::config::{Secret, Span};

use super::{name, transport};

/// One MCP server. Either a command or a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Program and arguments, started without a shell, in the directory of the configuration file.
    pub command: Vec<String>,
    /// Environment of the command. Beside these it has a `PATH` of the system's directories and nothing of the executor's.
    pub env: BTreeMap<String, Secret>,
    /// Where it is reached by streamable HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of every HTTP request, such as `Authorization`.
    pub headers: BTreeMap<String, Secret>,
    /// Believe the server where it says that a tool only reads.
    pub trust_annotations: bool,
    /// How long it may take to start, to list its tools, and to say that it is still there.
    pub start_timeout: Span,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            env: BTreeMap::new(),
            url: None,
            headers: BTreeMap::new(),
            trust_annotations: false,
            // Interpreters take a second; a server that is still silent after this is not going to speak.
            start_timeout: Span::seconds(10),
        }
    }
}

impl Server {
    /// What is wrong with a server of this name, as the key and the message.
    pub fn mistakes(&self, server: &str) -> Vec<(String, String)> {
        let key = format!("mcp_servers.{server}");
        let mut mistakes = Vec::new();
        let mut note = |key: String, message: &str| mistakes.push((key, message.to_owned()));
        if !name::is_server(server) {
            note(key.clone(), "is not a name of `[a-z0-9-]{1,24}`");
        }
        match (self.command.first(), &self.url) {
            (Some(_), Some(_)) | (None, None) => note(key.clone(), "needs either `command` or `url`"),
            (Some(program), None) if program.is_empty() => {
                note(format!("{key}.command"), "begins with the name of a program");
            }
            (Some(_), None) if !self.headers.is_empty() => {
                note(format!("{key}.headers"), "belongs to a server with `url`");
            }
            (None, Some(_)) if !self.env.is_empty() => {
                note(format!("{key}.env"), "belongs to a server with `command`");
            }
            (None, Some(url)) if !transport::is_url(url) => {
                note(format!("{key}.url"), "is no URL of the kind `http://…` or `https://…`");
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
        for variable in self.env.keys().filter(|name| name.is_empty() || name.contains(['=', '\0'])) {
            note(format!("{key}.env.{variable}"), "is no name of a variable");
        }
        if let Err(header) = transport::headers(&self.headers) {
            note(format!("{key}.headers.{header}"), "is no header that may be set");
        }
        mistakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_command_or_a_url_and_what_belongs_to_it() {
        let secret = |name: &str| BTreeMap::from([(name.to_owned(), Secret::new("x"))]);
        let command = Server { command: vec!["serve".to_owned()], ..Server::default() };
        let http = Server { url: Some("http://127.0.0.1:1/mcp".to_owned()), ..Server::default() };
        for (name, server, key) in [
            ("files-2", command.clone(), None),
            ("search", http.clone(), None),
            ("Files", command.clone(), Some("mcp_servers.Files")),
            ("a_b", command.clone(), Some("mcp_servers.a_b")),
            ("abcdefghijklmnopqrstuvwxy", command.clone(), Some("mcp_servers.abcdefghijklmnopqrstuvwxy")),
            ("s", Server::default(), Some("mcp_servers.s")),
            ("s", Server { url: http.url.clone(), ..command.clone() }, Some("mcp_servers.s")),
            ("s", Server { command: vec![String::new()], ..command.clone() }, Some("mcp_servers.s.command")),
            ("s", Server { env: secret("A"), ..command.clone() }, None),
            ("s", Server { env: secret("A=B"), ..command.clone() }, Some("mcp_servers.s.env.A=B")),
            ("s", Server { headers: secret("X-Key"), ..command }, Some("mcp_servers.s.headers")),
            ("s", Server { env: secret("A"), ..http.clone() }, Some("mcp_servers.s.env")),
            ("s", Server { headers: secret("Authorization"), ..http.clone() }, None),
            (
                "s",
                Server { headers: secret("Mcp-Session-Id"), ..http.clone() },
                Some("mcp_servers.s.headers.Mcp-Session-Id"),
            ),
            (
                "s",
                Server { headers: secret("no header"), ..http.clone() },
                Some("mcp_servers.s.headers.no header"),
            ),
            ("s", Server { url: Some("file:///etc/passwd".to_owned()), ..http }, Some("mcp_servers.s.url")),
        ] {
            let keys: Vec<_> = server.mistakes(name).into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, key.into_iter().collect::<Vec<_>>(), "{name}: {server:?}");
        }
    }
}
