//! What of some data does not fit, as short text for a model.

use std::fmt;

use jtd::{ValidateError, ValidationErrorIndicator};
use serde_json::Value;

use crate::tool::limits;

/// Most violations told in one answer: a model mends these first and asks again.
pub(super) const SHOWN_MAX: usize = 16;

/// Longest text of one violation in bytes: it may repeat a part of the data.
const TEXT_MAX: usize = 240;

/// At least one thing that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations {
    /// Each with its path, such as ``at `/files/0`: …``.
    shown: Vec<String>,
    /// How many more there are, counted up to a bound.
    more: usize,
}

impl Violations {
    pub(super) fn of_json_schema<'a>(
        mut errors: impl Iterator<Item = jsonschema::ValidationError<'a>>,
    ) -> Result<(), Self> {
        let shown: Vec<String> = errors.by_ref().take(SHOWN_MAX).map(|error| of_error(&error)).collect();
        match shown.is_empty() {
            true => Ok(()),
            false => Err(Self { shown, more: errors.take(1_000).count() }),
        }
    }

    pub(super) fn unexplained() -> Self {
        let reason = "the data does not fit; the schema refers to itself too often to say where";
        Self { shown: vec![reason.to_owned()], more: 0 }
    }

    pub(super) fn of_typedef(
        result: Result<Vec<ValidationErrorIndicator<'_>>, ValidateError>,
        data: &Value,
        document: &Value,
    ) -> Result<(), Self> {
        let errors = match result {
            Ok(errors) if errors.is_empty() => return Ok(()),
            Ok(errors) => errors,
            Err(ValidateError::MaxDepthExceeded) => {
                return Err(Self { shown: vec!["the data is nested too deep".to_owned()], more: 0 });
            }
        };
        let more = errors.len().saturating_sub(SHOWN_MAX);
        let shown =
            errors.into_iter().take(SHOWN_MAX).map(|error| of_indicator(error, data, document)).collect();
        Err(Self { shown, more })
    }
}

/// A violation of a JSON Schema. The data is repeated in it only where it is short.
pub(super) fn of_error(error: &jsonschema::ValidationError<'_>) -> String {
    let text = match error.to_string() {
        long if long.len() > TEXT_MAX => error.masked_with("it").to_string(),
        short => short,
    };
    place_and_text(&error.instance_path().to_string(), &text)
}

impl fmt::Display for Violations {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown.join("\n"))?;
        match self.more {
            0 => Ok(()),
            more => write!(formatter, "\n… and {more} more"),
        }
    }
}

fn place_and_text(place: &str, text: &str) -> String {
    match place {
        "" => limits::start(text, TEXT_MAX),
        place => format!("at `{}`: {}", limits::start(place, TEXT_MAX), limits::start(text, TEXT_MAX)),
    }
}

/// A type definition's validator only tells two paths; the words are made of what is found there.
fn of_indicator(error: ValidationErrorIndicator<'_>, data: &Value, document: &Value) -> String {
    let (instance, schema) = error.into_owned_paths();
    let found = data.pointer(&pointer(&instance)).unwrap_or(&Value::Null);
    let kind = kind_of(found);
    let text = match schema.iter().map(String::as_str).rev().take(2).collect::<Vec<_>>()[..] {
        ["type", ..] => match document_word(document, &schema) {
            Some(wanted) => format!("{found} is not of type `{wanted}`"),
            None => format!("{found} is of the wrong type"),
        },
        ["enum", ..] => format!("{found} is none of the values allowed"),
        ["elements", ..] => format!("an array is wanted, not {kind}"),
        ["values" | "optionalProperties", ..] => format!("an object is wanted, not {kind}"),
        ["properties", ..] => format!("an object is wanted, not {kind}"),
        [name, "properties"] => format!("`{name}` is missing"),
        ["discriminator", ..] => "the field that names the variant is missing or no text".to_owned(),
        ["mapping", ..] => format!("{found} is none of the variants"),
        [] | [_, ..] => "is not allowed here".to_owned(),
    };
    place_and_text(&pointer(&instance), &text)
}

/// The type a type definition names at a path.
fn document_word<'a>(document: &'a Value, schema: &[String]) -> Option<&'a str> {
    document.pointer(&pointer(schema)).and_then(Value::as_str)
}

fn pointer(tokens: &[String]) -> String {
    tokens.iter().map(|token| format!("/{}", token.replace('~', "~0").replace('/', "~1"))).collect()
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
