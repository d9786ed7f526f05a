//! `submit_result`: how a worker hands in its result. It acts on the run, so the loop performs it; what it takes and what a
//! call means is decided here.

use serde_json::{Map, Value, json};

use crate::{
    model::ToolSpec,
    react::Check,
    schema::Schema,
    tool::{Error, name},
};

const DESCRIPTION: &str = "Hands in the result of the task and ends it. Call it once, when everything is done: with `data`, or \
    with `error` when the task cannot be done, saying why.";

/// What a call hands in.
#[derive(Clone, Debug, PartialEq)]
pub enum Submitted {
    /// The result. It fits the schema where there is one.
    Data(Value),
    /// Data that does not fit, and what the model is told of it.
    Unfit { data: Value, violations: String },
    /// The task cannot be done, and why.
    Error(String),
}

/// The tool as a model is told of it. With a schema, `data` has to fit it.
pub fn spec(schema: Option<&Schema>) -> ToolSpec {
    let (data, description) = match schema {
        Some(schema) => (
            schema.embedded("/properties/data"),
            format!("{DESCRIPTION} `data` has to fit its schema exactly."),
        ),
        None => (json!({"description": "the result: text or any JSON"}), DESCRIPTION.to_owned()),
    };
    ToolSpec {
        name: name::SUBMIT_RESULT.to_owned(),
        description,
        input_schema: json!({
            "type": "object",
            "properties": {
                "data": data,
                "error": {"type": "string", "description": "why the task cannot be done"},
            },
            "additionalProperties": false,
        }),
    }
}

/// Reads a call. Models often send an object's fields without `data` around them, or JSON as text; either is taken if it
/// fits the schema.
pub fn read(check: Option<&Check<'_>>, arguments: &Value) -> Result<Submitted, Error> {
    let inner = arguments.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let arguments = inner.as_ref().unwrap_or(arguments);
    let Value::Object(fields) = arguments else {
        return Err(refuse("the arguments are no JSON object"));
    };
    let is_bare = fields.keys().any(|key| !matches!(key.as_str(), "data" | "error"));
    if is_bare {
        return match check {
            Some(check) if check(arguments).is_ok() => Ok(Submitted::Data(arguments.clone())),
            Some(_) | None => Err(refuse("there are other fields than `data` and `error`")),
        };
    }
    match (fields.get("data"), error(fields)) {
        (None | Some(Value::Null), Some(error)) => Ok(Submitted::Error(error)),
        (Some(_), Some(_)) => Err(refuse("both `data` and `error` are given")),
        (Some(data), None) => Ok(judge(check, data)),
        (None, None) => Err(refuse("neither `data` nor `error` is given")),
    }
}

/// A reason that says something.
fn error(fields: &Map<String, Value>) -> Option<String> {
    match fields.get("error")? {
        Value::Null => None,
        Value::String(text) if text.trim().is_empty() => None,
        Value::String(text) => Some(text.trim().to_owned()),
        other => Some(other.to_string()),
    }
}

fn judge(check: Option<&Check<'_>>, data: &Value) -> Submitted {
    let Some(check) = check else { return Submitted::Data(data.clone()) };
    let Err(violations) = check(data) else { return Submitted::Data(data.clone()) };
    let inner = data.as_str().and_then(|text| serde_json::from_str(text).ok());
    match inner {
        Some(inner) if check(&inner).is_ok() => Submitted::Data(inner),
        Some(_) | None => Submitted::Unfit { data: data.clone(), violations },
    }
}

fn refuse(why: &str) -> Error {
    Error::Failed(format!(
        "`{}` was called wrongly: {why}. Send {{\"data\": …}} with the result, or {{\"error\": \"…\"}}",
        name::SUBMIT_RESULT
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Error, Submitted, read, spec};
    use crate::schema::Schema;

    fn read_with_schema(arguments: &Value) -> Result<Submitted, Error> {
        let schema = Schema::compile(
            r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#,
        )
        .unwrap();
        read(Some(&move |data| schema.validate(data).map_err(|violations| violations.to_string())), arguments)
    }

    #[test]
    fn data_or_error_is_handed_in() {
        for (arguments, submitted) in [
            (json!({"data": {"n": 1}}), Submitted::Data(json!({"n": 1}))),
            (json!({"data": {"n": 1}, "error": null}), Submitted::Data(json!({"n": 1}))),
            (json!({"data": {"n": 1}, "error": " "}), Submitted::Data(json!({"n": 1}))),
            (json!(r#"{"data": {"n": 1}}"#), Submitted::Data(json!({"n": 1}))),
            (json!({"data": r#"{"n": 1}"#}), Submitted::Data(json!({"n": 1}))),
            (json!({"n": 1}), Submitted::Data(json!({"n": 1}))),
            (json!({"error": " no disk "}), Submitted::Error("no disk".to_owned())),
            (json!({"error": {"code": 7}}), Submitted::Error(r#"{"code":7}"#.to_owned())),
            (json!({"data": null, "error": "no disk"}), Submitted::Error("no disk".to_owned())),
        ] {
            assert_eq!(read_with_schema(&arguments).unwrap(), submitted, "{arguments}");
        }
    }

    #[test]
    fn without_a_schema_anything_is_data() {
        for data in [json!("text"), json!(r#"{"n": 1}"#), json!([1]), Value::Null] {
            assert_eq!(read(None, &json!({"data": data})).unwrap(), Submitted::Data(data));
        }
    }

    #[test]
    fn what_does_not_fit_comes_back_with_the_violations() {
        let submitted = read_with_schema(&json!({"data": {"n": "x"}})).unwrap();
        let Submitted::Unfit { violations, .. } = submitted else { panic!("a text is no integer") };
        assert!(violations.contains("at `/n`"), "{violations}");
    }

    #[test]
    fn a_wrong_call_is_answered_with_the_mend() {
        for (arguments, because) in [
            (json!([1]), "no JSON object"),
            (json!("text"), "no JSON object"),
            (json!({}), "neither `data` nor `error`"),
            (json!({"error": ""}), "neither `data` nor `error`"),
            (json!({"data": 1, "error": "x"}), "both"),
            (json!({"result": 1}), "other fields"),
        ] {
            let message = read_with_schema(&arguments).unwrap_err().to_string();
            assert!(message.contains(because) && message.contains("{\"data\": …}"), "{arguments}: {message}");
        }
    }

    #[test]
    fn references_of_the_schema_still_hold_inside_the_tool() {
        let schema = Schema::compile(
            r##"{"type": "object", "properties": {"next": {"$ref": "#/$defs/link"}}, "$defs": {"link": {"$ref": "#"}}}"##,
        )
        .unwrap();

        let input = spec(Some(&schema)).input_schema;

        assert_eq!(input["properties"]["data"]["properties"]["next"]["$ref"], "#/properties/data/$defs/link");
        assert_eq!(input["properties"]["data"]["$defs"]["link"]["$ref"], "#/properties/data");
        let validator = jsonschema::validator_for(&input).unwrap();
        assert!(validator.is_valid(&json!({"data": {"next": {"next": {}}}})));
        assert!(!validator.is_valid(&json!({"data": {"next": {"next": 7}}})));
    }
}
