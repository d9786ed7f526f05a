//! What a model is really sent: the prompt with its skills, the reminder on every turn, and a conversation cut to what it takes.

use std::fs;

use executor_svc::{
    Config,
    model::config::{Kind, Provider},
};
use proto::{
    executor::v1::{ListMessagesRequest, Role, StopReason},
    registry::v1::ReloadRequest,
};
use serde_json::{Value, json};
use tests::{
    executor::{Executor, call},
    openai::{Answer, OpenAi},
    registry::Registry,
};

const UNUSED: &str = "rules:\n  - do:\n      - text: \"unused\"\n";

/// An executor that asks `model`.
async fn executor(registry: &Registry, model: &OpenAi, change: impl FnOnce(&mut Config)) -> Executor {
    Executor::start_with(registry, UNUSED, |config| {
        let mut provider = Provider::new(Kind::Openai);
        provider.base_url = Some(model.base_url.clone());
        config.models.providers.insert("local".to_owned(), provider);
        config.models.default = Some("local/small".to_owned());
        change(config);
    })
    .await
}

/// Lets the registry see what was written.
async fn reload(registry: &Registry) {
    registry.administrator().await.reload(ReloadRequest::default()).await.expect("the registry reads again");
}

/// What was sent in this role with a request.
fn sent<'a>(request: &'a Value, role: &str) -> Vec<&'a str> {
    let messages = request["messages"].as_array().expect("a request has messages");
    let of_role = messages.iter().filter(|message| message["role"] == role);
    of_role.map(|message| message["content"].as_str().expect("content is text")).collect()
}

#[tokio::test]
async fn active_skills_follow_the_prompt_and_the_reminder_ends_every_turn() {
    let registry = Registry::start().await;
    let skill = |name: &str, rest: &str, body: &str| {
        let text = format!("---\nname: {name}\ndescription: Helps.\n{rest}---\n{body}\n");
        registry.write(&format!(".claude/skills/{name}/SKILL.md"), &text);
    };
    skill("named", "", "Do as named.");
    skill("always", "activation: {mode: always}\n", "[能力: always]\nDo it always.");
    skill("keyword", "activation: {mode: keyword, keywords: [Rust]}\n", "Do it for Rust.");
    skill("other", "activation: {mode: keyword, keywords: [python]}\n", "Do it for Python.");
    skill("unnamed", "", "Not this.");
    registry.write(
        ".claude/agents/careful.md",
        "---\nname: careful\ndescription: Careful.\ntools: [ls]\nskills: [named]\ncriticalReminder: Never guess.\n---\nYou are careful.\n",
    );
    reload(&registry).await;
    let ls = Answer::Calls(vec![("ls", json!({"path": "."}))]);
    let model = OpenAi::start([ls, Answer::Text(vec!["done"])]).await;
    let mut executor = executor(&registry, &model, |_| {}).await;

    executor.spawn(call("careful", "Mend the rust code.")).await.unwrap();

    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        let system = sent(request, "system")[0];
        let place = |text: &str| system.find(text).unwrap_or_else(|| panic!("no `{text}` in {system}"));
        let critical = "<critical-reminder>Never guess.</critical-reminder>";
        assert!(place("You are careful.") < place(critical));
        for body in [
            "[能力: named]\nDo as named.",
            "[能力: always]\nDo it always.",
            "[能力: keyword]\nDo it for Rust.",
        ] {
            assert!(place(critical) < place(body));
        }
        assert_eq!(system.matches("[能力: always]").count(), 1, "{system}");
        assert!(!system.contains("Python") && !system.contains("Not this."), "{system}");
        let last = request["messages"].as_array().unwrap().last().unwrap();
        let last = last["content"].as_str().unwrap();
        assert!(last.ends_with("<system-reminder>\nNever guess.\n</system-reminder>"), "{last}");
    }
    executor.stop().await;
}

#[tokio::test]
async fn a_model_of_known_size_is_sent_what_it_takes_and_the_transcript_says_what_was_cut() {
    const MARK: &str = "left out to make room: call the tool again for them]";
    let registry = Registry::start().await;
    for name in ["a.txt", "b.txt"] {
        registry.write(name, &format!("{name} has much to say, line after line\n").repeat(300));
    }
    fs::create_dir_all(registry.project("")).unwrap();
    registry.write(
        ".claude/agents/reader.md",
        "---\nname: reader\ndescription: Reads.\ntools: [read]\n---\nYou read.\n",
    );
    reload(&registry).await;
    let read = |path: &str| Answer::Calls(vec![("read", json!({ "path": path }))]);
    let model = OpenAi::start([read("a.txt"), read("b.txt"), Answer::Text(vec!["done"])]).await;
    let mut executor = executor(&registry, &model, |config| {
        config.models.context_tokens.insert("local/*".to_owned(), 9_500);
    })
    .await;

    let worker = executor.spawn(call("reader", "Read both.")).await.unwrap().worker.unwrap();

    assert_eq!(worker.stop_reason(), StopReason::Finished);
    let requests = model.requests();
    let before = sent(&requests[1], "tool");
    assert!(before[0].contains("a.txt has much to say") && !before[0].contains(MARK), "{before:?}");
    let after = sent(&requests[2], "tool");
    assert!(after[0].ends_with(MARK) && after[0].len() < 512, "{after:?}");
    assert!(!after[1].contains(MARK) && after[1].len() > 10_000, "the newest is whole");
    assert!(sent(&requests[2], "user").iter().any(|text| text.contains("has outgrown the model")));

    let request = ListMessagesRequest { session_id: worker.id, ..ListMessagesRequest::default() };
    let messages = executor.client.list_messages(request).await.unwrap().into_inner().messages;
    assert!(messages.iter().any(|message| message.content.contains("has outgrown the model")));
    let kept =
        messages.iter().filter(|message| message.role() == Role::Tool && message.content.len() > 10_000);
    assert_eq!(kept.count(), 2, "the record keeps both");
    executor.stop().await;
}
