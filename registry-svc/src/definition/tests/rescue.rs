//! Front matter that is no YAML: what is saved, what belongs to what, and what is refused.

use serde_json::{Value as Json, json};

use super::{Parsed, parse_front, refused, used};

const RESCUED: &[&str] = &["FRONT_MATTER_RESCUED"];

/// Parses fields below a description that makes the block invalid.
fn parse_broken(fields: &str) -> Parsed {
    parse_front(&format!("name: a\ndescription: x: y\n{fields}"))
}

fn listed(names: &[&str]) -> Json {
    json!({"mode": "LISTED", "names": names})
}

#[track_caller]
fn describes(front: &str, description: &str) {
    used(parse_front(front), json!({"name": "a", "description": description}), RESCUED);
}

#[track_caller]
fn unreadable(fields: &str) {
    let parsed = parse_broken(fields);
    assert!(parsed.blocks, "{fields:?}");
    refused(parsed, &["FRONT_MATTER_RESCUED", "INVALID_FIELD"]);
}

#[test]
fn a_text_is_read_as_it_stands() {
    describes("name: a\ndescription: a: b # no comment\n", "a: b # no comment");
    describes("name: a\ndescription: 'a: b' c: d\n", "'a: b' c: d");
    describes("name: a\nmodel: b: c\ndescription: 42\n", "42");
    describes("name: a\nmodel: b: c\ndescription: \"a: \\u0062\" # comment\n", "a: b");
    describes("name: a\nmodel: b: c\ndescription: 'it''s'\n", "it's");
    describes("name: a\nmodel: b: c\ndescription: \"bad \\d escape\"\n", "\"bad \\d escape\"");
    describes("name: a\nmodel: b: c\ndescription: # x\n", "# x");
    describes("name: a\nmodel: b: c\ndescription: @x\n", "@x");
}

#[test]
fn in_a_name_a_comment_is_one() {
    used(
        parse_front("name: a # b\ndescription: x: y\n"),
        json!({"name": "a"}),
        &["FRONT_MATTER_RESCUED", "VALUE_CUT_BY_COMMENT"],
    );
    used(parse_front("name: 42\ndescription: x: y\n"), json!({"name": "42"}), RESCUED);
    used(parse_front("name: 'a' # b\ndescription: x: y\n"), json!({"name": "a"}), RESCUED);
}

#[test]
fn lines_below_a_text_are_joined_to_it() {
    describes("name: a\ndescription: x: y\n  more: z\n\n\tand\n", "x: y more: z and");
    describes(
        "name: a\ndescription: x: y\nnot indented\n- item\n<example>\n",
        "x: y not indented - item <example>",
    );
    describes("name: a\ndescription:\n  x: y\n  z: w: v\n", "x: y z: w: v");
    describes("name: a\ndescription:\nUse it: when: x\n", "Use it: when: x");
    describes("name: a\ndescription: x: y\n# no\n  # no\n  yes\n", "x: y yes");
    describes("name: a\ndescription: \"x\n  y\": z\n", "\"x y\": z");
}

#[test]
fn below_a_text_only_known_keys_are_keys() {
    used(
        parse_broken("Context: one\nuser: two\nassistant: three\nmax_turns: 3\ncolor: red\n"),
        json!({"description": "x: y Context: one user: two assistant: three", "max_turns": 3, "extra_json": {"color": "red"}}),
        RESCUED,
    );
    used(
        parse_front("name: a\nmaturity: stable\ndescription: x: y\nmaturity: odd\n"),
        json!({"description": "x: y maturity: odd", "extra_json": {"maturity": "stable"}}),
        &["FRONT_MATTER_RESCUED", "UNKNOWN_KEY"],
    );
    refused(parse_broken("tool: read\n"), &["FRONT_MATTER_RESCUED", "MISSPELT_RESTRICTION"]);
    refused(parse_broken("deny: read\n"), &["FOREIGN_RESTRICTION", "FRONT_MATTER_RESCUED"]);
    used(parse_broken("sandbox_mode: read-only\n"), json!({"permission_mode": "READ_ONLY"}), RESCUED);
    used(parse_broken("\"tools\": read\n"), json!({"tools": listed(&["read", "submit_result"])}), RESCUED);
    used(parse_broken("tools : read\n"), json!({"tools": listed(&["read", "submit_result"])}), RESCUED);
}

