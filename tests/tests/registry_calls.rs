//! What callers of the registry see: answers, refusals with their reasons, pages.

use proto::registry::v1::{
    ExplainRequest, GetCatalogRequest, GetCommandRequest, GetDocumentRequest, ListCommandsRequest,
    ListDiagnosticsRequest, ListRequest, ListSkillsRequest, ReloadRequest, RemoveRequest, ReplaceRequest,
    ResolveSkillsRequest, ValidateRequest, View, WatchRequest, command_service_client::CommandServiceClient,
    skill::Activation, skill_service_client::SkillServiceClient,
};
use tests::{
    refusal::reason,
    registry::{Registry, document},
};
use tonic::Code;
use tonic_types::StatusExt as _;

fn replace(text: &str) -> ReplaceRequest {
    ReplaceRequest {
        workspace: String::new(),
        document: text.as_bytes().to_vec(),
        expected_digest: None,
        request_id: String::new(),
        expected_name: String::new(),
    }
}

fn list(page_size: i32, page_token: &str) -> ListRequest {
    ListRequest {
        workspace: String::new(),
        page_size,
        page_token: page_token.to_owned(),
        view: View::Basic.into(),
        kinds: Vec::new(),
    }
}

#[tokio::test]
async fn a_definition_of_the_project_is_answered_whole() {
    let mut registry = Registry::start().await;
    registry.write(".claude/agents/scout.md", &document("scout", "Look around."));

    let reloaded = registry.client.reload(ReloadRequest::default()).await.unwrap().into_inner();
    let answer = registry.by_name("scout").await.unwrap();

    assert_eq!(reloaded.added, ["scout"]);
    let agent = answer.agent.unwrap();
    assert_eq!((agent.name.as_str(), agent.system_prompt.as_str()), ("scout", "Look around."));
    let source = agent.source.unwrap();
    assert_eq!(source.path, registry.project(".claude/agents/scout.md").display().to_string());
    assert_eq!(answer.generation, reloaded.generation);
    registry.stop().await;
}

#[tokio::test]
async fn an_unknown_agent_is_reported_with_what_there_is() {
    let mut registry = Registry::start_with(|config| {
        let workspace = config.workspaces.get_mut("default").unwrap();
        workspace.bundled = false;
    })
    .await;
    let none = registry.by_name("nobody").await.unwrap_err();
    registry.write(".claude/agents/a.md", &document("scout", "A."));
    registry.write(".claude/agents/b.md", &document("scribe", "B."));
    registry.client.reload(ReloadRequest::default()).await.unwrap();

    let status = registry.by_name("scuot").await.unwrap_err();

    assert_eq!(none.message(), "Unknown agent \"nobody\". Available: none");
    assert_eq!(status.message(), "Unknown agent \"scuot\". Available: scout, scribe");
    let metadata = reason(&status, Code::NotFound, "UNKNOWN_AGENT");
    assert_eq!(metadata["agent"], "scuot");
    assert_eq!(metadata["suggestion"], "scout");
    assert_eq!(metadata["available_count"], "2");
    registry.stop().await;
}

