//! The fields that restrict, one table a rule.

use serde_json::{Value as Json, json};

use super::{parse_fields, refused, used};

fn listed(names: &[&str]) -> Json {
    json!({"mode": "LISTED", "names": names})
}

fn mode(mode: &str) -> Json {
    json!({"mode": mode, "names": []})
}

#[test]
fn a_restriction_without_a_value_is_refused() {
    for key in ["tools", "allowed-tools", "disallowed_tools", "spawns", "agents", "permission_mode", "output"]
    {
        for value in ["", "~", "null", "# all of it", "\n  # - read"] {
            let parsed = parse_fields(&format!("{key}: {value}\n"));
            assert!(parsed.blocks, "{key} {value}");
            refused(parsed, &["INVALID_FIELD"]);
        }
    }
}

#[test]
fn a_restriction_of_the_wrong_type_is_refused_and_blocks() {
    for fields in [
        "tools: 7\n",
        "tools: true\n",
        "tools: [read, [bash]]\n",
        "tools: [~]\n",
        "tools: {read: 'true'}\n",
        "tools: {read: }\n",
        "tools: {1: true}\n",
        "disallowed_tools: {bash: true}\n",
        "disallowed_tools: [1]\n",
        "disallowed_tools:\n-\n",
        "spawns: true\n",
        "spawns: {a: b}\n",
        "spawns: [1]\n",
        "permission_mode: 1\n",
        "permission_mode: [plan]\n",
    ] {
        let parsed = parse_fields(fields);
        assert!(parsed.blocks, "{fields:?}");
        refused(parsed, &["INVALID_FIELD"]);
    }
}

#[test]
fn absent_empty_and_all_tools_are_three_things() {
    used(parse_fields(""), json!({"tools": mode("INHERIT")}), &[]);
    for value in ["*", "'*'", "[*]", "[read, '*']", "read, *", "\n- *"] {
        used(parse_fields(&format!("tools: {value}\n")), json!({"tools": mode("ALL")}), &[]);
    }
    for value in ["[]", "''", "' , '", "['']"] {
        used(parse_fields(&format!("tools: {value}\n")), json!({"tools": listed(&["submit_result"])}), &[]);
    }
}

#[test]
fn a_specifier_in_tools_grants_nothing_and_is_said() {
    used(
        parse_fields("tools: Read, Bash(git a, b), Write\n"),
        json!({"tools": listed(&["read", "write", "submit_result"])}),
        &["UNSUPPORTED_SPECIFIER"],
    );
}

#[test]
fn a_map_of_tools_takes_away_or_lists() {
    used(
        parse_fields("tools: {Bash: false, read: true}\ndisallowed_tools: write\n"),
        json!({"tools": mode("INHERIT"), "disallowed_tools": ["write", "bash"]}),
        &[],
    );
    used(
        parse_fields("tools: {'*': false, Read: true, bash: false}\n"),
        json!({"tools": listed(&["read", "submit_result"]), "disallowed_tools": ["bash"]}),
        &[],
    );
    used(parse_fields("tools: {'*': false}\n"), json!({"tools": listed(&["submit_result"])}), &[]);
    used(
        parse_fields("tools: {'*': true}\n"),
        json!({"tools": mode("INHERIT"), "disallowed_tools": []}),
        &[],
    );
    used(parse_fields("tools: {}\n"), json!({"tools": mode("INHERIT")}), &[]);
    used(
        parse_fields("tools: {task: false}\nspawns: [x]\n"),
        json!({"disallowed_tools": ["task"], "spawns": mode("NONE")}),
        &[],
    );
    refused(parse_fields("tools: {'a b': false}\n"), &["INVALID_FIELD"]);
}

#[test]
fn denials_are_read_as_comma_text_everywhere() {
    for value in ["Bash, Write", "['Bash, Write']", "[Bash, Write, bash]", "\n- Bash(rm *)\n- Write"] {
        used(
            parse_fields(&format!("disallowed_tools: {value}\n")),
            json!({"disallowed_tools": ["bash", "write"]}),
            &[],
        );
    }
    used(
        parse_fields("denied-tools: 'mcp__*, *_x, *'\n"),
        json!({"disallowed_tools": ["mcp__*", "*_x", "*"]}),
        &[],
    );
    used(parse_fields("disallowed_tools: []\n"), json!({"disallowed_tools": []}), &[]);
}

#[test]
fn a_denial_that_would_deny_nothing_is_refused() {
    for entry in ["Bash Write", "'[Bash]'", "'\"Bash\"'", "Bash(git", "a*b", "'*a*'", "'(x)'"] {
        refused(parse_fields(&format!("disallowed_tools: {entry}\n")), &["INVALID_FIELD"]);
    }
}

#[test]
fn submit_result_cannot_be_denied() {
    used(
        parse_fields("disallowed_tools: [submit_result, bash]\n"),
        json!({"disallowed_tools": ["bash"]}),
        &["UNKNOWN_VALUE"],
    );
}

