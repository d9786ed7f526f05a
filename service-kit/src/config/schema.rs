//! The JSON Schema of a configuration: known keys, defaults, what a value may be, and what to say where it is not.

use jsonschema::{ValidationError, error::ValidationErrorKind};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

use super::{
    Mistake, Origin,
    tree::{Tree, dotted, join},
    yaml,
};

/// A schema and its definitions.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    root: Value,
}

impl Schema {
    pub(super) fn of<C: JsonSchema>() -> Self {
        let generator = SchemaSettings::draft2020_12().into_generator();
        Self { root: generator.into_root_schema_for::<C>().to_value() }
    }

    pub(super) fn root(&self) -> &Value {
        &self.root
    }

    /// Puts in what is not given.
    pub(super) fn fill_defaults(&self, tree: &mut Tree) {
        let mut filled = Vec::new();
        self.fill(&self.root, &mut tree.value, String::new(), &mut filled);
        for pointer in filled {
            tree.origins.entry(pointer).or_insert(Origin::Default);
        }
    }

    /// Everything that is wrong with the values.
    pub(super) fn check(&self, tree: &Tree, mistakes: &mut Vec<Mistake>) {
        let validator = jsonschema::validator_for(&self.root).expect("a derived schema is a valid one");
        for error in validator.iter_errors(&tree.value) {
            self.explain(&error, tree, mistakes);
        }
    }

    /// A text from the environment or from a `${…}` as the value that its key accepts.
    pub(super) fn coerce(&self, pointer: &str, text: &str) -> Value {
        let as_text = Value::from(text);
        let Some(node) = self.at(pointer) else { return as_text };
        let mut schema = node.clone();
        if let (Some(map), Some(definitions)) = (schema.as_object_mut(), self.root.get("$defs")) {
            map.insert("$defs".to_owned(), definitions.clone());
        }
        let Ok(validator) = jsonschema::validator_for(&schema) else { return as_text };
        if validator.is_valid(&as_text) {
            return as_text;
        }
        yaml::parse(text)
            .map(|document| document.value)
            .ok()
            .filter(|value| validator.is_valid(value))
            .unwrap_or(as_text)
    }

    /// The keys that a struct has at a place; none for a map.
    pub(super) fn keys(&self, pointer: &str) -> Vec<String> {
        self.at(pointer).map(|node| self.properties(node)).unwrap_or_default()
    }

    /// True where the value at a place must not be shown.
    pub(super) fn is_secret(&self, pointer: &str) -> bool {
        self.at(pointer).is_some_and(|node| {
            self.branches(node).any(|branch| branch.get("writeOnly") == Some(&Value::Bool(true)))
        })
    }

    /// The schema of the value at a place.
    pub(super) fn at(&self, pointer: &str) -> Option<&Value> {
        pointer
            .split('/')
            .skip(1)
            .map(|part| part.replace("~1", "/").replace("~0", "~"))
            .try_fold(&self.root, |node, part| self.child(node, &part))
    }

    /// The schema behind a reference.
    pub(super) fn resolve<'a>(&'a self, node: &'a Value) -> &'a Value {
        let target =
            node.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        match target.and_then(|pointer| self.root.pointer(pointer)) {
            Some(target) => self.resolve(target),
            None => node,
        }
    }

