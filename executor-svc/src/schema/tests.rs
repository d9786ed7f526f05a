use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Fault, Schema, SchemaSource, effective};

fn schema(document: &Value) -> Schema {
    Schema::compile(&document.to_string()).unwrap_or_else(|fault| panic!("{document}: {fault}"))
}

#[track_caller]
fn check(document: Value, data: Value, violation: &str) {
    let result = schema(&document).validate(&data);
    match (violation, result) {
        ("", Ok(())) => {}
        ("", Err(violations)) => panic!("{data}: {violations}"),
        (words, Ok(())) => panic!("{data} fits, without `{words}`"),
        (words, Err(violations)) => assert!(violations.to_string().contains(words), "{data}: {violations}"),
    }
}

#[track_caller]
fn refuses(text: &str) -> Fault {
    match Schema::compile(text) {
        Ok(_) => panic!("compiles: {text}"),
        Err(fault) => fault,
    }
}

#[test]
fn data_is_checked_against_json_schema() {
    let document = json!({
        "type": "object",
        "required": ["decision"],
        "additionalProperties": false,
        "properties": {
            "decision": {"enum": ["approve", "reject"]},
            "files": {"type": "array", "items": {"type": "string"}},
        },
    });
    check(document.clone(), json!({"decision": "approve", "files": ["a"]}), "");
    check(document.clone(), json!({}), "\"decision\" is a required property");
    check(document.clone(), json!({"decision": "maybe"}), "at `/decision`: \"maybe\" is not one of");
    check(
        document.clone(),
        json!({"decision": "reject", "files": ["a", 7]}),
        "at `/files/1`: 7 is not of type",
    );
    check(document, json!({"decision": "reject", "more": 1}), "'more'");
    check(json!({"type": "string", "pattern": "^a+$"}), json!("aab"), "does not match");
    check(json!(true), json!({"anything": 1}), "");
    check(json!(false), json!(1), "False schema");
    check(
        json!({"prefixItems": [{"type": "string"}], "items": false}),
        json!(["a", 1]),
        "at `/1`: False schema",
    );
}

#[test]
fn data_is_checked_against_type_definitions() {
    let document = json!({
        "properties": {"name": {"type": "string"}, "size": {"type": "uint8"}},
        "optionalProperties": {"tags": {"elements": {"type": "string"}}, "when": {"type": "timestamp"}},
    });
    check(document.clone(), json!({"name": "a", "size": 255, "tags": ["x"]}), "");
    check(document.clone(), json!({"name": "a"}), "`size` is missing");
    check(document.clone(), json!({"name": "a", "size": 256}), "at `/size`: 256 is not of type `uint8`");
    check(
        document.clone(),
        json!({"name": "a", "size": 1, "tags": "x"}),
        "at `/tags`: an array is wanted, not a text",
    );
    check(document.clone(), json!({"name": "a", "size": 1, "more": 1}), "at `/more`: is not allowed here");
    check(document.clone(), json!([]), "an object is wanted, not an array");
    check(document, json!({"name": "a", "size": 1, "when": "now"}), "not of type `timestamp`");
    check(json!({"enum": ["a"], "nullable": true}), json!("b"), "none of the values allowed");
    let variants = json!({
        "discriminator": "kind",
        "mapping": {"file": {"properties": {"path": {"type": "string"}}}, "none": {"properties": {}}},
    });
    check(variants.clone(), json!({"kind": "file", "path": "a"}), "");
    check(variants.clone(), json!({"kind": "other"}), "none of the variants");
    check(variants.clone(), json!({"path": "a"}), "names the variant");
    check(variants, json!({"kind": "file"}), "`path` is missing");
}

