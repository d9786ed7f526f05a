//! Codex roles.

use serde_json::json;

use super::{super::*, codes, origin, refused, used};

fn parse_role(document: &str) -> Parsed {
    parse(document.as_bytes(), &Origin { format: Format::Toml, ..origin() })
}

fn parse_fields(fields: &str) -> Parsed {
    parse_role(&format!("name = \"a\"\ndescription = \"d\"\n{fields}"))
}

#[test]
fn a_role_has_the_fields_of_a_definition() {
    used(
        parse_role(
            "\u{feff}name = \"a\"\r\ndescription = 'd'\r\ndeveloper_instructions = \"\"\"\r\n\r\nOne.\r\n\r\nTwo.\r\n\"\"\"\r\n\
             model = \"gpt\"\r\nmodel_reasoning_effort = \"high\"\r\nsandbox_mode = \"read-only\"\r\ndisallowedTools = [\"Bash\"]\r\n\
             max_turns = 3\r\nnickname_candidates = [\"x\"]\r\n[metadata]\r\nsince = 2026-01-01\r\n[[metadata.items]]\r\nn = 1.5\r\n",
        ),
        json!({
            "name": "a", "description": "d", "system_prompt": "One.\n\nTwo.", "models": ["gpt"],
            "thinking_level": "HIGH", "permission_mode": "READ_ONLY", "disallowed_tools": ["bash"], "max_turns": 3,
            "extra_json": {"nickname_candidates": ["x"], "metadata": {"since": "2026-01-01", "items": [{"n": 1.5}]}},
        }),
        &[],
    );
}

#[test]
fn broken_toml_is_refused_with_its_place_and_not_rescued() {
    let parsed = parse_fields("model = \n");

    assert_eq!(parsed.diagnostics[0].line, 3);
    assert_eq!(parsed.claimed_name.as_deref(), Some("a"));
    assert!(!parsed.blocks);
    refused(parsed, &["TOML_INVALID"]);
}

#[test]
fn fields_of_a_role_are_checked_like_those_of_markdown() {
    for (fields, code) in [
        ("tools = 1\n", "INVALID_FIELD"),
        ("tool = 'x'\n", "MISSPELT_RESTRICTION"),
        ("sandbox_mode = 'x'\n", "FOREIGN_RESTRICTION"),
        ("output = {a = inf}\n", "INVALID_OUTPUT_SCHEMA"),
        ("when_to_use = 1\n", "INVALID_FIELD"),
        ("when_to_use = \"\\u200b\"\n", "HIDDEN_CHARACTERS"),
        ("developer_instructions = 1\n", "INVALID_FIELD"),
        ("max_turns = 1\nmaxTurns = 2\n", "DUPLICATE_KEY"),
        ("developer_instructions = ''\ndeveloperInstructions = ''\n", "DUPLICATE_KEY"),
    ] {
        refused(parse_fields(fields), &[code]);
    }
    used(parse_fields("sandbox_mode = 'danger-full-access'\n"), json!({}), &["PRIVILEGE_IGNORED"]);
    used(
        parse_fields("[mcp_servers.x]\ncommand = 'sh'\n"),
        json!({"mcp_servers": []}),
        &["PRIVILEGE_IGNORED"],
    );
    used(parse_fields("[tools]\nbash = false\n"), json!({"disallowed_tools": ["bash"]}), &[]);
    used(parse_fields("developer_instructions = \"a\u{200b}\"\n"), json!({}), &["HIDDEN_CHARACTERS"]);
    refused(parse_role("name = 'a'\n"), &["MISSING_FIELD"]);
    refused(parse_role(""), &["MISSING_FIELD"]);
}

#[test]
fn a_role_is_limited_like_front_matter() {
    let deep = format!("x = {}{}\n", "[".repeat(40), "]".repeat(40));
    let wide = format!("x = [{}]\n", "1,".repeat(10_001));
    let tables = "[[x]]\n".repeat(10_001);
    let deeper = format!("x = {}{}\n", "[".repeat(200), "]".repeat(200));
    let dotted = format!("{}x = 1\n", "a.".repeat(200));
    for fields in [deep, deeper, dotted, wide, tables] {
        let parsed = parse_fields(&fields);
        assert_eq!(codes(&parsed), ["TOO_LARGE"]);
    }
}

#[test]
fn a_role_can_be_switched_off() {
    assert!(parse_fields("enabled = false\n").disabled);
}
