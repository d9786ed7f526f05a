//! The fields that do not restrict, one table a row of the format.

use serde_json::json;

use super::{parse_fields, parse_front, refused, used};

#[test]
fn text_fields_are_trimmed_text() {
    used(
        parse_front("name: ' a '\ndescription: |\n\n  one\n  two\n\nwhen_to_use: \"\"\n"),
        json!({"name": "a", "description": "one\ntwo", "when_to_use": ""}),
        &[],
    );
    for value in ["42", "true", "1.5", "[x]", "{x: y}"] {
        refused(parse_front(&format!("name: a\ndescription: {value}\n")), &["INVALID_FIELD"]);
        refused(parse_fields(&format!("critical_reminder: {value}\n")), &["INVALID_FIELD"]);
    }
    for value in ["'42'", "yes", "1_000", "2026-01-01"] {
        used(parse_fields(&format!("critical_reminder: {value}\n")), json!({}), &[]);
    }
}

#[test]
fn a_required_text_that_is_empty_is_missing() {
    for value in ["", "''", "' '", "~", "null", "# comment"] {
        refused(parse_front(&format!("name: {value}\ndescription: d\n")), &["MISSING_FIELD"]);
        refused(parse_front(&format!("name: a\ndescription: {value}\n")), &["MISSING_FIELD"]);
    }
    refused(parse_front("description: d\n"), &["MISSING_FIELD"]);
}

#[test]
fn a_plain_text_that_a_comment_cuts_is_said_aloud() {
    let cut = ["VALUE_CUT_BY_COMMENT"];
    used(parse_fields("when_to_use: Fix #12 now\n"), json!({"when_to_use": "Fix"}), &cut);
    used(parse_fields("when_to_use: one\n  two\t# three\n"), json!({"when_to_use": "one two"}), &cut);
    used(parse_fields("when_to_use: 'a' # b\n"), json!({"when_to_use": "a"}), &[]);
    used(parse_fields("when_to_use: a#b\n"), json!({"when_to_use": "a#b"}), &[]);
    used(parse_fields("model: a # b\n"), json!({"models": ["a"]}), &[]);
}

#[test]
fn a_key_without_a_value_is_absent() {
    for value in ["", "~", "null"] {
        for key in
            ["model", "when_to_use", "max_turns", "thinking", "skills", "mcp_servers", "blocking", "color"]
        {
            let parsed = parse_fields(&format!("{key}: {value}\n"));
            let expected = json!({"models": [], "max_turns": null, "thinking_level": "UNSPECIFIED", "blocking": false, "extra_json": null});
            used(parsed, expected, &[]);
        }
    }
}

#[test]
fn models_are_patterns_in_order() {
    for (value, models) in [
        ("opus", json!(["opus"])),
        ("[opus, 'sonnet, x', opus]", json!(["opus", "sonnet, x"])),
        ("a, b,, a", json!(["a", "b"])),
        ("Inherit", json!([])),
        ("[inherit]", json!([])),
        ("inherit, opus", json!(["inherit", "opus"])),
        ("[]", json!([])),
        ("''", json!([])),
    ] {
        used(parse_fields(&format!("model: {value}\n")), json!({"models": models}), &[]);
    }
    for value in ["4", "true", "{a: b}", "[4]", "[[a]]"] {
        refused(parse_fields(&format!("model: {value}\n")), &["INVALID_FIELD"]);
    }
}

#[test]
fn thinking_levels_have_words_and_aliases() {
    for (value, level) in [
        ("off", "OFF"),
        ("minimal", "MINIMAL"),
        ("low", "LOW"),
        ("Medium", "MEDIUM"),
        ("med", "MEDIUM"),
        ("high", "HIGH"),
        ("x-high", "XHIGH"),
        ("max", "XHIGH"),
        ("inherit", "UNSPECIFIED"),
    ] {
        for key in ["thinking_level", "thinking", "effort", "reasoningEffort", "model_reasoning_effort"] {
            used(parse_fields(&format!("{key}: {value}\n")), json!({"thinking_level": level}), &[]);
        }
    }
    for value in ["turbo", "3", "true", "''"] {
        let expected = json!({"thinking_level": "UNSPECIFIED"});
        used(parse_fields(&format!("thinking: {value}\n")), expected, &["UNKNOWN_VALUE"]);
    }
    refused(parse_fields("thinking: {type: enabled}\n"), &["INVALID_FIELD"]);
    refused(parse_fields("thinking: [high]\n"), &["INVALID_FIELD"]);
}

#[test]
fn turns_are_a_whole_number_in_bounds() {
    for (value, turns) in [("1", 1), ("10000", 10_000), ("' 7 '", 7), ("0x10", 16), ("\"10000\"", 10_000)] {
        for key in ["max_turns", "steps", "max_steps"] {
            used(parse_fields(&format!("{key}: {value}\n")), json!({"max_turns": turns}), &[]);
        }
    }
    for value in ["0", "10001", "-1", "1.5", "true", "many", "'7x'", "99999999999999999999", "''", "1_000"] {
        used(parse_fields(&format!("max_turns: {value}\n")), json!({"max_turns": null}), &["UNKNOWN_VALUE"]);
    }
    refused(parse_fields("max_turns: [7]\n"), &["INVALID_FIELD"]);
}