#[test]
fn below_other_keys_every_key_is_one() {
    used(
        parse_broken("model: opus\nstage: x\n"),
        json!({"models": ["opus"], "extra_json": {"stage": "x"}}),
        &["FRONT_MATTER_RESCUED", "UNKNOWN_KEY"],
    );
}

#[test]
fn block_scalars_are_read_as_such() {
    used(
        parse_broken(
            "when_to_use: |\n  # one\n    two: x\n\n  three\ncritical_reminder: >-\n  four\n  five\n",
        ),
        json!({"when_to_use": "# one\n  two: x\n\nthree", "critical_reminder": "four five"}),
        RESCUED,
    );
    used(
        parse_broken("when_to_use: |\n    one\n  two\n\tthree\n"),
        json!({"when_to_use": "one\ntwo\nthree"}),
        RESCUED,
    );
    used(
        parse_broken("when_to_use: |\n  one\nuser: two\n# no\nthree\n"),
        json!({"when_to_use": "one user: two three"}),
        RESCUED,
    );
    used(
        parse_broken("output: |\n  {\"type\": \"object\"}\n"),
        json!({"output_schema": {"type": "object"}}),
        RESCUED,
    );
    used(
        parse_broken("tools: >\n  read,\n  grep\n"),
        json!({"tools": listed(&["read", "grep", "submit_result"])}),
        RESCUED,
    );
}

#[test]
fn another_value_is_yaml_where_it_ends_with_its_line() {
    used(
        parse_broken(
            "model: [a, b] # c\nmax_turns: 5 # d\nblocking: true\nskills: \"a, b\"\nmetadata: {a: {b: 1}}\n",
        ),
        json!({"models": ["a", "b"], "max_turns": 5, "blocking": true, "skills": ["a", "b"], "extra_json": {"metadata": {"a": {"b": 1}}}}),
        RESCUED,
    );
    used(parse_broken("model: a: b\n"), json!({"models": ["a: b"]}), RESCUED);
    used(parse_broken("model: [a,\n  b]\n"), json!({"models": ["[a", "b]"]}), RESCUED);
    used(parse_broken("model: opus\n  sonnet\nnext\n"), json!({"models": ["opus sonnet next"]}), RESCUED);
    used(parse_broken("spawns: *\n"), json!({"spawns": {"mode": "ALL", "names": []}}), RESCUED);
}

#[test]
fn what_stands_below_a_bare_key_is_a_block_a_list_or_text() {
    used(
        parse_broken("metadata:\n  a:\n    - 1\n  # c\n  b: true\nmodel:\n- x\n- y\nskills:\n\t- s\n"),
        json!({"extra_json": {"metadata": {"a": [1], "b": true}}, "models": ["x", "y"], "skills": ["s"]}),
        RESCUED,
    );
    used(parse_broken("skills:\n  - a: b: c\n  - 'd' # e\n"), json!({"skills": ["a: b: c", "d"]}), RESCUED);
    used(
        parse_broken("metadata:\n  a: b: c\n  d\n"),
        json!({"extra_json": {"metadata": "a: b: c d"}}),
        RESCUED,
    );
    used(parse_broken("when_to_use:\n  - a\n  - b\n"), json!({"when_to_use": "- a - b"}), RESCUED);
    used(parse_broken("when_to_use:\n  42\n"), json!({"when_to_use": "42"}), RESCUED);
    used(parse_broken("when_to_use:\n  a\n\n  b\n"), json!({"when_to_use": "a\nb"}), RESCUED);
    used(parse_broken("when_to_use:\nmodel:\n"), json!({"when_to_use": "", "models": []}), RESCUED);
}