    /// The schemas that a value may fit: itself, or each one of `anyOf`, `oneOf`, `allOf`.
    pub(super) fn branches<'a>(&'a self, node: &'a Value) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        let node = self.resolve(node);
        let nested = ["anyOf", "oneOf", "allOf"]
            .into_iter()
            .filter_map(|keyword| node.get(keyword).and_then(Value::as_array))
            .flatten()
            .flat_map(|branch| self.branches(branch));
        Box::new(std::iter::once(node).chain(nested))
    }

    /// What a schema accepts, in words.
    pub(super) fn describe(&self, node: &Value) -> String {
        let mut words: Vec<String> = Vec::new();
        for branch in self.branches(node) {
            for word in self.describe_one(branch) {
                if !words.contains(&word) {
                    words.push(word);
                }
            }
        }
        words.join(" or ")
    }

    fn describe_one(&self, node: &Value) -> Vec<String> {
        if let Some(value) = node.get("const") {
            return vec![format!("`{}`", plain(value))];
        }
        if let Some(values) = node.get("enum").and_then(Value::as_array) {
            return values
                .iter()
                .filter(|value| !value.is_null())
                .map(|value| format!("`{}`", plain(value)))
                .collect();
        }
        types(node).into_iter().filter_map(|name| self.describe_type(node, name)).collect()
    }

    fn describe_type(&self, node: &Value, name: &str) -> Option<String> {
        let nested = |keyword: &str| node.get(keyword).filter(|inner| inner.is_object());
        let text = match name {
            "string" if node.get("writeOnly").is_some() => "secret text".to_owned(),
            "string" if node.get("format") == Some(&Value::from("span")) => "duration".to_owned(),
            "string" if node.get("format") == Some(&Value::from("address")) => {
                "address such as `127.0.0.1:7401`".to_owned()
            }
            "string" => "text".to_owned(),
            "integer" => format!("whole number{}", bounds(node)),
            "number" => format!("number{}", bounds(node)),
            "boolean" => "true or false".to_owned(),
            "array" => match nested("items") {
                Some(items) if !self.properties(items).is_empty() => "list of sections".to_owned(),
                Some(items) => format!("list of {}", self.describe(items)),
                None => "list".to_owned(),
            },
            "object" => match nested("additionalProperties") {
                Some(values) if !self.properties(values).is_empty() => "map of sections".to_owned(),
                Some(values) => format!("map of {}", self.describe(values)),
                None => "section".to_owned(),
            },
            _ => return None,
        };
        Some(text)
    }

    fn fill(&self, node: &Value, value: &mut Value, pointer: String, filled: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for branch in self.branches(node) {
                    fill_properties(branch, map, &pointer, filled);
                }
                for (key, item) in map.iter_mut() {
                    if let Some(child) = self.child(node, key) {
                        self.fill(child, item, join(&pointer, key), filled);
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    if let Some(child) = self.child(node, &index.to_string()) {
                        self.fill(child, item, join(&pointer, &index.to_string()), filled);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn child<'a>(&'a self, node: &'a Value, part: &str) -> Option<&'a Value> {
        self.branches(node).find_map(|branch| {
            let property = branch.get("properties").and_then(|properties| properties.get(part));
            let entry = branch.get("additionalProperties").filter(|entry| entry.is_object());
            let item = branch.get("items").filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()));
            property.or(entry).or(item)
        })
    }

    fn properties(&self, node: &Value) -> Vec<String> {
        self.branches(node)
            .filter_map(|branch| branch.get("properties").and_then(Value::as_object))
            .flat_map(|properties| properties.keys().cloned())
            .collect()
    }

    fn explain(&self, error: &ValidationError<'_>, tree: &Tree, mistakes: &mut Vec<Mistake>) {
        let pointer = error.instance_path().to_string();
        if let ValidationErrorKind::AdditionalProperties { unexpected } = error.kind() {
            for key in unexpected {
                mistakes.push(tree.mistake(&join(&pointer, key), self.unknown(&pointer, key)));
            }
            return;
        }
        if let ValidationErrorKind::Required { property } = error.kind() {
            mistakes.push(tree.mistake(&join(&pointer, &plain(property)), "is required".to_owned()));
            return;
        }
        let expected = self.at(&pointer).map(|node| self.describe(node)).unwrap_or_default();
        let instance = error.instance();
        let found = match instance.as_ref() {
            Value::Object(_) => "a section".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::Null => "nothing".to_owned(),
            _ if self.is_secret(&pointer) => "this".to_owned(),
            scalar => format!("`{}`", plain(scalar)),
        };
        let message = match error.kind() {
            _ if expected == "duration" => format!("expected duration such as `15s` or `2h`, found {found}"),
            ValidationErrorKind::Pattern { pattern } if expected == "text" => {
                format!("expected text that matches `{pattern}`, found {found}")
            }
            _ if expected.is_empty() => error.masked().to_string(),
            _ => format!("expected {expected}, found {found}"),
        };
        mistakes.push(tree.mistake(&pointer, message));
    }

    fn unknown(&self, pointer: &str, key: &str) -> String {
        let known = self.keys(pointer);
        let nearest = known.iter().min_by_key(|candidate| {
            strsim::damerau_levenshtein(&candidate.to_lowercase(), &key.to_lowercase())
        });
        match nearest {
            Some(nearest) => format!("is not a key; did you mean `{}`?", dotted(&join(pointer, nearest))),
            None => "is not a key".to_owned(),
        }
    }
}

fn fill_properties(branch: &Value, map: &mut Map<String, Value>, pointer: &str, filled: &mut Vec<String>) {
    let properties = branch.get("properties").and_then(Value::as_object);
    for (key, property) in properties.into_iter().flatten() {
        if let Some(default) = property.get("default").filter(|_| !map.contains_key(key)) {
            map.insert(key.clone(), default.clone());
            filled.push(join(pointer, key));
        }
    }
}

/// The names of the JSON types that a schema allows by itself.
fn types(node: &Value) -> Vec<&str> {
    match node.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn bounds(node: &Value) -> String {
    match (node.get("minimum"), node.get("maximum")) {
        (Some(least), Some(most)) => format!(" from {least} to {most}"),
        (Some(least), None) if least.as_u64() != Some(0) => format!(" from {least}"),
        (None, Some(most)) => format!(" up to {most}"),
        _ => String::new(),
    }
}

/// A scalar without the quotes of JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
