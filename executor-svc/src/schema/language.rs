//! Which of the two languages a schema is written in, and where schemas stand inside a schema.

use serde_json::Value;

/// The two languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    JsonSchema,
    Typedef,
}

/// Keywords that only type definitions have.
const TYPEDEF_ONLY: [&str; 5] = ["optionalProperties", "elements", "values", "mapping", "ref"];

/// Keywords that type definitions share with OpenAPI's dialect of JSON Schema.
const TYPEDEF_OR_OPENAPI: [&str; 2] = ["nullable", "discriminator"];

/// Types that only type definitions have.
const TYPEDEF_TYPES: [&str; 9] =
    ["float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "timestamp"];

/// Keywords whose value is a schema or a list of schemas.
const SCHEMAS: [&str; 17] = [
    "additionalProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "elements",
    "values",
];

/// Keywords whose value maps names to schemas.
const NAMED_SCHEMAS: [&str; 8] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "dependencies",
    "$defs",
    "definitions",
    "optionalProperties",
    "mapping",
];

/// JSON Type Definition where a keyword occurs that only it has, or where `properties` stands without `type` and `$schema`
/// at the top. A document that names its dialect is JSON Schema.
pub(super) fn recognise(document: &Value) -> Language {
    let Some(top) = document.as_object() else { return Language::JsonSchema };
    if top.contains_key("$schema") {
        return Language::JsonSchema;
    }
    let bare_properties = top.contains_key("properties") && !top.contains_key("type");
    let shared =
        occurs(document, &|schema| TYPEDEF_OR_OPENAPI.iter().any(|keyword| schema.get(keyword).is_some()));
    match bare_properties
        || occurs(document, &is_typedef_only)
        || (shared && super::type_definition(document).is_ok())
    {
        true => Language::Typedef,
        false => Language::JsonSchema,
    }
}

/// The schemas that stand directly in a schema.
pub(super) fn parts(schema: &Value) -> impl Iterator<Item = &Value> {
    let at = move |keyword: &&str| schema.get(*keyword);
    let plain = SCHEMAS.iter().filter_map(at).flat_map(|value| match value {
        Value::Array(schemas) => schemas.iter().collect(),
        other => vec![other],
    });
    let named = NAMED_SCHEMAS.iter().filter_map(at).filter_map(Value::as_object).flat_map(|map| map.values());
    plain.chain(named).filter(|part| part.is_object())
}

/// The same, to be changed.
pub(super) fn parts_mut(schema: &mut Value) -> impl Iterator<Item = &mut Value> {
    let fields = schema.as_object_mut().into_iter().flat_map(|object| object.iter_mut());
    let parts = fields.flat_map(|(keyword, value)| -> Vec<&mut Value> {
        if NAMED_SCHEMAS.contains(&keyword.as_str()) {
            return value.as_object_mut().into_iter().flat_map(|map| map.values_mut()).collect();
        }
        match value {
            _ if !SCHEMAS.contains(&keyword.as_str()) => Vec::new(),
            Value::Array(schemas) => schemas.iter_mut().collect(),
            other => vec![other],
        }
    });
    parts.filter(|part| part.is_object())
}

fn occurs(schema: &Value, is_wanted: &dyn Fn(&Value) -> bool) -> bool {
    is_wanted(schema) || parts(schema).any(|part| occurs(part, is_wanted))
}

fn is_typedef_only(schema: &Value) -> bool {
    TYPEDEF_ONLY.iter().any(|keyword| schema.get(keyword).is_some())
        || schema.get("type").and_then(Value::as_str).is_some_and(|kind| TYPEDEF_TYPES.contains(&kind))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Language, recognise};

    #[track_caller]
    fn check(document: Value, language: Language) {
        assert_eq!(recognise(&document), language, "{document}");
    }

    #[test]
    fn a_keyword_that_only_type_definitions_have_decides() {
        check(json!({"elements": {"type": "string"}}), Language::Typedef);
        check(json!({"optionalProperties": {}}), Language::Typedef);
        check(json!({"values": {"type": "string"}}), Language::Typedef);
        check(json!({"definitions": {"a": {}}, "ref": "a"}), Language::Typedef);
        check(json!({"discriminator": "kind", "mapping": {}}), Language::Typedef);
        check(json!({"type": "uint8"}), Language::Typedef);
        check(json!({"type": "string", "nullable": true}), Language::Typedef);
        check(json!({"properties": {"a": {"elements": {}}}, "type": "object"}), Language::Typedef);
    }

    #[test]
    fn properties_without_a_type_are_a_type_definition() {
        check(json!({"properties": {"a": {"type": "string"}}}), Language::Typedef);
        check(json!({"type": "object", "properties": {"a": {"type": "string"}}}), Language::JsonSchema);
        check(
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {}}),
            Language::JsonSchema,
        );
    }

    #[test]
    fn everything_else_is_json_schema() {
        for document in [
            json!({}),
            json!(true),
            json!({"type": "string"}),
            json!({"enum": ["a"]}),
            json!({"type": "object", "nullable": true, "properties": {}}),
            // Names of properties are no keywords.
            json!({"type": "object", "properties": {"values": {"type": "string"}, "ref": {"type": "string"}}}),
            json!({"const": {"elements": 1}}),
        ] {
            check(document, Language::JsonSchema);
        }
    }
}
