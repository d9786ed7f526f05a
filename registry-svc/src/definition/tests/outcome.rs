//! What a document is beside its agent: disabled, blocking, the name it claims.

use serde_json::json;

use super::{super::*, codes, origin, parse_fields, parse_front, refused, used};

#[test]
fn a_document_that_is_switched_off_is_not_there() {
    for fields in [
        "disable: true\n",
        "disabled: true\n",
        "Disabled: 'True'\n",
        "enabled: false\n",
        "enabled: 'FALSE'\n",
        "disabled: true\ntool: read\n",
        "disabled: true\ntools:\n",
    ] {
        let parsed = parse_fields(fields);
        assert!(parsed.disabled && !parsed.blocks, "{fields:?}");
        refused(parsed, &["DISABLED"]);
    }
    let parsed = parse_front("description: x: y\ndisabled: true\n");
    assert!(parsed.disabled);
}

#[test]
fn a_switch_that_does_not_switch_off_is_no_extra_key() {
    for fields in ["disable: false\n", "enabled: true\n", "disabled:\n"] {
        used(parse_fields(fields), json!({"extra_json": null}), &[]);
    }
    used(parse_fields("disabled: maybe\n"), json!({"extra_json": null}), &["UNKNOWN_VALUE"]);
}

#[test]
fn only_faults_in_a_restriction_block() {
    for (fields, blocks) in [
        ("max_turns: [1]\n", false),
        ("when_to_use: 1\n", false),
        ("when_to_use: \u{200b}\n", false),
        ("tools: 1\n", true),
        ("tool: read\n", true),
        ("deny: x\n", true),
        ("output: 1\n", true),
        ("x: *a\n", true),
        ("color: a\ncolor: b\n", true),
        ("tools: [a\n", true),
    ] {
        let parsed = parse_fields(fields);
        assert!(parsed.agent.is_none());
        assert_eq!(parsed.blocks, blocks, "{fields:?}");
        assert_eq!(parsed.claimed_name.as_deref(), Some("a"), "{fields:?}");
    }
}

#[test]
fn a_document_without_front_matter_claims_its_first_name_line() {
    for document in ["name: a\n", "---\nname: \"a\"\n", "# x\n```\nname: a # b\n"] {
        let parsed = parse(document.as_bytes(), &origin());
        assert_eq!(parsed.claimed_name.as_deref(), Some("a"), "{document:?}");
        assert!(parsed.agent.is_none() && !parsed.blocks);
    }
}

#[test]
fn findings_carry_the_name_once_it_is_known() {
    let parsed = parse_fields("maturity: x\n");
    assert_eq!(parsed.diagnostics[0].agent, "a");

    let parsed = parse_fields("tools: [1]\n");
    assert_eq!(parsed.diagnostics[0].agent, "a");
}

#[test]
fn findings_stand_in_the_order_of_their_places() {
    let parsed = parse_fields("maturity: x\ntools: 1\nodd: y\nmax_turns: 0\n");

    let lines: Vec<u32> = parsed.diagnostics.iter().map(|found| found.line).collect();
    assert_eq!(lines, [4, 5, 6, 7]);
}

#[test]
fn a_missing_name_is_the_files_stem_where_that_is_the_custom() {
    let named = Origin { stem: Some("helper"), name_from_stem: true, ..origin() };
    let offered = Origin { stem: Some("helper"), ..origin() };
    for name in ["", "name:\n", "name: ''\n"] {
        let document = format!("---\n{name}description: d\n---\n");
        used(parse(document.as_bytes(), &named), json!({"name": "helper"}), &[]);

        let parsed = parse(document.as_bytes(), &offered);
        assert!(parsed.diagnostics[0].message.contains("`name: helper`"), "{:?}", parsed.diagnostics);
        refused(parsed, &["MISSING_FIELD"]);
    }
    let parsed = parse(b"---\ndescription: d\n---\n", &Origin { stem: Some("a,b"), ..named });
    assert_eq!(codes(&parsed), ["INVALID_NAME"]);
}

#[test]
fn a_name_that_looks_like_a_guarded_one_is_said() {
    let guarded = GuardedNames::new(["reviewer"]);
    let origin = Origin { guarded_names: &guarded, ..origin() };
    let parse_name =
        |name: &str| parse(format!("---\nname: {name}\ndescription: d\n---\n").as_bytes(), &origin);

    used(parse_name("rev\u{456}ewer"), json!({}), &["CONFUSABLE_NAME"]);
    used(parse_name("reviewer"), json!({}), &[]);
    used(parse_name("Reviewer"), json!({}), &[]);
}

#[test]
fn every_message_names_the_value_and_the_mend() {
    for (fields, value, mend) in [
        ("tool: x\n", "`tool`", "`tools`"),
        ("max_turns: many\n", "`many`", "1 to 10000"),
        ("permission_mode: careful\n", "`careful`", "`read-only`"),
        ("disallowed_tools: a b\n", "`a b`", "`prefix*`"),
        ("x: *star\n", "`*star`", "quote"),
        ("sandbox: strict\n", "`strict`", "`tools`"),
        ("output: 12\n", "`12`", "schema"),
        ("thinking: turbo\n", "`turbo`", "`high`"),
    ] {
        let parsed = parse_fields(fields);
        let found = &parsed.diagnostics[0];
        assert!(found.message.contains(value) && found.message.contains(mend), "{}", found.message);
        assert_eq!(found.line, 4);
        assert!(found.column >= 1);
    }
}

#[test]
fn the_digest_is_that_of_the_original_bytes() {
    let document = b"\xef\xbb\xbf---\r\nname: a\r\ndescription: d\r\n---\r\n";
    assert_eq!(parse(document, &origin()).digest, Digest::of(document));
}