#[test]
fn blocking_is_a_bool_also_as_text() {
    for (value, blocking) in
        [("true", true), ("TRUE", true), ("'True'", true), ("false", false), ("'FALSE'", false)]
    {
        used(parse_fields(&format!("blocking: {value}\n")), json!({"blocking": blocking}), &[]);
    }
    for value in ["yes", "1", "''"] {
        used(parse_fields(&format!("blocking: {value}\n")), json!({"blocking": false}), &["UNKNOWN_VALUE"]);
    }
    refused(parse_fields("blocking: [true]\n"), &["INVALID_FIELD"]);
}

#[test]
fn skills_and_servers_are_names() {
    for key in ["skills", "mcp_servers"] {
        for value in ["a, b,,a", "[a, '', b, ~, a]", "\n- a\n-\n- b"] {
            used(parse_fields(&format!("{key}: {value}\n")), json!({key: ["a", "b"]}), &[]);
        }
        refused(parse_fields(&format!("{key}: [1]\n")), &["INVALID_FIELD"]);
        refused(parse_fields(&format!("{key}: true\n")), &["INVALID_FIELD"]);
    }
    refused(parse_fields("skills: {a: b}\n"), &["INVALID_FIELD"]);
}

#[test]
fn a_server_that_the_file_defines_is_dropped_whole() {
    let ignored = ["PRIVILEGE_IGNORED"];
    used(parse_fields("mcp_servers: {a: {command: sh}, b: }\n"), json!({"mcp_servers": ["b"]}), &ignored);
    used(parse_fields("mcp_servers: [{a: {command: sh}}, b]\n"), json!({"mcp_servers": ["b"]}), &ignored);
    used(parse_fields("mcp_servers: [{name: a, command: sh}, b]\n"), json!({"mcp_servers": ["b"]}), &ignored);
    used(parse_fields("mcp_servers: [{a: }, {name: b}]\n"), json!({"mcp_servers": ["a", "b"]}), &[]);
}

#[test]
fn other_keys_are_kept_as_written() {
    used(
        parse_fields("Color: red\nmy-Key: {Sub_Key: [1, 1.5, true, ~, .inf], 2: x}\n"),
        json!({"extra_json": {"Color": "red", "my-Key": {"Sub_Key": [1, 1.5, true, null, ".inf"], "2": "x"}}}),
        &["UNKNOWN_KEY"],
    );
    let known = "color metadata memory hooks isolation mode temperature topP hidden background initialPrompt omitClaudeMd \
        capabilities can_delegate version license tags author kind display_name argument-hint user_invocable target \
        experimental autoloadSkills agent category prompt type role handoffs disable_model_invocation \
        nickname_candidates timeout_mins infer";
    for key in known.split_whitespace() {
        used(parse_fields(&format!("{key}: x\n")), json!({"extra_json": {key: "x"}}), &[]);
    }
}

#[test]
fn an_unknown_key_near_a_field_is_offered_it() {
    let parsed = parse_fields("max_turn: 3\n");

    assert!(parsed.diagnostics[0].message.contains("`max_turns`"), "{:?}", parsed.diagnostics);
}

#[test]
fn two_spellings_or_aliases_are_one_key() {
    for fields in [
        "max_turns: 1\nmaxTurns: 1\n",
        "steps: 1\nmax_steps: 1\n",
        "color: a\nColor: b\n",
        "thinking: low\neffort: low\n",
        "Name: b\n",
        "odd_key: 1\noddKey: 2\n",
        "metadata: {a: 1, a: 2}\n",
        "metadata:\n  - {a: {b: 1, b: 1}}\n",
    ] {
        let parsed = parse_fields(fields);
        assert!(parsed.blocks, "{fields:?}");
        let unknown = fields.starts_with("odd");
        refused(parsed, if unknown { &["DUPLICATE_KEY", "UNKNOWN_KEY"] } else { &["DUPLICATE_KEY"] });
    }
    used(parse_fields("metadata: {max_turns: 1, maxTurns: 2}\n"), json!({}), &[]);
}

#[test]
fn a_duplicate_names_both_lines() {
    let parsed = parse_fields("tools: read\ncolor: x\nallowed-tools: bash\n");

    let diagnostic = &parsed.diagnostics[0];
    assert_eq!((diagnostic.line, diagnostic.column), (6, 1));
    assert!(
        diagnostic.message.contains("line 6") && diagnostic.message.contains("line 4"),
        "{}",
        diagnostic.message
    );
}

#[test]
fn hidden_characters_are_an_error_in_fields_and_a_warning_in_the_body() {
    for fields in [
        "when_to_use: a\u{200b}b\n",
        "when_to_use: \"a\\u202eb\"\n",
        "color: [x, {y: \"a\u{e0041}\"}]\n",
        "metadata: {\"a\u{2066}\": b}\n",
        "output: {title: \"\u{feff}x\"}\n",
        "skills: [\"a\u{200f}\"]\n",
    ] {
        refused(parse_fields(fields), &["HIDDEN_CHARACTERS"]);
    }
    let parsed =
        super::parse("---\nname: a\ndescription: d\n---\n\nx\n\u{202e}y\n".as_bytes(), &super::origin());
    assert_eq!((parsed.diagnostics[0].line, parsed.diagnostics[0].column), (7, 1));
    used(parsed, json!({"system_prompt": "x\n\u{202e}y"}), &["HIDDEN_CHARACTERS"]);
}

#[test]
fn a_hidden_character_is_found_at_its_place() {
    let parsed = parse_fields("color: red\nwhen_to_use: |\n  one\n  tw\u{200b}o\n");

    let diagnostic = &parsed.diagnostics[0];
    assert_eq!((diagnostic.line, diagnostic.column), (7, 5));
    assert!(diagnostic.message.contains("U+200B at 7:5"), "{}", diagnostic.message);
}
