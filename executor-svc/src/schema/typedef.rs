//! JSON Type Definition as JSON Schema, which is all that models and their servers understand.

use serde_json::{Map, Value, json};

/// Translates a valid type definition. The order of properties stays.
pub(super) fn to_json_schema(document: &Value) -> Value {
    let mut schema = form(document);
    if let (Some(definitions), Some(target)) = (fields(document, "definitions"), schema.as_object_mut()) {
        let definitions: Map<String, Value> =
            definitions.iter().map(|(name, definition)| (name.clone(), form(definition))).collect();
        target.insert("$defs".to_owned(), Value::Object(definitions));
    }
    schema
}

fn form(definition: &Value) -> Value {
    let mut schema = if let Some(name) = definition.get("ref").and_then(Value::as_str) {
        json!({"$ref": format!("#/$defs/{}", name.replace('~', "~0").replace('/', "~1"))})
    } else if let Some(kind) = definition.get("type").and_then(Value::as_str) {
        scalar(kind)
    } else if let Some(values) = definition.get("enum") {
        json!({"type": "string", "enum": values})
    } else if let Some(elements) = definition.get("elements") {
        json!({"type": "array", "items": form(elements)})
    } else if let Some(values) = definition.get("values") {
        json!({"type": "object", "additionalProperties": form(values)})
    } else if let (Some(tag), Some(mapping)) =
        (definition.get("discriminator").and_then(Value::as_str), fields(definition, "mapping"))
    {
        let variants: Vec<Value> =
            mapping.iter().map(|(value, variant)| record(variant, Some((tag, value.as_str())))).collect();
        json!({"type": "object", "required": [tag], "oneOf": variants})
    } else if definition.get("properties").is_some() || definition.get("optionalProperties").is_some() {
        record(definition, None)
    } else {
        json!({})
    };

    let is_nullable = definition.get("nullable").and_then(Value::as_bool).unwrap_or(false);
    if is_nullable && schema.as_object().is_some_and(|object| !object.is_empty()) {
        schema = json!({"anyOf": [schema, {"type": "null"}]});
    }
    if let (Some(description), Some(target)) = (describe(definition), schema.as_object_mut()) {
        target.insert("description".to_owned(), description);
    }
    schema
}

/// Properties, with the tag of a variant among them where it is one.
fn record(definition: &Value, tag: Option<(&str, &str)>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    if let Some((name, value)) = tag {
        properties.insert(name.to_owned(), json!({"const": value}));
        required.push(name.to_owned());
    }
    for (name, property) in fields(definition, "properties").into_iter().flatten() {
        properties.insert(name.clone(), form(property));
        required.push(name.clone());
    }
    for (name, property) in fields(definition, "optionalProperties").into_iter().flatten() {
        properties.insert(name.clone(), form(property));
    }
    let is_open = definition.get("additionalProperties").and_then(Value::as_bool).unwrap_or(false);
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": is_open,
    })
}

fn scalar(kind: &str) -> Value {
    let whole =
        |minimum: i64, maximum: i64| json!({"type": "integer", "minimum": minimum, "maximum": maximum});
    match kind {
        "float32" | "float64" => json!({"type": "number"}),
        "int8" => whole(i8::MIN.into(), i8::MAX.into()),
        "uint8" => whole(0, u8::MAX.into()),
        "int16" => whole(i16::MIN.into(), i16::MAX.into()),
        "uint16" => whole(0, u16::MAX.into()),
        "int32" => whole(i32::MIN.into(), i32::MAX.into()),
        "uint32" => whole(0, u32::MAX.into()),
        "timestamp" => json!({"type": "string", "format": "date-time"}),
        same => json!({"type": same}),
    }
}

fn describe(definition: &Value) -> Option<Value> {
    definition.pointer("/metadata/description").filter(|description| description.is_string()).cloned()
}

fn fields<'a>(definition: &'a Value, keyword: &str) -> Option<&'a Map<String, Value>> {
    definition.get(keyword).and_then(Value::as_object)
}
