//! The `models` section of the configuration.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use service_kit::config::{Secret, Span};

/// Which language models there are, and which one is used where nobody names one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Models {
    /// The model of workers for which nothing else names one, as `<provider>/<model>` or an alias.
    pub default: Option<String>,
    /// Names that agent files use, such as `sonnet` or `@slow`, and what they stand for here.
    pub aliases: BTreeMap<String, String>,
    /// The most tokens that a model takes, question and answer together, by pattern of `<provider>/<model>`. Of several
    /// patterns that match, the longest counts. A worker whose conversation grows beyond it goes on with its oldest tool
    /// results cut down. Where nothing is said, a model's refusal tells.
    pub context_tokens: BTreeMap<String, u32>,
    /// Providers by the name that stands before the slash of a model.
    pub providers: BTreeMap<String, Provider>,
}

/// One provider of models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// The protocol: OpenAI-compatible chat completions, Anthropic messages, or a script that is replayed.
    pub kind: Kind,
    /// Where the API begins, such as `http://127.0.0.1:11434/v1`. Required for `openai`; `anthropic` has
    /// `https://api.anthropic.com`.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The key, best written as `${file:/path}` or `${env:NAME}`.
    #[serde(default)]
    pub api_key: Option<Secret>,
    /// The script of a `rehearsal`; a relative path begins at the configuration file's directory.
    #[serde(default)]
    pub script: Option<PathBuf>,
    /// The most tokens of one answer. `openai` sends none when it is absent; `anthropic` needs one and has 8192, to which the
    /// thinking budget is added.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_output_tokens: Option<u32>,
    /// The most requests at once; without meaning for a `rehearsal`. Fewer are sent for a while after the provider answers
    /// 429.
    #[serde(default = "Provider::max_concurrent")]
    #[schemars(range(min = 1))]
    pub max_concurrent: u32,
    /// How long a connection may take.
    #[serde(default = "Provider::connect_timeout")]
    pub connect_timeout: Span,
    /// How long the first token may take, from the request.
    #[serde(default = "Provider::token_timeout")]
    pub first_token_timeout: Span,
    /// How long each further token may take.
    #[serde(default = "Provider::token_timeout")]
    pub next_token_timeout: Span,
}

/// The protocol of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Openai,
    Anthropic,
    Rehearsal,
}

impl Provider {
    /// A provider of this kind with nothing else said.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            base_url: None,
            api_key: None,
            script: None,
            max_output_tokens: None,
            max_concurrent: Self::max_concurrent(),
            connect_timeout: Self::connect_timeout(),
            first_token_timeout: Self::token_timeout(),
            next_token_timeout: Self::token_timeout(),
        }
    }

    /// Keys that do not belong to the kind, and such as are missing: each with what is wrong.
    pub(super) fn mistakes(&self) -> Vec<(&'static str, String)> {
        let given = [
            ("base_url", self.base_url.is_some()),
            ("api_key", self.api_key.is_some()),
            ("script", self.script.is_some()),
            ("max_output_tokens", self.max_output_tokens.is_some()),
        ];
        let (allowed, required): (&[&str], &[&str]) = match self.kind {
            Kind::Openai => (&["base_url", "api_key", "max_output_tokens"], &["base_url"]),
            Kind::Anthropic => (&["base_url", "api_key", "max_output_tokens"], &[]),
            Kind::Rehearsal => (&["script"], &["script"]),
        };
        given
            .into_iter()
            .filter_map(|(key, is_given)| {
                if is_given && !allowed.contains(&key) {
                    Some((key, format!("has no meaning for a provider of kind `{}`", self.kind.word())))
                } else if !is_given && required.contains(&key) {
                    Some((key, format!("is required for a provider of kind `{}`", self.kind.word())))
                } else {
                    None
                }
            })
            .collect()
    }

    /// Above the 64 workers and 8 reviewers that run on a replica by default: the provider's own answers lower it.
    fn max_concurrent() -> u32 {
        128
    }

    /// A server that takes longer to accept than this is down.
    fn connect_timeout() -> Span {
        Span::seconds(5)
    }

    /// Long prompts take a local model tens of seconds before the first token.
    fn token_timeout() -> Span {
        Span::seconds(60)
    }
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Rehearsal => "rehearsal",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use service_kit::config::{Configuration, Environment, load};

    use super::*;

    /// As the service's own configuration holds it.
    #[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Whole {
        models: Models,
    }

    impl Configuration for Whole {
        fn check(&self) -> Vec<(String, String)> {
            Vec::new()
        }
    }

    fn load_text(text: &str) -> Result<Models, String> {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path().join("executor.yaml");
        fs::write(&path, text).expect("the file can be written");
        let environment = Environment::from([("ANTHROPIC_API_KEY", "sk-ant-1")]);
        load::<Whole>(Some(&path), &environment, Vec::new())
            .map(|loaded| loaded.config.models)
            .map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn providers_are_read_with_their_defaults() {
        let models = load_text(
            r#"
models:
  default: local/qwen3
  aliases: {sonnet: local/qwen3}
  providers:
    local: {kind: openai, base_url: http://127.0.0.1:11434/v1, first_token_timeout: 2m}
    claude: {kind: anthropic, api_key: "${env:ANTHROPIC_API_KEY}"}
    offline: {kind: rehearsal, script: rehearsal.yaml}
"#,
        )
        .unwrap();

        assert_eq!(models.default.as_deref(), Some("local/qwen3"));
        let local = Provider {
            base_url: Some("http://127.0.0.1:11434/v1".to_owned()),
            first_token_timeout: Span::seconds(120),
            ..Provider::new(Kind::Openai)
        };
        assert_eq!(models.providers["local"], local);
        let key = models.providers["claude"].api_key.as_ref().map(Secret::expose);
        assert_eq!(key, Some("sk-ant-1"));
        assert!(models.providers.values().all(|provider| provider.mistakes().is_empty()));
    }

    #[test]
    fn unknown_kinds_and_keys_are_mistakes() {
        for (provider, word) in [
            ("{kind: gemini}", "gemini"),
            ("{kind: openai, base_uri: a}", "base_uri"),
            ("{base_url: a}", "kind"),
            ("{kind: openai, max_concurrent: 0}", "max_concurrent"),
            ("{kind: openai, connect_timeout: 5}", "connect_timeout"),
        ] {
            let mistakes = load_text(&format!("models: {{providers: {{p: {provider}}}}}")).unwrap_err();
            assert!(mistakes.contains(word), "{provider}: {mistakes}");
        }
    }
}