#[tokio::test]
async fn broken_arguments_are_refused_with_the_field() {
    let mut registry = Registry::start().await;
    let mut refusals =
        vec![registry.by_name("").await.unwrap_err(), registry.by_name(&"n".repeat(600)).await.unwrap_err()];
    refusals.push(registry.client.list(list(-1, "")).await.unwrap_err());
    refusals.push(registry.client.list(list(1, "made up")).await.unwrap_err());
    refusals.push(registry.client.list(ListRequest { view: 77, ..list(1, "") }).await.unwrap_err());
    refusals.push(registry.client.list(ListRequest { kinds: vec![0], ..list(1, "") }).await.unwrap_err());
    let watch = WatchRequest { from_generation: 3, ..WatchRequest::default() };
    refusals.push(registry.client.watch(watch).await.unwrap_err());
    refusals.push(registry.client.validate(ValidateRequest::default()).await.unwrap_err());

    let fields: Vec<String> = refusals
        .iter()
        .map(|status| {
            reason(status, Code::InvalidArgument, "INVALID_REQUEST");
            status.get_details_bad_request().unwrap().field_violations[0].field.clone()
        })
        .collect();

    assert_eq!(fields, ["name", "name", "page_size", "page_token", "view", "kinds", "store_id", "document"]);
    registry.stop().await;
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let mut registry = Registry::start().await;
    let workspace = registry
        .client
        .explain(ExplainRequest { workspace: "elsewhere".into(), name: "explore".into() })
        .await
        .unwrap_err();
    let candidate = registry
        .client
        .explain(ExplainRequest { workspace: String::new(), name: "nobody".into() })
        .await
        .unwrap_err();
    let digest = registry
        .client
        .get_document(GetDocumentRequest {
            workspace: String::new(),
            name: "explore".into(),
            digest: "0a".repeat(32),
        })
        .await
        .unwrap_err();
    let mut commands = CommandServiceClient::new(registry.channel().await);
    let command = commands
        .get_command(GetCommandRequest { name: "deploy".into(), ..GetCommandRequest::default() })
        .await
        .unwrap_err();

    assert_eq!(reason(&workspace, Code::NotFound, "WORKSPACE_NOT_FOUND")["workspace"], "elsewhere");
    assert_eq!(reason(&candidate, Code::NotFound, "UNKNOWN_AGENT")["agent"], "nobody");
    assert_eq!(reason(&digest, Code::NotFound, "UNKNOWN_DIGEST")["agent"], "explore");
    assert_eq!(reason(&command, Code::NotFound, "UNKNOWN_COMMAND")["command"], "deploy");
    drop(commands);
    registry.stop().await;
}

#[tokio::test]
async fn a_document_with_a_broken_restriction_blocks_its_name_and_says_where() {
    let mut registry = Registry::start().await;
    registry.write(".claude/agents/guard.md", "---\nname: guard\ndescription: D.\ntools: 7\n---\nBody.\n");
    registry.client.reload(ReloadRequest::default()).await.unwrap();

    let status = registry.by_name("guard").await.unwrap_err();
    let diagnostics = registry
        .client
        .list_diagnostics(ListDiagnosticsRequest::default())
        .await
        .unwrap()
        .into_inner()
        .diagnostics;

    let metadata = reason(&status, Code::FailedPrecondition, "AGENT_BROKEN");
    let path = registry.project(".claude/agents/guard.md").display().to_string();
    assert_eq!(metadata["path"], path);
    assert!(diagnostics.iter().any(|it| it.code == "INVALID_FIELD" && it.path == path && it.line == 4));
    registry.stop().await;
}

#[tokio::test]
async fn a_listing_keeps_to_its_generation_until_that_is_gone() {
    let mut registry = Registry::start().await;
    for index in 0..5 {
        let name = format!("agent-{index}");
        registry.write(&format!(".claude/agents/{name}.md"), &document(&name, "Body."));
    }
    registry.client.reload(ReloadRequest::default()).await.unwrap();
    let first = registry.client.list(list(3, "")).await.unwrap().into_inner();

    registry.write(".claude/agents/agent-0.md", &document("agent-00", "Renamed."));
    registry.client.reload(ReloadRequest::default()).await.unwrap();
    let second = registry.client.list(list(3, &first.next_page_token)).await.unwrap().into_inner();
    let other_query = ListRequest { view: View::Full.into(), ..list(3, &first.next_page_token) };
    let mixed = registry.client.list(other_query).await.unwrap_err();
    for round in 0..20 {
        registry.write(".claude/agents/agent-1.md", &document("agent-1", &format!("Round {round}.")));
        let reloaded = registry.client.reload(ReloadRequest::default()).await.unwrap().into_inner();
        assert_eq!(reloaded.changed, ["agent-1"]);
        registry.client.list(list(1, "")).await.unwrap();
    }
    let expired = registry.client.list(list(3, &second.next_page_token)).await.unwrap_err();

    assert_eq!(first.agents.len(), 3);
    assert_eq!(second.generation, first.generation);
    assert_eq!(second.agents[0].name, "agent-3");
    reason(&mixed, Code::InvalidArgument, "INVALID_REQUEST");
    assert_eq!(reason(&expired, Code::Aborted, "PAGE_EXPIRED")["generation"], first.generation.to_string());
    registry.stop().await;
}

