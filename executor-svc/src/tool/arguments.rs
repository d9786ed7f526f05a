//! A tool's arguments: what the model sent is mended where only one meaning is possible, checked against the tool's own
//! schema, and otherwise answered with what to send instead.

use jsonschema::error::ValidationErrorKind;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Error, limits};
use crate::model::ToolSpec;

/// Most mistakes named in one answer.
const MISTAKES_MAX: usize = 8;

/// Longest text of one mistake in bytes: it may repeat what the model sent.
const MISTAKE_MAX: usize = 300;

/// How alike an unknown argument and a known one must be for the one to be offered for the other.
const SIMILAR: f64 = 0.75;

/// The arguments one tool takes.
pub(super) struct Arguments {
    spec: ToolSpec,
    validator: jsonschema::Validator,
    synonyms: &'static [(&'static str, &'static str)],
}

impl Arguments {
    /// `properties` is an object of JSON Schemas. `synonyms` are pairs of a name that models use and the one it stands for.
    pub(super) fn new(
        name: &str,
        description: &str,
        properties: Value,
        required: &[&str],
        synonyms: &'static [(&'static str, &'static str)],
    ) -> Self {
        let input_schema = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        let validator =
            jsonschema::validator_for(&input_schema).expect("schemas of built-in tools are constants");
        let spec = ToolSpec { name: name.to_owned(), description: description.to_owned(), input_schema };
        Self { spec, validator, synonyms }
    }

    pub(super) fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Reads a call's arguments.
    pub(super) fn parse<T: DeserializeOwned>(&self, given: &Value) -> Result<T, Error> {
        let mended = self.mend(given);
        let mistakes = self.mistakes(&mended);
        if !mistakes.is_empty() {
            return Err(self.refuse(&mistakes));
        }
        serde_json::from_value(mended).map_err(|error| self.refuse(&[error.to_string()]))
    }

    /// Takes away what is only spelt differently: an object as text, another name for an argument, a number as text, a
    /// `null` for an argument that may be left out.
    fn mend(&self, given: &Value) -> Value {
        let object = match given {
            Value::Object(object) => object.clone(),
            Value::Null => Map::new(),
            Value::String(text) => match serde_json::from_str(text) {
                Ok(Value::Object(object)) => object,
                Ok(_) | Err(_) => return given.clone(),
            },
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => return given.clone(),
        };

        let mut mended = Map::new();
        for (key, value) in &object {
            let known = self.known(key, &object);
            let value = self.property(known).map_or_else(|| value.clone(), |schema| convert(schema, value));
            if !(value.is_null() && self.property(known).is_some() && !self.is_required(known)) {
                mended.insert(known.to_owned(), value);
            }
        }
        Value::Object(mended)
    }

    /// The argument that a key stands for: itself, unless it is another name for one that is not given otherwise.
    fn known<'a>(&self, key: &'a str, object: &Map<String, Value>) -> &'a str {
        if self.property(key).is_some() {
            return key;
        }
        let target =
            |key: &str| self.synonyms.iter().find(|(name, _)| *name == key).map(|(_, target)| *target);
        let Some(meant) = target(key) else { return key };
        let rivals = object.keys().filter(|other| *other == meant || target(other) == Some(meant)).count();
        match rivals {
            1 => meant,
            _ => key,
        }
    }

    fn mistakes(&self, mended: &Value) -> Vec<String> {
        let Value::Object(object) = mended else {
            return vec!["they are no JSON object".to_owned()];
        };
        let mut mistakes: Vec<String> = object
            .keys()
            .filter(|key| self.property(key).is_none())
            .map(|key| match self.near(key, object) {
                Some(near) => format!("there is no argument `{key}`, did you mean `{near}`?"),
                None => format!("there is no argument `{key}`"),
            })
            .collect();
        // Unknown names are named above, in better words.
        let others = self
            .validator
            .iter_errors(mended)
            .filter(|error| !matches!(error.kind(), ValidationErrorKind::AdditionalProperties { .. }));
        mistakes.extend(others.map(|error| {
            let place = error.instance_path().to_string();
            match place.trim_start_matches('/') {
                "" => error.to_string(),
                argument => format!("`{argument}`: {error}"),
            }
        }));
        mistakes
    }

    fn near(&self, key: &str, object: &Map<String, Value>) -> Option<String> {
        if let Some((_, target)) = self.synonyms.iter().find(|(name, _)| *name == key) {
            return Some((*target).to_owned());
        }
        self.properties()
            .keys()
            .filter(|known| !object.contains_key(*known))
            .map(|known| (strsim::jaro_winkler(known, key), known))
            .filter(|(score, _)| *score >= SIMILAR)
            .max_by(|left, right| left.0.total_cmp(&right.0))
            .map(|(_, known)| known.clone())
    }

    /// Says what is wrong and what the tool takes.
    fn refuse(&self, mistakes: &[String]) -> Error {
        let mut text = format!("the arguments of `{}` do not fit:", self.spec.name);
        for mistake in mistakes.iter().take(MISTAKES_MAX) {
            text.push_str("\n- ");
            text.push_str(&limits::start(mistake, MISTAKE_MAX));
        }
        text.push_str("\nIt takes:");
        for (name, schema) in self.properties() {
            let kind = schema["type"].as_str().unwrap_or("any value");
            let need = if self.is_required(name) { ", required" } else { "" };
            let about = schema["description"].as_str().unwrap_or_default();
            text.push_str(&format!("\n- `{name}` ({kind}{need}): {about}"));
        }
        Error::Failed(text)
    }

    fn properties(&self) -> &Map<String, Value> {
        self.spec.input_schema["properties"].as_object().expect("made from an object in `new`")
    }

    fn property(&self, name: &str) -> Option<&Value> {
        self.properties().get(name)
    }

    fn is_required(&self, name: &str) -> bool {
        self.spec.input_schema["required"].as_array().is_some_and(|names| names.iter().any(|it| it == name))
    }
}

