//! Front matter as a whole: YAML, its limits, and what is refused before it.

use serde_json::json;

use super::{super::*, codes, origin, parse_fields, parse_front, refused, used};

#[test]
fn an_empty_block_lacks_everything_and_anything_but_a_mapping_is_refused() {
    for front in ["", "\n", "# comment\n", "{}\n"] {
        refused(parse_front(front), &["MISSING_FIELD"]);
    }
    for front in ["text\n", "- a\n- b\n", "[a]\n", "42\n", "~\n", "'quoted: text'\n", "name:a\n"] {
        refused(parse_front(front), &["NOT_A_MAPPING"]);
    }
}

#[test]
fn a_document_marker_inside_is_never_rescued() {
    for front in ["...\n", "... x\n", "--- x\n", "a: b: c\n...\n", "when_to_use: |\n  text\n...\n"] {
        refused(parse_fields(front), &["YAML_INVALID"]);
    }
    used(parse_fields("when_to_use: |\n  ...\n  --- x\n"), json!({"when_to_use": "...\n--- x"}), &[]);
}

#[test]
fn anchors_aliases_tags_and_merge_keys_block_the_name() {
    for front in [
        "x: &a b\n",
        "x: *a\n",
        "x: !a b\n",
        "x: [!!str a]\n",
        "<<: {tools: read}\n",
        "*a : b\n",
        "x:\n- &a\n",
        "tools: **\n",
    ] {
        let parsed = parse_fields(front);
        assert!(parsed.blocks, "{front:?}");
        refused(parsed, &["YAML_UNSUPPORTED"]);
    }
}

#[test]
fn a_text_field_may_begin_with_an_indicator() {
    let rescued = ["FRONT_MATTER_RESCUED"];
    used(
        parse_fields("when_to_use: *now* and\n  *then*\n"),
        json!({"when_to_use": "*now* and *then*"}),
        &rescued,
    );
    used(
        parse_fields("when_to_use: &c\nmax_turns: 3\n"),
        json!({"when_to_use": "&c", "max_turns": 3}),
        &rescued,
    );
    used(
        parse_fields("when_to_use: !x\ncolor: *\n"),
        json!({"when_to_use": "!x", "extra_json": {"color": "*"}}),
        &rescued,
    );
    used(parse_fields("when_to_use: * a\n"), json!({"when_to_use": "* a"}), &[]);
    used(parse_front("description: d\nname: !a\n"), json!({"name": "!a"}), &rescued);
}

#[test]
fn it_is_said_once_when_a_text_is_repaired_and_the_block_rescued() {
    let parsed = parse_front("name: a\ndescription: **Use** when: x\nwhen_to_use: *y*\n");

    let said = parsed.diagnostics.iter().filter(|found| found.code == Code::FrontMatterRescued).count();
    assert_eq!(said, 1);
    used(parsed, json!({"description": "**Use** when: x", "when_to_use": "*y*"}), &["FRONT_MATTER_RESCUED"]);
}

#[test]
fn nesting_and_nodes_are_limited_and_not_rescued() {
    let deep = format!("x: {}{}\n", "[".repeat(40), "]".repeat(40));
    let wide = format!("x: [{}]\n", "a,".repeat(10_001));
    let deep_block: String = (0..40).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    for front in [deep, wide, deep_block] {
        let parsed = parse_fields(&front);
        assert!(parsed.blocks);
        refused(parsed, &["TOO_LARGE"]);
    }
}

#[test]
fn sizes_are_limited_to_the_byte() {
    let front = |size: usize| format!("name: a\ndescription: {}\n", "x".repeat(size - 22));
    used(parse_front(&front(FRONT_MATTER_MAX)), json!({}), &[]);
    refused(parse_front(&front(FRONT_MATTER_MAX + 1)), &["TOO_LARGE"]);

    let document = |size: usize| format!("---\nname: a\ndescription: d\n---\n{}", "x".repeat(size - 31));
    used(parse(document(DOCUMENT_MAX).as_bytes(), &origin()), json!({}), &[]);
    let parsed = parse(document(DOCUMENT_MAX + 1).as_bytes(), &origin());
    assert_eq!(parsed.claimed_name.as_deref(), Some("a"));
    assert!(parsed.blocks);
    refused(parsed, &["TOO_LARGE"]);
}

#[test]
fn bytes_that_are_no_utf8_are_refused_with_their_place() {
    let parsed = parse(b"---\nname: a\ndescription: x\xff\n---\n", &origin());

    let found = &parsed.diagnostics[0];
    assert_eq!((found.code, found.line, found.column), (Code::NotUtf8, 3, 15));
    assert_eq!(parsed.claimed_name.as_deref(), Some("a"));
    assert!(!parsed.blocks);
}

#[test]
fn a_quote_that_swallows_a_restriction_is_no_valid_yaml() {
    used(
        parse_front("name: a\ndescription: \"unfinished\ntools: read\nwhen_to_use: x\"\n"),
        json!({"description": "\"unfinished", "when_to_use": "x\"", "tools": {"mode": "LISTED", "names": ["read", "submit_result"]}}),
        &["FRONT_MATTER_RESCUED"],
    );
    refused(
        parse_fields("color: [a,\ndisallowed_tools: bash\n]\n"),
        &["FRONT_MATTER_RESCUED", "INVALID_FIELD"],
    );
}

#[test]
fn quotes_and_flows_may_continue_at_column_0() {
    used(parse_fields("when_to_use: \"one\ntwo\n\nthree\"\n"), json!({"when_to_use": "one two\nthree"}), &[]);
    used(
        parse_fields("output: {\n\"type\": \"object\",\n\"title\": \"x\"\n}\n"),
        json!({"output_schema": {"type": "object", "title": "x"}}),
        &[],
    );
    used(
        parse_fields("tools:\t[read,\ngrep\n]\n"),
        json!({"tools": {"mode": "LISTED", "names": ["read", "grep", "submit_result"]}}),
        &[],
    );
}

#[test]
fn a_bundled_document_is_never_rescued() {
    let bundled = Origin { bundled: true, ..origin() };
    for (description, code) in [("a: b", "YAML_INVALID"), ("*a*", "YAML_UNSUPPORTED")] {
        let document = format!("---\nname: a\ndescription: {description}\n---\n");
        assert_eq!(codes(&parse(document.as_bytes(), &bundled)), [code]);
    }
}