#[test]
fn a_schema_that_cannot_be_used_says_why() {
    assert!(matches!(refuses("{"), Fault::NotJson(_)));
    assert!(matches!(refuses(r#"{"type": "objekt"}"#), Fault::JsonSchema(_)));
    assert!(matches!(refuses("7"), Fault::JsonSchema(_)));
    assert!(matches!(
        refuses(r#"{"type": "object", "properties": {"a": {"elements": {}}}}"#),
        Fault::Typedef(_)
    ));
    assert!(matches!(refuses(r#"{"ref": "absent"}"#), Fault::Typedef(_)));
    assert_eq!(
        refuses(r##"{"$ref": "#/$defs/absent"}"##),
        Fault::DanglingReference("#/$defs/absent".to_owned())
    );
    assert_eq!(refuses(&format!("\"{}\"", "x".repeat(70_000))), Fault::TooLarge);
    let deep = format!("{}true{}", r#"{"not":"#.repeat(80), "}".repeat(80));
    assert_eq!(refuses(&deep), Fault::TooDeep);
    let deeper = format!("{}true{}", r#"{"not":"#.repeat(500), "}".repeat(500));
    assert_eq!(refuses(&deeper), Fault::TooDeep);
}

#[test]
fn a_reference_out_of_the_document_is_refused() {
    for reference in [
        "https://json-schema.org/draft/2020-12/schema",
        "http://127.0.0.1/x",
        "file:///etc/passwd",
        "other.json#/x",
        "/etc/passwd",
        "urn:x",
    ] {
        for document in [
            json!({"$ref": reference}),
            json!({"properties": {"a": {"items": [{"$dynamicRef": reference}]}}, "type": "object"}),
            json!({"$defs": {"a": {"$ref": reference}}}),
        ] {
            let fault = refuses(&document.to_string());
            assert_eq!(fault, Fault::OutsideReference(reference.to_owned()), "{document}");
        }
    }
    // Inside: fragments, anchors, and an identity the document gives. A property may be called `$ref`.
    check(json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}), json!(1), "not of type");
    check(json!({"$ref": "#a", "$defs": {"x": {"$anchor": "a", "type": "string"}}}), json!(1), "not of type");
    let own = json!({"$ref": "http://x/a", "$defs": {"a": {"$id": "http://x/a", "type": "string"}}});
    check(own, json!(1), "not of type");
    check(
        json!({"type": "object", "properties": {"$ref": {"type": "string"}}}),
        json!({"$ref": "http://x"}),
        "",
    );
}

#[test]
fn a_schema_that_refers_to_itself_ends() {
    let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
    let mut data = json!({});
    for _ in 0..60 {
        data = json!({"left": data, "right": {}});
    }
    check(tree, data, "");
    // No data is used up on the way round.
    for document in [json!({"$ref": "#"}), json!({"allOf": [{"$ref": "#"}]}), json!({"not": {"$ref": "#"}})] {
        if let Ok(schema) = Schema::compile(&document.to_string()) {
            let _ = schema.validate(&json!({"a": 1}));
        }
    }
    check(json!({"definitions": {"a": {"ref": "a"}}, "ref": "a"}), json!(1), "nested too deep");
}

#[test]
fn a_schema_that_doubles_at_every_step_is_refused() {
    let doubling = |steps: usize, reference: &str| {
        let mut definitions = serde_json::Map::new();
        for step in 0..steps {
            let next = json!({"$ref": format!("#{reference}{}", step + 1)});
            let definition =
                json!({"$anchor": format!("s{step}"), "allOf": [next, {"properties": {"x": next}}]});
            definitions.insert(format!("s{step}"), definition);
        }
        definitions.insert(format!("s{steps}"), json!({"$anchor": format!("s{steps}"), "type": "integer"}));
        json!({"$ref": "#/$defs/s0", "$defs": definitions})
    };
    for reference in ["/$defs/s", "/%24defs/s", "s"] {
        let document = doubling(40, reference);
        assert_eq!(refuses(&document.to_string()), Fault::TooCostly);
        check(doubling(5, reference), json!(1), "");
        check(doubling(5, reference), json!("x"), "not of type");
    }
}

#[test]
fn a_schema_that_doubles_with_the_data_costs_no_more_than_both_are_large() {
    let branch = |target: &str| json!({"properties": {"x": {"$ref": target}}});
    let itself = json!({"type": "object", "allOf": [branch("#"), branch("#")]});
    let each_other = json!({
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"type": "object", "anyOf": [branch("#/$defs/b"), branch("#/$defs/b")]},
            "b": {"type": "object", "oneOf": [branch("#/$defs/a"), {"allOf": [branch("#/$defs/a"), {"minProperties": 9}]}]},
        },
    });
    for document in [itself, each_other] {
        let nested = |innermost: Value| (0..100).fold(innermost, |data, _| json!({"x": data}));
        let schema = schema(&document);
        assert!(schema.validate(&nested(json!({}))).is_ok());
        let violations = schema.validate(&nested(json!(1))).unwrap_err();
        assert!(violations.to_string().contains("too often to say where"), "{violations}");
    }
    // A usual tree is explained.
    let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
    check(tree, json!({"left": {"right": {"left": 1}}}), "at `/left/right/left`: 1 is not of type");
}

#[test]
fn a_pattern_costs_no_more_than_the_text_is_long() {
    check(
        json!({"type": "string", "pattern": "^(a+)+$"}),
        json!(format!("{}b", "a".repeat(50_000))),
        "does not match",
    );
    assert!(matches!(refuses(r#"{"pattern": "((a{1000}){1000}){1000}"}"#), Fault::JsonSchema(_)));
}

#[test]
fn violations_are_few_and_short() {
    let document = json!({"type": "array", "items": {"type": "integer"}});
    let data: Vec<String> = (0..500).map(|_| "x".repeat(5_000)).collect();

    let text = schema(&document).validate(&json!(data)).unwrap_err().to_string();

    assert_eq!(text.lines().count(), 17);
    assert!(text.ends_with("… and 484 more") && text.len() < 8_000, "{} bytes", text.len());
}

#[test]
fn the_definitions_schema_counts_before_the_calls_and_the_parents() {
    for (definition, call, parent, expected) in [
        (Some("a"), Some("b"), Some("c"), Some((SchemaSource::Agent, "a"))),
        (None, Some("b"), Some("c"), Some((SchemaSource::Call, "b"))),
        (None, None, Some("c"), Some((SchemaSource::Parent, "c"))),
        (None, None, None, None),
    ] {
        assert_eq!(effective(definition, call, parent), expected);
    }
}

/// Type definitions of every form.
fn typedefs() -> Vec<Value> {
    vec![
        json!({"optionalProperties": {"a": {}}}),
        json!({"elements": {"type": "int8", "nullable": true}}),
        json!({"values": {"type": "float64"}}),
        json!({"properties": {"a": {"type": "uint8"}}, "optionalProperties": {"b": {"type": "boolean"}}}),
        json!({"properties": {"a": {"enum": ["a", "b"]}}, "additionalProperties": true}),
        json!({"discriminator": "a", "mapping": {"a": {"properties": {"b": {"type": "int8"}}}, "b": {"properties": {}}}}),
        json!({"definitions": {"x/y~": {"optionalProperties": {"a": {"ref": "x/y~", "nullable": true}}}}, "ref": "x/y~"}),
    ]
}

fn data() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-300..300_i64).prop_map(Value::from),
        Just(json!(1.5)),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_type_definition_and_its_translation_agree(data in data()) {
        for document in typedefs() {
            let schema = schema(&document);
            let translated = jsonschema::validator_for(schema.document()).unwrap();
            prop_assert_eq!(schema.validate(&data).is_ok(), translated.is_valid(&data), "{} on {}", document, data);
        }
    }
}