#[test]
fn written_spawns_decide_alone() {
    for (value, spawns) in [
        ("*", mode("ALL")),
        ("'*'", mode("ALL")),
        ("[a, *]", mode("ALL")),
        ("a, b , a", listed(&["a", "b"])),
        ("[]", mode("NONE")),
        ("''", mode("NONE")),
        ("' '", mode("NONE")),
        ("[\"re\\u0301viseur\"]", listed(&["r\u{e9}viseur"])),
        ("\"UI (a, b), c\"", listed(&["UI (a, b)", "c"])),
    ] {
        for key in ["spawns", "agents"] {
            let parsed = parse_fields(&format!("tools: [read, 'Agent(z)']\n{key}: {value}\n"));
            used(parsed, json!({"spawns": spawns.clone()}), &[]);
        }
    }
}

#[test]
fn spawns_follow_from_tools_where_they_are_not_written() {
    for (tools, spawns) in [
        ("", mode("NONE")),
        ("tools: '*'\n", mode("NONE")),
        ("tools: read\n", mode("NONE")),
        ("tools: read, Task\n", mode("ALL")),
        ("tools: Agent(a, b), Task(c)\n", listed(&["a", "b", "c"])),
        ("tools: Agent(a), Task\n", listed(&["a"])),
        ("tools: AgentTool()\n", mode("NONE")),
        ("tools: Agent(*)\n", mode("ALL")),
        ("tools: ['*', 'Agent(a)']\n", listed(&["a"])),
        ("tools: {task: true}\n", mode("NONE")),
        ("tools: {'*': false, task: true}\n", mode("ALL")),
    ] {
        used(parse_fields(tools), json!({"spawns": spawns}), &[]);
    }
}

#[test]
fn a_denied_spawn_tool_spawns_nothing() {
    for denied in ["task", "Agent", "Task(x)", "'ta*'", "'*'", "'Agent*'", "'*Tool'"] {
        for spawns in ["spawns: '*'\n", "spawns: [x]\n", "tools: task\n"] {
            let parsed = parse_fields(&format!("{spawns}disallowed_tools: {denied}\n"));
            used(parsed, json!({"spawns": mode("NONE")}), &[]);
        }
    }
}

#[test]
fn permission_modes_are_words() {
    for (word, mode, codes) in [
        ("read-only", "READ_ONLY", &[][..]),
        ("readOnly", "READ_ONLY", &[]),
        ("plan", "READ_ONLY", &[]),
        ("mutating-with-confirm", "MUTATING_WITH_REVIEW", &[]),
        ("Mutating_With_Review", "MUTATING_WITH_REVIEW", &[]),
        ("dual-sign-required", "DUAL_SIGN", &[]),
        ("dual-sign", "DUAL_SIGN", &[]),
        ("default", "UNSPECIFIED", &["UNKNOWN_VALUE"]),
        ("acceptEdits", "UNSPECIFIED", &["UNKNOWN_VALUE"]),
        ("dontAsk", "UNSPECIFIED", &["UNKNOWN_VALUE"]),
        ("auto", "UNSPECIFIED", &["UNKNOWN_VALUE"]),
        ("manual", "UNSPECIFIED", &["UNKNOWN_VALUE"]),
        ("ask", "UNSPECIFIED", &["UNKNOWN_VALUE"]),
        ("bypassPermissions", "UNSPECIFIED", &["PRIVILEGE_IGNORED"]),
    ] {
        used(parse_fields(&format!("permission_mode: {word}\n")), json!({"permission_mode": mode}), codes);
    }
    for word in ["careful", "''", "readonlyish"] {
        let parsed = parse_fields(&format!("permission_mode: {word}\n"));
        assert!(parsed.blocks);
        refused(parsed, &["INVALID_FIELD"]);
    }
}

#[test]
fn a_schema_is_passed_on_untouched() {
    used(
        parse_fields("output: {b: [1, 1.0, ~], a_b: {C-d: x}}\n"),
        json!({"output_schema": {"b": [1, 1.0, null], "a_b": {"C-d": "x"}}}),
        &[],
    );
    used(parse_fields("output: true\n"), json!({"output_schema": true}), &[]);
    used(parse_fields("output: '{}'\n"), json!({"output_schema": {}}), &[]);
    used(
        parse_fields("output: |\n  {\"type\":\n   \"object\"}\n"),
        json!({"output_schema": {"type": "object"}}),
        &[],
    );
    let parsed = parse_fields("output: '{\"b\": 1,  \"a\": 2.50}'\n");
    assert_eq!(parsed.agent.unwrap().output_schema.unwrap(), "{\"b\": 1,  \"a\": 2.50}");
}

#[test]
fn a_schema_that_is_none_is_refused() {
    for value in [
        "12",
        "[a]",
        "text",
        "''",
        "'12'",
        "'[]'",
        "'{'",
        "{1: a}",
        "{true: a}",
        "{~: a}",
        "{a: .inf}",
        "{a: [.nan]}",
        "{a: {[b]: c}}",
    ] {
        let parsed = parse_fields(&format!("output: {value}\n"));
        assert!(parsed.blocks, "{value}");
        refused(parsed, &["INVALID_OUTPUT_SCHEMA"]);
    }
}

#[test]
fn a_near_miss_of_a_restricting_key_is_refused_with_or_without_a_value() {
    for key in [
        "tool",
        "toolz",
        "Tols",
        "dissallowedTools",
        "disallow_tools",
        "spawn",
        "agens",
        "permisson_mode",
        "outputs",
    ] {
        for value in ["x", ""] {
            let parsed = parse_fields(&format!("{key}: {value}\n"));
            assert!(parsed.blocks, "{key}");
            refused(parsed, &["MISSPELT_RESTRICTION"]);
        }
    }
}
