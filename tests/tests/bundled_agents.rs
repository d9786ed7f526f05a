//! The definitions that we ship: each must be read without a finding, and keep the rules that the executor relies on.

use registry_svc::{
    agent::{Agent, PermissionMode, SpawnPolicy, ToolSelection},
    definition::{self, Format, GuardedNames, Origin},
};
use serde_json::{Value, json};
use tests::repository;

const BUNDLED: [&str; 7] = ["default", "designer", "explore", "plan", "quick_task", "reviewer", "task"];
const OPERATIONS: [&str; 6] = [
    "incident-investigator",
    "specialist-compute",
    "specialist-disk",
    "specialist-network",
    "specialist-ops",
    "specialist-sre",
];

/// What the executor offers by itself, as definitions spell it.
const BUILT_IN_TOOLS: [&str; 11] = [
    "read",
    "grep",
    "find",
    "ls",
    "write",
    "edit",
    "bash",
    "task",
    "SendMessage",
    "TaskStop",
    "submit_result",
];

/// One line of a catalog.
const DESCRIPTION_CHARACTERS_MAX: usize = 160;

#[test]
fn every_file_is_a_definition_that_is_expected_here() {
    assert_eq!(definitions("agents/"), BUNDLED);
    assert_eq!(definitions("agents/ops/"), OPERATIONS);
}

#[test]
fn every_definition_reads_without_a_finding_and_is_named_after_its_file() {
    for (directory, name) in all() {
        let agent = agent(directory, name);

        assert_eq!(agent.name.as_str(), name);
        assert!(!agent.when_to_use.is_empty(), "{name} does not say when to use it");
        assert!(
            agent.description.chars().count() <= DESCRIPTION_CHARACTERS_MAX,
            "{name} describes itself at length"
        );
        assert!(!agent.description.contains('\n'), "{name} describes itself in several lines");
        assert!(agent.extra_json.is_empty(), "{name} has keys that nobody reads: {}", agent.extra_json);
        assert!(agent.models.is_empty(), "{name} asks for a model that an operator may not have");
    }
}

#[test]
fn spawns_name_agents_that_exist_and_may_be_spawned() {
    for (directory, name) in all() {
        let SpawnPolicy::Listed(spawns) = agent(directory, name).spawns else { continue };

        for target in spawns {
            assert!(
                all().iter().any(|(_, known)| *known == target),
                "{name} may spawn `{target}`, which does not exist"
            );
            assert!(!["default", "reviewer", name].contains(&target.as_str()), "{name} may spawn `{target}`");
        }
    }
}

#[test]
fn tools_of_bundled_agents_are_built_in_and_those_for_operations_come_from_servers() {
    for name in BUNDLED {
        let ToolSelection::Listed(tools) = agent("agents", name).tools else { continue };
        for tool in tools {
            assert!(BUILT_IN_TOOLS.contains(&tool.as_str()), "{name} lists `{tool}`");
        }
    }
    for name in OPERATIONS {
        let ToolSelection::Listed(tools) = agent("agents/ops", name).tools else {
            panic!("{name} lists no tools")
        };
        for tool in tools {
            let from_server = tool.starts_with("mcp__") && tool.matches("__").count() == 2;
            assert!(
                from_server || ["task", "submit_result"].contains(&tool.as_str()),
                "{name} lists `{tool}`"
            );
        }
    }
}

#[test]
fn whoever_only_looks_is_read_only_and_holds_nothing_that_writes() {
    for name in ["explore", "plan", "reviewer"] {
        let agent = agent("agents", name);

        assert_eq!(agent.permission_mode, Some(PermissionMode::ReadOnly), "{name}");
        let ToolSelection::Listed(tools) = agent.tools else { panic!("{name} inherits tools") };
        assert!(
            !tools.iter().any(|tool| ["write", "edit", "bash"].contains(&tool.as_str())),
            "{name}: {tools:?}"
        );
    }
    for name in OPERATIONS {
        let mode = agent("agents/ops", name).permission_mode;
        let changes = name == "specialist-ops";
        assert_eq!(mode != Some(PermissionMode::ReadOnly), changes, "{name} has {mode:?}");
    }
}

#[test]
fn the_reviewer_submits_the_verdict_that_the_gate_asks_for() {
    let reviewer = agent("agents", "reviewer");
    let schema = schema(&reviewer);

    assert_eq!(schema["properties"]["decision"]["enum"], json!(["approve", "reject"]));
    assert_eq!(schema["required"], json!(["decision", "reason"]));
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(reviewer.spawns, SpawnPolicy::None);
    assert!(!reviewer.critical_reminder.is_empty());
}

#[test]
fn the_explorer_names_files() {
    let schema = schema(&agent("agents", "explore"));

    assert_eq!(schema["required"], json!(["summary", "files"]));
    assert_eq!(schema["properties"]["files"]["items"]["required"], json!(["path", "role"]));
}

#[test]
fn both_task_agents_have_the_same_body_and_only_one_may_spawn() {
    let (task, quick_task) = (agent("agents", "task"), agent("agents", "quick_task"));

    assert_eq!(task.system_prompt, quick_task.system_prompt);
    assert_eq!(task.spawns, SpawnPolicy::All);
    assert_eq!(quick_task.spawns, SpawnPolicy::None);
    assert!(
        matches!(task.tools, ToolSelection::Inherit) && matches!(quick_task.tools, ToolSelection::Inherit)
    );
}

fn all() -> Vec<(&'static str, &'static str)> {
    let bundled = BUNDLED.iter().map(|name| ("agents", *name));
    bundled.chain(OPERATIONS.iter().map(|name| ("agents/ops", *name))).collect()
}

/// The stems of the definitions directly in a directory.
fn definitions(directory: &str) -> Vec<String> {
    let files = repository::files();
    let names = files.iter().filter_map(|path| path.strip_prefix(directory)?.strip_suffix(".md"));
    names.filter(|name| !name.contains('/') && *name != "README").map(str::to_owned).collect()
}

fn agent(directory: &str, name: &str) -> Agent {
    let document = repository::read(&format!("{directory}/{name}.md"));
    let guarded = GuardedNames::new(BUNDLED.iter().copied().filter(|other| *other != name));
    let origin = Origin {
        format: Format::Markdown,
        stem: Some(name),
        name_from_stem: false,
        bundled: true,
        guarded_names: &guarded,
    };
    let parsed = definition::parse(document.as_bytes(), &origin);
    assert!(parsed.diagnostics.is_empty(), "{name}: {:?}", parsed.diagnostics);
    parsed.agent.unwrap_or_else(|| panic!("{name} cannot be used"))
}

fn schema(agent: &Agent) -> Value {
    let text = agent.output_schema.as_deref().expect("the agent has a schema");
    serde_json::from_str(text).expect("a schema is JSON")
}