#[tokio::test]
async fn basic_views_leave_prompts_out_and_kinds_choose() {
    let mut registry = Registry::start().await;
    registry.write(".claude/agents/scout.md", &document("scout", "Look."));
    registry.client.reload(ReloadRequest::default()).await.unwrap();
    let project = vec![proto::agent::v1::source::Kind::Project.into()];

    let basic = ListRequest { kinds: project.clone(), ..list(0, "") };
    let basic = registry.client.list(basic).await.unwrap().into_inner();
    let full = ListRequest { kinds: project, view: View::Full.into(), ..list(0, "") };
    let full = registry.client.list(full).await.unwrap().into_inner();

    let prompts = |agents: Vec<proto::agent::v1::AgentDefinition>| {
        agents.into_iter().map(|agent| (agent.name, agent.system_prompt)).collect::<Vec<_>>()
    };
    assert_eq!(prompts(basic.agents), [("scout".to_owned(), String::new())]);
    assert_eq!(prompts(full.agents), [("scout".to_owned(), "Look.".to_owned())]);
    registry.stop().await;
}

#[tokio::test]
async fn an_authored_definition_lives_until_it_is_removed_also_over_a_restart() {
    let mut registry = Registry::start().await;
    let mut administrator = registry.administrator().await;
    registry.write(".claude/agents/scout.md", &document("scout", "From the file."));
    registry.client.reload(ReloadRequest::default()).await.unwrap();

    let written = administrator.replace(replace(&document("scout", "Authored."))).await.unwrap().into_inner();
    let digest = written.agent.as_ref().unwrap().digest.clone();
    assert!(written.created);
    assert_eq!(written.shadowed[0].path, registry.project(".claude/agents/scout.md").display().to_string());
    drop(administrator);
    let directory = registry.stop().await;

    let data = directory.path().join("var");
    let cwd = directory.path().join("project");
    let mut registry = Registry::start_in(directory, |config| {
        config.data = data;
        config.workspaces.get_mut("default").unwrap().cwd = cwd;
    })
    .await;
    let kept = registry.by_name("scout").await.unwrap();
    assert_eq!(kept.agent.unwrap().digest, digest);
    let mut administrator = registry.administrator().await;
    let request = RemoveRequest { name: "scout".into(), ..RemoveRequest::default() };
    let removed = administrator.remove(request).await.unwrap().into_inner();

    assert!(removed.generation > written.generation);
    assert_eq!(removed.now_in_force.unwrap().system_prompt, "From the file.");
    registry.stop().await;
}

#[tokio::test]
async fn writes_are_refused_with_what_was_expected() {
    let mut registry = Registry::start().await;
    let mut administrator = registry.administrator().await;
    registry.write(".claude/agents/filed.md", &document("filed", "In a file."));
    registry.client.reload(ReloadRequest::default()).await.unwrap();
    administrator
        .replace(ReplaceRequest { request_id: "r1".into(), ..replace(&document("scout", "One.")) })
        .await
        .unwrap();

    let invalid = administrator.replace(replace("---\ndescription: D.\n---\n")).await.unwrap_err();
    let name = ReplaceRequest { expected_name: "other".into(), ..replace(&document("scout", "Two.")) };
    let name = administrator.replace(name).await.unwrap_err();
    let digest =
        ReplaceRequest { expected_digest: Some(String::new()), ..replace(&document("scout", "Two.")) };
    let digest = administrator.replace(digest).await.unwrap_err();
    let reused = ReplaceRequest { request_id: "r1".into(), ..replace(&document("scout", "Other.")) };
    let reused = administrator.replace(reused).await.unwrap_err();
    let filed = RemoveRequest { name: "filed".into(), ..RemoveRequest::default() };
    let filed = administrator.remove(filed).await.unwrap_err();

    reason(&invalid, Code::InvalidArgument, "INVALID_DOCUMENT");
    let violation = &invalid.get_details_bad_request().unwrap().field_violations[0];
    assert!(violation.field.starts_with("document:"), "{violation:?}");
    assert!(violation.description.starts_with("MISSING_FIELD "), "{violation:?}");
    assert_eq!(reason(&name, Code::InvalidArgument, "NAME_MISMATCH")["actual"], "scout");
    assert_eq!(reason(&digest, Code::Aborted, "DIGEST_MISMATCH")["expected"], "");
    assert_eq!(reason(&reused, Code::InvalidArgument, "REQUEST_ID_REUSED")["request_id"], "r1");
    assert_eq!(reason(&filed, Code::FailedPrecondition, "NOT_AUTHORED")["agent"], "filed");
    registry.stop().await;
}

