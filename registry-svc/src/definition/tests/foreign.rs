//! Restrictions in the language of other products: translated, or refused.

use serde_json::{Value as Json, json};

use super::{parse_fields, refused, used};

fn listed(names: &[&str]) -> Json {
    json!({"mode": "LISTED", "names": names})
}

fn mode(mode: &str) -> Json {
    json!({"mode": mode, "names": []})
}

#[test]
fn restrictions_that_cannot_be_read_are_refused() {
    for key in [
        "sandbox",
        "allow",
        "deny",
        "deny_tools",
        "blocked_tools",
        "exclude_tools",
        "excludedTools",
        "disabled-tools",
        "forbidden_tools",
        "avoid_tools",
        "tool_filter",
        "write_guard",
    ] {
        for value in ["x", "", "[a]"] {
            let parsed = parse_fields(&format!("{key}: {value}\n"));
            assert!(parsed.blocks, "{key}");
            refused(parsed, &["FOREIGN_RESTRICTION"]);
        }
    }
}

#[test]
fn modes_are_translated() {
    for (fields, mode, codes) in [
        ("readonly: true\n", "READ_ONLY", &[][..]),
        ("read_only: 'True'\n", "READ_ONLY", &[]),
        ("readOnly: false\n", "UNSPECIFIED", &[]),
        ("sandbox_mode: read-only\n", "READ_ONLY", &[]),
        ("sandbox_mode: workspace-write\n", "UNSPECIFIED", &[]),
        ("sandbox_mode: danger-full-access\n", "UNSPECIFIED", &["PRIVILEGE_IGNORED"]),
        ("approval_mode: plan\n", "READ_ONLY", &[]),
        ("approvalMode: default\n", "UNSPECIFIED", &["UNKNOWN_VALUE"]),
        ("approval_mode: autoEdit\n", "UNSPECIFIED", &["UNKNOWN_VALUE"]),
        ("approval_mode: yolo\n", "UNSPECIFIED", &["UNKNOWN_VALUE"]),
    ] {
        used(parse_fields(fields), json!({"permission_mode": mode}), codes);
    }
    for fields in [
        "readonly: yes\n",
        "readonly: 1\n",
        "readonly:\n",
        "sandbox_mode: x\n",
        "sandbox_mode: [a]\n",
        "approval_mode:\n",
    ] {
        let parsed = parse_fields(fields);
        assert!(parsed.blocks, "{fields:?}");
        refused(parsed, &["FOREIGN_RESTRICTION"]);
    }
}

#[test]
fn a_translated_mode_stands_alone() {
    refused(parse_fields("permission_mode: dual-sign\nreadonly: true\n"), &["DUPLICATE_KEY"]);
    refused(parse_fields("sandbox_mode: read-only\npermission_mode: plan\n"), &["DUPLICATE_KEY"]);
    used(
        parse_fields("permission_mode: dual-sign\nsandbox_mode: workspace-write\n"),
        json!({"permission_mode": "DUAL_SIGN"}),
        &[],
    );
    used(
        parse_fields("readonly: true\nsandbox_mode: read-only\n"),
        json!({"permission_mode": "READ_ONLY"}),
        &[],
    );
}

#[test]
fn a_permission_is_a_word_or_a_map() {
    let inherit = json!({"tools": mode("INHERIT"), "disallowed_tools": []});
    for value in [
        "allow",
        "ask",
        "Allow",
        "{}",
        "{edit: allow, bash: ask}",
        "{bash: {'git *': allow, 'rm *': ask}}",
        "{'*': ask}",
    ] {
        used(parse_fields(&format!("permission: {value}\n")), inherit.clone(), &[]);
    }
    for value in ["deny", "{'*': deny}", "{'*': deny, bash: ask}", "{'*': {'*': deny}}"] {
        used(parse_fields(&format!("permissions: {value}\n")), json!({"disallowed_tools": ["*"]}), &[]);
    }
    for value in [
        "",
        "true",
        "1",
        "[edit]",
        "maybe",
        "{edit: no}",
        "{edit: }",
        "{edit: [deny]}",
        "{bash: {a: {b: deny}}}",
        "{1: deny}",
        "{'a b': deny}",
    ] {
        let parsed = parse_fields(&format!("permission: {value}\n"));
        assert!(parsed.blocks, "{value}");
        refused(parsed, &["FOREIGN_RESTRICTION"]);
    }
}

#[test]
fn denied_tools_join_the_denials() {
    used(
        parse_fields(
            "permission: {edit: deny, Bash: deny, 'mcp_*': deny, read: allow}\ndisallowed_tools: find\ntools: {ls: false}\n",
        ),
        json!({"tools": mode("INHERIT"), "disallowed_tools": ["find", "ls", "edit", "write", "bash", "mcp_*"]}),
        &[],
    );
    used(
        parse_fields("permission: {bash: {'git *': allow, '*': deny}}\n"),
        json!({"disallowed_tools": ["bash"]}),
        &["UNSUPPORTED_SPECIFIER"],
    );
    used(
        parse_fields("permission: {bash: {'rm *': deny, '*': ask}}\n"),
        json!({"disallowed_tools": ["bash"]}),
        &[],
    );
}

#[test]
fn denying_the_rest_makes_a_list() {
    used(
        parse_fields("permission: {'*': deny, Read: allow, bash: ask, ls: deny}\n"),
        json!({"tools": listed(&["read", "submit_result"]), "disallowed_tools": ["ls"]}),
        &[],
    );
    used(
        parse_fields("permission: {'*': deny, read: allow, grep: allow}\ntools: bash, grep\n"),
        json!({"tools": listed(&["grep", "submit_result"])}),
        &[],
    );
    used(
        parse_fields("permission: {'*': deny, read: allow}\ntools: Agent(x), read\n"),
        json!({"tools": listed(&["read", "submit_result"]), "spawns": mode("NONE")}),
        &[],
    );
    used(
        parse_fields("permission: {'*': deny, task: allow}\n"),
        json!({"tools": listed(&["task", "submit_result"]), "spawns": mode("ALL")}),
        &[],
    );
}

#[test]
fn patterns_of_task_become_the_spawn_policy() {
    used(
        parse_fields("permission: {task: {'*': deny, explore: allow, plan: ask}}\n"),
        json!({"spawns": listed(&["explore"]), "disallowed_tools": []}),
        &[],
    );
    used(
        parse_fields("permission: {task: {'*': deny}}\ntools: task\n"),
        json!({"spawns": mode("NONE")}),
        &[],
    );
    used(
        parse_fields("permission: {Task: {'code-*': allow, x: allow}}\n"),
        json!({"spawns": listed(&["x"])}),
        &["UNSUPPORTED_SPECIFIER"],
    );
    used(parse_fields("permission: {task: deny}\nspawns: [x]\n"), json!({"spawns": mode("NONE")}), &[]);
    let parsed = parse_fields("permission: {task: {x: allow}}\nspawns: [y]\n");
    assert!(parsed.blocks);
    refused(parsed, &["DUPLICATE_KEY"]);
    refused(parse_fields("permission: deny\npermissions: deny\n"), &["DUPLICATE_KEY"]);
}
