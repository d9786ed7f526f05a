//! Schemas of results: JSON Schema 2020-12 or JSON Type Definition, recognised, compiled once, and closed to the outside.

mod cost;
mod language;
mod typedef;
mod violations;

use serde_json::Value;

pub use self::violations::Violations;
use self::{
    cost::Cost,
    language::{Language, parts},
};
use crate::worker::SchemaSource;

/// Largest schema in bytes. A front matter has at most 64 KiB.
const TEXT_MAX: usize = 64 * 1024;

/// Deepest nesting of a schema.
const DEPTH_MAX: usize = 64;

/// Most memory one `pattern` may be compiled to. Matching is linear in the text, whatever the pattern.
const PATTERN_MAX: usize = 1024 * 1024;

/// Deepest nesting of data that is checked against a type definition: it may refer to itself without end.
const TYPEDEF_DEPTH_MAX: usize = 128;

/// A compiled schema.
pub struct Schema {
    text: String,
    /// As JSON Schema, whatever it was written in.
    document: Value,
    checker: Checker,
}

enum Checker {
    JsonSchema(Box<jsonschema::Validator>, Cost),
    /// With its document as written, for the words of violations.
    Typedef(Box<jtd::Schema>, Value),
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the schema is not JSON: {0}")]
    NotJson(String),
    #[error("the schema has more than {TEXT_MAX} bytes")]
    TooLarge,
    #[error("the schema is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("the schema refers to `{0}`, which is outside of it")]
    OutsideReference(String),
    #[error("the schema refers to `{0}`, which is not there")]
    DanglingReference(String),
    #[error("the schema unfolds to more than {} parts", cost::PARTS_MAX)]
    TooCostly,
    #[error("no JSON Schema: {0}")]
    JsonSchema(String),
    #[error("no JSON Type Definition: {0}")]
    Typedef(String),
}

/// The schema that counts, and whose it is: the definition's, the call's, the parent session's.
pub fn effective<'a>(
    definition: Option<&'a str>,
    call: Option<&'a str>,
    parent: Option<&'a str>,
) -> Option<(SchemaSource, &'a str)> {
    let of = |source, text: Option<&'a str>| text.map(|text| (source, text));
    of(SchemaSource::Agent, definition)
        .or_else(|| of(SchemaSource::Call, call))
        .or_else(|| of(SchemaSource::Parent, parent))
}

impl Schema {
    /// Reads a schema from JSON text.
    pub fn compile(text: &str) -> Result<Self, Fault> {
        if text.len() > TEXT_MAX {
            return Err(Fault::TooLarge);
        }
        let document: Value = serde_json::from_str(text).map_err(|error| match error.to_string() {
            message if message.starts_with("recursion limit") => Fault::TooDeep,
            message => Fault::NotJson(message),
        })?;
        if depth(&document) > DEPTH_MAX {
            return Err(Fault::TooDeep);
        }
        let (checker, document) = match language::recognise(&document) {
            Language::JsonSchema => {
                check_references(&document, &document)?;
                let cost = cost::weigh(&document)?;
                (json_schema(&document, cost)?, document)
            }
            Language::Typedef => (type_definition(&document)?, typedef::to_json_schema(&document)),
        };
        Ok(Self { text: text.to_owned(), document, checker })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As JSON Schema, to be shown to a model.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// As JSON Schema that stands at `pointer` in another document: its references lead to the same places.
    pub fn embedded(&self, pointer: &str) -> Value {
        let mut document = self.document.clone();
        // Dialect and identity belong to a whole document.
        if let Some(root) = document.as_object_mut() {
            root.shift_remove("$schema");
            root.shift_remove("$id");
        }
        move_references(&mut document, pointer);
        document
    }

    /// Checks data. `Err` says what does not fit.
    pub fn validate(&self, data: &Value) -> Result<(), Violations> {
        match &self.checker {
            // The verdict is cheap. Where the reasons may not be, it has to do without them.
            Checker::JsonSchema(validator, _) if validator.is_valid(data) => Ok(()),
            Checker::JsonSchema(validator, cost) if cost.permits_reasons(depth(data)) => {
                Violations::of_json_schema(validator.iter_errors(data))
            }
            Checker::JsonSchema(_, _) => Err(Violations::unexplained()),
            Checker::Typedef(schema, written) => {
                let options = jtd::ValidateOptions::new()
                    .with_max_depth(TYPEDEF_DEPTH_MAX)
                    .with_max_errors(violations::SHOWN_MAX + 1);
                Violations::of_typedef(jtd::validate(schema, data, options), data, written)
            }
        }
    }
}

fn json_schema(document: &Value, cost: Cost) -> Result<Checker, Fault> {
    let pattern = jsonschema::PatternOptions::regex().size_limit(PATTERN_MAX).dfa_size_limit(PATTERN_MAX);
    jsonschema::options()
        .with_pattern_options(pattern)
        .build(document)
        .map(|validator| Checker::JsonSchema(Box::new(validator), cost))
        .map_err(|error| Fault::JsonSchema(violations::of_error(&error)))
}

fn type_definition(document: &Value) -> Result<Checker, Fault> {
    let serde =
        serde_json::from_value(document.clone()).map_err(|error| Fault::Typedef(error.to_string()))?;
    let schema = jtd::Schema::from_serde_schema(serde).map_err(|error| Fault::Typedef(error.to_string()))?;
    schema.validate().map_err(|error| Fault::Typedef(error.to_string()))?;
    Ok(Checker::Typedef(Box::new(schema), document.clone()))
}

/// References lead into the document itself: to a fragment, or to an identity that the document gives.
fn check_references(schema: &Value, document: &Value) -> Result<(), Fault> {
    if let Some(object) = schema.as_object() {
        for key in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(reference) = object.get(key).and_then(Value::as_str) else { continue };
            let base = reference.split('#').next().unwrap_or_default();
            if !base.is_empty() && !has_identity(document, base) {
                return Err(Fault::OutsideReference(reference.to_owned()));
            }
        }
    }
    parts(schema).try_for_each(|part| check_references(part, document))
}

fn has_identity(schema: &Value, identity: &str) -> bool {
    schema.get("$id").and_then(Value::as_str) == Some(identity)
        || parts(schema).any(|part| has_identity(part, identity))
}

fn move_references(schema: &mut Value, pointer: &str) {
    if let Some(reference) = schema.get_mut("$ref")
        && let Some(moved) = reference.as_str().and_then(|text| moved(text, pointer))
    {
        *reference = Value::String(moved);
    }
    // An embedded resource has a base of its own.
    for part in language::parts_mut(schema).filter(|part| part.get("$id").is_none()) {
        move_references(part, pointer);
    }
}

fn moved(reference: &str, pointer: &str) -> Option<String> {
    match reference.strip_prefix('#')? {
        "" => Some(format!("#{pointer}")),
        rest if rest.starts_with('/') => Some(format!("#{pointer}{rest}")),
        // An anchor is found wherever it stands.
        _ => None,
    }
}

fn depth(value: &Value) -> usize {
    fn of<'a>(values: impl Iterator<Item = &'a Value>) -> usize {
        1 + values.map(depth).max().unwrap_or_default()
    }
    match value {
        Value::Object(object) => of(object.values()),
        Value::Array(array) => of(array.iter()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests;