#[tokio::test]
async fn validate_says_what_a_document_would_be_without_storing_it() {
    let mut registry = Registry::start().await;
    let text = "---\nname: explore\ndescription: D.\nspawns: [nobody]\n---\nBody.\n";
    let request = ValidateRequest { document: text.into(), workspace: "default".into() };

    let checked = registry.client.validate(request).await.unwrap().into_inner();
    let alone = ValidateRequest { document: text.into(), workspace: String::new() };
    let alone = registry.client.validate(alone).await.unwrap().into_inner();
    let explore = registry.by_name("explore").await.unwrap();

    assert_eq!(checked.agent.unwrap().name, "explore");
    assert_eq!(checked.would_shadow[0].path, "embedded:explore.md");
    assert!(checked.diagnostics.iter().any(|it| it.code == "UNKNOWN_SPAWN"));
    assert!(alone.would_shadow.is_empty());
    assert_ne!(explore.agent.unwrap().system_prompt, "Body.");
    registry.stop().await;
}

#[tokio::test]
async fn a_document_comes_back_byte_for_byte() {
    let mut registry = Registry::start().await;
    let text = document("scout", "One.\r\nTwo.\t");
    registry.write(".claude/agents/scout.md", &text);
    registry.client.reload(ReloadRequest::default()).await.unwrap();

    let request = GetDocumentRequest { name: "scout".into(), ..GetDocumentRequest::default() };
    let fetched = registry.client.get_document(request).await.unwrap().into_inner();

    assert_eq!(fetched.document, text.as_bytes());
    registry.stop().await;
}

#[tokio::test]
async fn the_catalog_is_for_coordinators() {
    let mut registry = Registry::start().await;

    let all = registry.client.get_catalog(GetCatalogRequest::default()).await.unwrap().into_inner();
    let policy = proto::agent::v1::SpawnPolicy {
        mode: proto::agent::v1::spawn_policy::Mode::Listed.into(),
        names: vec!["explore".into(), "reviewer".into()],
    };
    let request = GetCatalogRequest { spawns: Some(policy), ..GetCatalogRequest::default() };
    let cut = registry.client.get_catalog(request).await.unwrap().into_inner();

    let names = |entries: Vec<proto::registry::v1::get_catalog_response::Entry>| {
        entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    let all = names(all.entries);
    assert!(all.contains(&"explore".to_owned()) && !all.contains(&"default".to_owned()), "{all:?}");
    assert_eq!(names(cut.entries), ["explore"]);
    registry.stop().await;
}

#[tokio::test]
async fn commands_and_skills_are_served_beside_agents() {
    let registry = Registry::start().await;
    registry.write(".claude/commands/greet.md", "---\ndescription: Greets.\n---\nSay hello to $@ and $@.\n");
    registry.write(
        ".claude/skills/review/SKILL.md",
        "---\nname: review\ndescription: How to review.\nactivation: {mode: keyword, keywords: [Review]}\n---\nLook twice.\n",
    );
    let mut client = registry.client.clone();
    client.reload(ReloadRequest::default()).await.unwrap();
    let channel = registry.channel().await;
    let mut commands = CommandServiceClient::new(channel.clone());
    let mut skills = SkillServiceClient::new(channel);

    let listed = commands.list_commands(ListCommandsRequest::default()).await.unwrap().into_inner();
    let request =
        GetCommandRequest { name: "greet".into(), arguments: "Ann".into(), ..GetCommandRequest::default() };
    let greet = commands.get_command(request).await.unwrap().into_inner();
    let all = skills.list_skills(ListSkillsRequest::default()).await.unwrap().into_inner();
    let request = ResolveSkillsRequest {
        workspace: String::new(),
        names: vec!["nothing".into()],
        user_text: "please review this".into(),
    };
    let resolved = skills.resolve_skills(request).await.unwrap().into_inner();

    assert!(listed.commands.iter().any(|command| command.name == "greet"));
    assert_eq!(greet.expanded, "Say hello to Ann and Ann.");
    let review = all.skills.iter().find(|skill| skill.name == "review").unwrap();
    assert_eq!((review.activation(), review.prompt_body.as_str()), (Activation::Keyword, ""));
    assert_eq!(resolved.skills[0].prompt_body, "Look twice.");
    assert_eq!(resolved.missing, ["nothing"]);
    drop((client, commands, skills));
    registry.stop().await;
}
