//! The reference of a configuration as Markdown, from the same schema that checks it.

use serde_json::Value;

use super::{Configuration, schema::Schema};

/// What introduces a service's part of the reference.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Such as `registry-svc`.
    pub title: &'static str,
    /// Paragraphs below the title.
    pub introduction: &'static str,
}

/// A table of all keys: what they accept, their default and their meaning.
pub fn reference<C: Configuration>(section: Section) -> String {
    let Section { title, introduction } = section;
    let schema = Schema::of::<C>();
    let mut text =
        format!("## {title}\n\n{introduction}\n\n| key | accepts | default | meaning |\n|---|---|---|---|\n");
    rows(&schema, schema.root(), "", &mut text);
    text
}

fn rows(schema: &Schema, node: &Value, prefix: &str, text: &mut String) {
    for branch in schema.branches(node) {
        let properties = branch.get("properties").and_then(Value::as_object);
        let required = branch.get("required").and_then(Value::as_array);
        for (name, property) in properties.into_iter().flatten() {
            let is_required = required.is_some_and(|names| names.iter().any(|other| other == name));
            row(schema, name, property, is_required, prefix, text);
        }
    }
}

fn row(schema: &Schema, name: &str, property: &Value, is_required: bool, prefix: &str, text: &mut String) {
    let key = format!("{prefix}{name}");
    let inner = schema
        .branches(property)
        .find(|branch| branch.get("properties").is_some())
        .map(|branch| (branch, format!("{key}.")));
    let entry = schema.branches(property).find_map(|branch| {
        let entry = branch.get("additionalProperties").or_else(|| branch.get("items"))?;
        let is_section = schema.branches(entry).any(|branch| branch.get("properties").is_some());
        let step = if branch.get("items").is_some() { "[]." } else { ".<name>." };
        is_section.then(|| (entry, format!("{key}{step}")))
    });
    if inner.is_none() {
        let accepts = schema.describe(property);
        let default = if is_required { "required".to_owned() } else { default(property) };
        let meaning = meaning(schema, property);
        text.push_str(&format!("| `{key}` | {accepts} | {default} | {meaning} |\n"));
    }
    if let Some((section, prefix)) = inner.or(entry) {
        rows(schema, section, &prefix, text);
    }
}

fn default(property: &Value) -> String {
    match property.get("default") {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::Object(map)) if map.is_empty() => "none".to_owned(),
        Some(Value::Array(items)) if items.is_empty() => "none".to_owned(),
        Some(Value::Object(_)) => "see below".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "empty".to_owned(),
        Some(Value::String(text)) => format!("`{text}`"),
        Some(value) => format!("`{value}`"),
    }
}

fn meaning(schema: &Schema, property: &Value) -> String {
    let own = property.get("description").and_then(Value::as_str);
    let described = own.or_else(|| schema.resolve(property).get("description").and_then(Value::as_str));
    described.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