/// A scalar as text becomes what the schema wants, where it reads as exactly that.
fn convert(schema: &Value, value: &Value) -> Value {
    let wanted = schema["type"].as_str().unwrap_or_default();
    match (wanted, value) {
        ("integer", Value::String(text)) => {
            text.trim().parse::<i64>().map_or_else(|_| value.clone(), Value::from)
        }
        // Models that know one number type only send `10.0`.
        ("integer", Value::Number(number)) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 9e15 => Value::from(float as i64),
            Some(_) | None => value.clone(),
        },
        ("boolean", Value::String(text)) => {
            text.trim().to_ascii_lowercase().parse::<bool>().map_or_else(|_| value.clone(), Value::from)
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::{Arguments, Error};

    #[derive(Debug, PartialEq, Deserialize)]
    struct Taken {
        path: String,
        limit: Option<u32>,
        whole: Option<bool>,
    }

    fn arguments() -> Arguments {
        Arguments::new(
            "look",
            "Looks.",
            json!({
                "path": {"type": "string", "description": "where"},
                "limit": {"type": "integer", "minimum": 1, "description": "how much"},
                "whole": {"type": "boolean", "description": "all of it"},
            }),
            &["path"],
            &[("file_path", "path"), ("file", "path")],
        )
    }

    #[track_caller]
    fn accepts(given: Value, limit: Option<u32>, whole: Option<bool>) {
        let taken: Taken = arguments().parse(&given).unwrap();
        assert_eq!(taken, Taken { path: "a".to_owned(), limit, whole }, "{given}");
    }

    #[track_caller]
    fn refuses(given: Value, because: &str) {
        let result: Result<Taken, Error> = arguments().parse(&given);
        let message = result.unwrap_err().to_string();
        assert!(message.contains(because), "{given}: {message}");
        assert!(message.contains("- `path` (string, required): where"), "{message}");
    }

    #[test]
    fn what_can_only_mean_one_thing_is_taken() {
        accepts(json!({"path": "a"}), None, None);
        accepts(json!({"path": "a", "limit": 3, "whole": true}), Some(3), Some(true));
        accepts(json!({"path": "a", "limit": "3"}), Some(3), None);
        accepts(json!({"path": "a", "limit": 3.0}), Some(3), None);
        accepts(json!({"path": "a", "whole": "True"}), None, Some(true));
        accepts(json!({"path": "a", "limit": null}), None, None);
        accepts(json!({"file_path": "a"}), None, None);
        accepts(json!(r#"{"path": "a"}"#), None, None);
    }

    #[test]
    fn anything_else_is_answered_with_the_mend() {
        refuses(json!({}), "\"path\" is a required property");
        refuses(json!(null), "\"path\" is a required property");
        refuses(json!({"path": null}), "`path`: null is not of type \"string\"");
        refuses(
            json!({"path": "a", "file_path": "b"}),
            "there is no argument `file_path`, did you mean `path`?",
        );
        refuses(json!({"file": "a", "file_path": "b"}), "there is no argument `file`");
        refuses(json!({"path": "a", "limits": 3}), "there is no argument `limits`, did you mean `limit`?");
        refuses(json!({"path": "a", "colour": 3}), "there is no argument `colour`\n");
        refuses(json!({"path": "a", "limit": "three"}), "`limit`: \"three\" is not of type \"integer\"");
        refuses(json!({"path": "a", "limit": 2.5}), "`limit`: 2.5 is not of type \"integer\"");
        refuses(json!({"path": "a", "limit": 0}), "`limit`: 0 is less than the minimum of 1");
        refuses(json!({"path": ["a"]}), "`path`: [\"a\"] is not of type \"string\"");
        refuses(json!([1]), "they are no JSON object");
        refuses(json!("a"), "they are no JSON object");
    }

    #[test]
    fn an_answer_stays_short_whatever_was_sent() {
        let given = json!({"path": vec!["x".repeat(10_000); 50]});
        let message = arguments().parse::<Taken>(&given).unwrap_err().to_string();
        assert!(message.len() < 1_000, "{} bytes", message.len());
    }
}