#[test]
fn a_rescue_loses_no_restriction() {
    used(
        parse_broken("disallowed_tools:\n- bash\n# - read\n- write\n"),
        json!({"disallowed_tools": ["bash", "write"]}),
        RESCUED,
    );
    used(
        parse_broken("tools: read, # c\n  grep\n"),
        json!({"tools": listed(&["read", "grep", "submit_result"])}),
        RESCUED,
    );
    used(parse_broken("tools: [read, 'Agent(x)'] # c\n"), json!({"spawns": listed(&["x"])}), RESCUED);
    for fields in [
        "tools:\n",
        "tools: [read\n",
        "tools: [read,\n  grep]\n",
        "tools: \"read\n",
        "tools: {read: true\n",
        "disallowed_tools: [bash] x\n",
        "disallowed_tools: 'bash' x\n",
        "disallowed_tools: bash\nwrite\n",
        "disallowed_tools: bash\n- write\n",
        "disallowed_tools: bash\n  - write\n",
        "disallowed_tools: [bash]\n  - write\n",
        "disallowed_tools:\n  - bash\nwrite\n",
        "disallowed_tools:\n  - bash\n  write: x\n",
        "disallowed_tools:\n  - [bash\n  - x: y: z\n",
        "disallowed_tools: |\n  bash\nwrite\n",
        "spawns: [x\n",
        "output: {type: object\n",
        "output:\n  type: a: b\n",
        "permission_mode: plan\nx\n",
    ] {
        unreadable(fields);
    }
    refused(parse_broken("permission: {edit: deny\n"), &["FOREIGN_RESTRICTION", "FRONT_MATTER_RESCUED"]);
}

#[test]
fn a_key_found_twice_is_refused() {
    refused(parse_broken("tools: read\nallowed_tools: bash\n"), &["DUPLICATE_KEY", "FRONT_MATTER_RESCUED"]);
    refused(parse_broken("name: b\n"), &["DUPLICATE_KEY", "FRONT_MATTER_RESCUED"]);
    refused(parse_broken("metadata:\n  a: 1\n  a: 2\n"), &["DUPLICATE_KEY", "FRONT_MATTER_RESCUED"]);
    used(parse_broken("user: a\nuser: b\n"), json!({"description": "x: y user: a user: b"}), RESCUED);
}

#[test]
fn too_much_and_unsupported_is_not_rescued() {
    let deep = format!("metadata: {}{}\n", "[".repeat(60), "]".repeat(60));
    refused(parse_broken(&deep), &["TOO_LARGE"]);
    let wide = |key: &str| format!("{key}:\n{}", "  - b\n".repeat(6_000));
    used(parse_broken(&wide("skills")), json!({}), RESCUED);
    refused(parse_broken(&format!("{}{}", wide("skills"), wide("model"))), &["TOO_LARGE"]);
    refused(parse_broken("user: *a*\n"), &["YAML_UNSUPPORTED"]);
    refused(parse_broken("- **a**\n"), &["YAML_UNSUPPORTED"]);
    refused(parse_broken("...\n"), &["YAML_INVALID"]);
}

#[test]
fn what_lacks_a_required_field_is_refused_as_invalid_yaml_too() {
    refused(parse_front("description: x: y\n"), &["FRONT_MATTER_RESCUED", "MISSING_FIELD", "YAML_INVALID"]);
    refused(
        parse_front("name: a\nmodel: x: y\n"),
        &["FRONT_MATTER_RESCUED", "MISSING_FIELD", "YAML_INVALID"],
    );
    refused(
        parse_front("  name: a\n  description: x: y\n"),
        &["FRONT_MATTER_RESCUED", "MISSING_FIELD", "YAML_INVALID"],
    );
}

#[test]
fn the_rescue_is_said_once_with_the_line_of_the_fault() {
    let parsed = parse_front("name: a\nmodel: opus\ndescription: x: y\nwhen_to_use: z: w\n");

    let said: Vec<u32> = parsed.diagnostics.iter().map(|found| found.line).collect();
    assert_eq!(said, [4]);
}
