//! `submit_result`: how a worker hands in its result. It acts on the run, so the loop performs it; what it takes and what a
//! call means is decided here.

use serde_json::{Map, Value, json};

use crate::{
    model::ToolSpec,
    schema::{Schema, Violations},
    tool::{Error, name},
};

const DESCRIPTION: &str = "Hands in the result of the task and ends it. Call it once, when everything is done: with `data`, or \
    with `error` when the task cannot be done, saying why.";

/// What a call hands in.
#[derive(Clone, Debug, PartialEq)]
pub enum Submission {
    /// The result. It fits the schema where there is one.
    Data(Value),
    /// Data that does not fit. The text of the violations goes back to the model.
    Rejected { data: Value, violations: Violations },
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

/// Reads a call. Where the schema allows an object, models often send its fields without `data` around them; that is taken
/// if it fits.
pub fn parse(schema: Option<&Schema>, arguments: &Value) -> Result<Submission, Error> {
    let unwrapped;
    let arguments = match arguments {
        Value::String(text) => match serde_json::from_str(text) {
            Ok(inner @ Value::Object(_)) => {
                unwrapped = inner;
                &unwrapped
            }
            Ok(_) | Err(_) => arguments,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => arguments,
    };
    let Value::Object(fields) = arguments else {
        return Err(refuse("the arguments are no JSON object"));
    };
    let only_known = fields.keys().all(|key| matches!(key.as_str(), "data" | "error"));
    match (given(fields, "data"), given(fields, "error")) {
        (Some(data), None) if only_known => Ok(check(schema, data)),
        (None, Some(Value::String(error))) if only_known && !error.trim().is_empty() => {
            Ok(Submission::Error(error.trim().to_owned()))
        }
        (Some(_), Some(_)) if only_known => Err(refuse("both `data` and `error` are given")),
        // `null` is a result of its own.
        (None, None) if only_known && fields.contains_key("data") => Ok(check(schema, &Value::Null)),
        (None, None) if fields.is_empty() => Err(refuse("neither `data` nor `error` is given")),
        (_, _) if schema.is_some_and(|schema| schema.validate(arguments).is_ok()) => {
            Ok(Submission::Data(arguments.clone()))
        }
        (_, _) if !only_known => Err(refuse("there are other fields than `data` and `error`")),
        (_, _) => Err(refuse("`error` has to be a text that says why")),
    }
}

fn given<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

/// Data that is JSON as text, where the schema wants no text, is read.
fn check(schema: Option<&Schema>, data: &Value) -> Submission {
    let Some(schema) = schema else { return Submission::Data(data.clone()) };
    let violations = match schema.validate(data) {
        Ok(()) => return Submission::Data(data.clone()),
        Err(violations) => violations,
    };
    let inner = data.as_str().and_then(|text| serde_json::from_str(text).ok());
    match inner {
        Some(inner) if schema.validate(&inner).is_ok() => Submission::Data(inner),
        Some(_) | None => Submission::Rejected { data: data.clone(), violations },
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

    use super::{Submission, parse, spec};
    use crate::schema::Schema;

    fn schema() -> Schema {
        Schema::compile(r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#)
            .unwrap()
    }

    #[test]
    fn data_or_error_is_handed_in() {
        let schema = schema();
        for (arguments, submission) in [
            (json!({"data": {"n": 1}}), Submission::Data(json!({"n": 1}))),
            (json!({"data": {"n": 1}, "error": null}), Submission::Data(json!({"n": 1}))),
            (json!(r#"{"data": {"n": 1}}"#), Submission::Data(json!({"n": 1}))),
            (json!({"data": r#"{"n": 1}"#}), Submission::Data(json!({"n": 1}))),
            (json!({"n": 1}), Submission::Data(json!({"n": 1}))),
            (json!({"error": " no disk "}), Submission::Error("no disk".to_owned())),
            (json!({"data": null, "error": "no disk"}), Submission::Error("no disk".to_owned())),
        ] {
            assert_eq!(parse(Some(&schema), &arguments).unwrap(), submission, "{arguments}");
        }
    }

    #[test]
    fn without_a_schema_anything_is_data() {
        for data in [json!("text"), json!(r#"{"n": 1}"#), json!([1]), Value::Null] {
            assert_eq!(parse(None, &json!({"data": data})).unwrap(), Submission::Data(data));
        }
    }

    #[test]
    fn what_does_not_fit_comes_back_with_the_violations() {
        let Submission::Rejected { violations, .. } =
            parse(Some(&schema()), &json!({"data": {"n": "x"}})).unwrap()
        else {
            panic!("a text is no integer");
        };
        assert!(violations.to_string().contains("`/n`"), "{violations}");
    }

    #[test]
    fn a_wrong_call_is_answered_with_the_mend() {
        for (arguments, because) in [
            (json!([1]), "no JSON object"),
            (json!({}), "neither `data` nor `error`"),
            (json!({"data": 1, "error": "x"}), "both"),
            (json!({"error": 7}), "has to be a text"),
            (json!({"error": " "}), "has to be a text"),
            (json!({"result": 1}), "other fields"),
        ] {
            let message = parse(Some(&schema()), &arguments).unwrap_err().to_string();
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
