use std::fs;

use service_kit::config::Secret;

use super::*;

const SCRIPT: &str = "rules: [{do: [{text: Hello.}]}]";

struct Sample {
    directory: tempfile::TempDir,
    models: Models,
}

/// Two servers, a rehearsal, aliases and a default.
fn sample() -> Sample {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("script.yaml"), SCRIPT).unwrap();
    let local = config::Provider {
        base_url: Some("http://127.0.0.1:9/v1".to_owned()),
        ..config::Provider::new(Kind::Openai)
    };
    let claude =
        config::Provider { api_key: Some(Secret::new("k")), ..config::Provider::new(Kind::Anthropic) };
    let offline =
        config::Provider { script: Some("script.yaml".into()), ..config::Provider::new(Kind::Rehearsal) };
    let alias = |name: &str, target: &str| (name.to_owned(), target.to_owned());
    let models = Models {
        default: Some("offline/script".to_owned()),
        aliases: [
            alias("sonnet", "claude/claude-sonnet"),
            alias("@slow", "opus"),
            alias("opus", "claude/claude-opus"),
        ]
        .into(),
        context_tokens: [("*".to_owned(), 40_000), ("claude/*".to_owned(), 4_000)].into(),
        providers: [("local", local), ("claude", claude), ("offline", offline)]
            .map(|(name, provider)| (name.to_owned(), provider))
            .into(),
    };
    Sample { directory, models }
}

impl Sample {
    fn open(&self) -> Result<Providers, Vec<(String, String)>> {
        Providers::new(&self.models, self.directory.path())
    }

    fn providers(&self) -> Providers {
        self.open().unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
    }

    #[track_caller]
    fn check_mistake(&self, key: &str, words: &str) {
        let mistakes = self.open().err().expect("there is a mistake");
        assert!(
            matches!(&mistakes[..], [(at, message)] if at == key && message.contains(words)),
            "{mistakes:?}"
        );
    }
}

#[test]
fn wishes_are_tried_from_the_strongest_to_the_weakest() {
    let sample = sample();
    let providers = sample.providers();
    for (request, patterns, parent, expected) in [
        ("local/a/b", vec!["sonnet"], "local/p", "local/a/b"),
        ("@slow", vec![], "", "claude/claude-opus"),
        ("", vec!["unknown", "gpt/4", "sonnet", "local/x"], "local/p", "claude/claude-sonnet"),
        ("", vec!["unknown"], "local/p", "local/p"),
        ("", vec![], "local/p", "local/p"),
        ("", vec!["unknown"], "", "offline/script"),
        ("", vec![], "", "offline/script"),
        ("", vec![" sonnet "], "", "claude/claude-sonnet"),
    ] {
        let patterns: Vec<String> = patterns.into_iter().map(str::to_owned).collect();
        let resolved = providers.resolve(Wishes { request, patterns: &patterns, parent });
        let resolved = resolved.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(resolved.name, expected);
        assert_eq!(resolved.is_rehearsal, expected.starts_with("offline/"));
    }
}

#[test]
fn a_request_that_cannot_be_met_is_refused_with_what_there_is() {
    let sample = sample();
    let providers = sample.providers();
    for request in ["gpt/4", "haiku", "local/", "/x", "*"] {
        let refused =
            providers.resolve(Wishes { request, patterns: &["sonnet".to_owned()], parent: "" }).err();
        assert_eq!(
            refused,
            Some(NoModel {
                patterns: vec![request.to_owned()],
                providers: ["claude", "local", "offline"].map(str::to_owned).to_vec(),
            })
        );
    }
}

