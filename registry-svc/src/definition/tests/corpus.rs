//! Every case of the shared corpus holds.

use serde_json::{Value as Json, json};

use super::{super::*, origin};
use crate::agent::{PermissionMode, SpawnPolicy, ThinkingLevel, ToolSelection};

const CASES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus/definitions.json"));

#[test]
fn every_case_of_the_corpus_holds() {
    let cases: Vec<Json> = serde_json::from_str(CASES).unwrap();
    let guarded = GuardedNames::new(["default", "reviewer"]);
    let origin = Origin { guarded_names: &guarded, ..origin() };
    assert!(cases.len() >= 158);

    let failures: Vec<String> = cases.iter().filter_map(|case| failure(case, &origin)).collect();

    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

/// What a case expects otherwise than it is.
fn failure(case: &Json, origin: &Origin<'_>) -> Option<String> {
    let parsed = parse(case["document"].as_str().unwrap().as_bytes(), origin);
    let id = case["id"].as_str().unwrap();
    let codes: Vec<&str> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.code.as_str()).collect();
    let actual = parsed.agent.as_ref().map_or(Json::Null, as_json);
    let wrong = |what: String| Some(format!("{id}: {what}\n  found {:?}", parsed.diagnostics));
    if case["agent"].is_null() != actual.is_null() {
        return wrong(format!("agent is {actual}"));
    }
    for (field, expected) in case["agent"].as_object().into_iter().flatten() {
        if &actual[field] != expected {
            return wrong(format!("{field} is {} instead of {expected}", actual[field]));
        }
    }
    let listed =
        |key: &str| case[key].as_array().unwrap().iter().map(|code| code.as_str().unwrap().to_owned());
    if let Some(missing) = listed("has").find(|code| !codes.contains(&code.as_str())) {
        return wrong(format!("{missing} is missing"));
    }
    if let Some(unwanted) = listed("not").find(|code| codes.contains(&code.as_str())) {
        return wrong(format!("{unwanted} is there"));
    }
    let misplaced =
        parsed.diagnostics.iter().find(|diagnostic| diagnostic.line == 0 || diagnostic.column == 0);
    misplaced.and_then(|diagnostic| wrong(format!("{} has no place", diagnostic.code.as_str())))
}

/// An agent as the corpus writes it: names as in the proto, enum values without prefix.
pub(in crate::definition) fn as_json(agent: &Agent) -> Json {
    let listed = |mode: &str, names: &[String]| json!({"mode": mode, "names": names});
    json!({
        "name": agent.name.as_str(),
        "description": agent.description,
        "when_to_use": agent.when_to_use,
        "system_prompt": agent.system_prompt,
        "tools": match &agent.tools {
            ToolSelection::Inherit => listed("INHERIT", &[]),
            ToolSelection::All => listed("ALL", &[]),
            ToolSelection::Listed(names) => listed("LISTED", names),
        },
        "disallowed_tools": agent.disallowed_tools,
        "spawns": match &agent.spawns {
            SpawnPolicy::None => listed("NONE", &[]),
            SpawnPolicy::All => listed("ALL", &[]),
            SpawnPolicy::Listed(names) => listed("LISTED", names),
        },
        "models": agent.models,
        "thinking_level": match agent.thinking_level {
            None => "UNSPECIFIED",
            Some(ThinkingLevel::Off) => "OFF",
            Some(ThinkingLevel::Minimal) => "MINIMAL",
            Some(ThinkingLevel::Low) => "LOW",
            Some(ThinkingLevel::Medium) => "MEDIUM",
            Some(ThinkingLevel::High) => "HIGH",
            Some(ThinkingLevel::Xhigh) => "XHIGH",
        },
        "output_schema": agent.output_schema.as_ref().map(|text| serde_json::from_str::<Json>(text).unwrap()),
        "permission_mode": match agent.permission_mode {
            None => "UNSPECIFIED",
            Some(PermissionMode::ReadOnly) => "READ_ONLY",
            Some(PermissionMode::DualSign) => "DUAL_SIGN",
            Some(PermissionMode::MutatingWithReview) => "MUTATING_WITH_REVIEW",
        },
        "max_turns": agent.max_turns,
        "critical_reminder": agent.critical_reminder,
        "skills": agent.skills,
        "mcp_servers": agent.mcp_servers,
        "blocking": agent.blocking,
        "extra_json": if agent.extra_json.is_empty() { Json::Null } else { serde_json::from_str(&agent.extra_json).unwrap() },
    })
}