#[test]
fn without_a_default_the_refusal_names_every_pattern() {
    let mut sample = sample();
    sample.models.default = None;
    let patterns = ["haiku".to_owned(), "gpt/4".to_owned()];

    let refused =
        sample.providers().resolve(Wishes { request: "", patterns: &patterns, parent: "" }).err().unwrap();

    assert_eq!(refused.patterns, patterns);
    assert_eq!(refused.to_string(), "no model for `haiku`, `gpt/4`; providers: `claude`, `local`, `offline`");
    let nothing = Providers::new(&Models::default(), sample.directory.path())
        .unwrap_or_else(|_| panic!("nothing is right"));
    let refused = nothing.resolve(Wishes { request: "", patterns: &[], parent: "" }).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "no model for an agent that names none, and no `models.default`; no provider is configured"
    );
}

#[test]
fn every_mistake_is_told_with_its_key() {
    let mut it = sample();
    it.models.default = Some("gpt/4".to_owned());
    it.check_mistake("models.default", "`gpt/4` is neither an alias nor");

    let mut it = sample();
    it.models.aliases.insert("a".to_owned(), "b".to_owned());
    it.models.aliases.insert("b".to_owned(), "a".to_owned());
    assert_eq!(it.open().err().map(|mistakes| mistakes.len()), Some(2));

    let mut it = sample();
    it.models.providers.get_mut("local").unwrap().base_url = None;
    it.check_mistake("models.providers.local.base_url", "is required");

    let mut it = sample();
    it.models.providers.get_mut("local").unwrap().base_url = Some("localhost".to_owned());
    it.check_mistake("models.providers.local.base_url", "`localhost` is not a URL");

    let mut it = sample();
    it.models.providers.get_mut("offline").unwrap().api_key = Some(Secret::new("k"));
    it.check_mistake("models.providers.offline.api_key", "has no meaning");

    let mut it = sample();
    it.models.providers.get_mut("claude").unwrap().api_key = Some(Secret::new("two\nlines"));
    it.check_mistake("models.providers.claude.api_key", "no HTTP header can carry");

    let mut it = sample();
    it.models.providers.get_mut("offline").unwrap().script = Some("none.yaml".into());
    it.check_mistake("models.providers.offline.script", "none.yaml` cannot be read");

    let mut it = sample();
    let local = it.models.providers["local"].clone();
    it.models.providers.insert("a/b".to_owned(), local);
    it.check_mistake("models.providers.a/b", "no slash");

    let it = sample();
    fs::write(it.directory.path().join("script.yaml"), "rules: [{do: [{tekst: a}]}]").unwrap();
    it.check_mistake("models.providers.offline.script", "script.yaml:1:");
}

#[test]
fn a_script_is_bounded() {
    let it = sample();
    let long = format!("# {}\n{SCRIPT}", "x".repeat(usize::try_from(SCRIPT_BYTES_MAX).unwrap()));
    fs::write(it.directory.path().join("script.yaml"), long).unwrap();

    it.check_mistake("models.providers.offline.script", "is over");
}

#[test]
fn what_a_model_takes_leaves_room_for_its_answer() {
    let fixture = sample();
    let providers = fixture.providers();
    let taken = |request: &str| {
        let wishes = Wishes { request, patterns: &[], parent: "" };
        providers
            .resolve(wishes)
            .map(|resolved| resolved.input_tokens_max)
            .unwrap_or_else(|error| panic!("{error}"))
    };

    assert_eq!(taken("local/qwen3"), Some(40_000 - 4_096));
    assert_eq!(taken("sonnet"), Some(2_000), "at most half of it is for the answer");
}

#[test]
fn a_model_is_opened_once_and_its_names_are_bounded() {
    let fixture = sample();
    let providers = fixture.providers();
    let model = |request: &str| {
        let wishes = Wishes { request, patterns: &[], parent: "" };
        providers.resolve(wishes).map(|resolved| resolved.model).unwrap_or_else(|error| panic!("{error}"))
    };
    assert!(Arc::ptr_eq(&model("sonnet"), &model("claude/claude-sonnet")));

    for number in 0..2 * MODELS_MAX {
        model(&format!("local/{number}"));
    }
    assert_eq!(providers.providers["local"].models.lock().len(), MODELS_MAX);
}
