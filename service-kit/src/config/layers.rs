//! The layers of a configuration: a file, the environment, flags, and `${…}` inside their values.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    Environment, Flag, Mistake, Origin,
    schema::Schema,
    tree::{Tree, join},
    yaml,
};

/// `ROSTER__<KEY>` at the top level, `ROSTER_<SECTION>__<KEY>` below. Others that begin alike, without `__`, are not ours:
/// Kubernetes injects them.
const PREFIX: &str = "ROSTER";
const SEPARATOR: &str = "__";

/// An interpolated file is a secret or a prompt, not a data set.
const INTERPOLATED_BYTES_MAX: u64 = 1024 * 1024;

/// The variable whose absence is no mistake: there are no user directories then.
const OPTIONAL_VARIABLE: &str = "HOME";

/// Reads the file.
pub(super) fn file(path: &Path, mistakes: &mut Vec<Mistake>) -> Tree {
    let mut tree = Tree::default();
    let mut fail = |place: String, message: String| {
        mistakes.push(Mistake { place, key: String::new(), message });
    };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            fail(path.display().to_string(), format!("cannot be read: {error}"));
            return tree;
        }
    };
    match yaml::parse(&text) {
        Ok(document) if document.value.is_object() => {
            tree.value = document.value;
            tree.origins = document
                .places
                .into_iter()
                .map(|(pointer, yaml::Place { line, column })| {
                    (pointer, Origin::File { path: path.to_owned(), line, column })
                })
                .collect();
        }
        Ok(_) => fail(path.display().to_string(), "must be a mapping of keys to values".to_owned()),
        Err(broken) => {
            let yaml::Place { line, column } = broken.place;
            fail(format!("{}:{line}:{column}", path.display()), broken.message);
        }
    }
    tree
}

/// Puts the environment over the file.
pub(super) fn environment(
    tree: &mut Tree,
    environment: &Environment,
    schema: &Schema,
    mistakes: &mut Vec<Mistake>,
) {
    for (name, text) in environment.iter() {
        let Some((first, rest)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once(SEPARATOR))
        else {
            continue;
        };
        let section = match first.strip_prefix('_') {
            Some(section) => Some(section),
            None if first.is_empty() => None,
            // Another name that begins with the same letters.
            None => continue,
        };
        let parts = section.into_iter().chain(rest.split(SEPARATOR));
        match key(tree, schema, parts) {
            Some(key) => {
                let pointer = key.iter().fold(String::new(), |pointer, part| join(&pointer, part));
                let value = schema.coerce(&pointer, text);
                tree.set(&key, value, Origin::Environment(name.to_owned()));
            }
            None => {
                let message = "names no key; `__` stands between the parts of one".to_owned();
                mistakes.push(Mistake { place: name.to_owned(), key: String::new(), message });
            }
        }
    }
}

/// Puts the flags over the rest.
pub(super) fn flags(tree: &mut Tree, flags: Vec<Flag>) {
    for Flag { name, key, value } in flags {
        let key: Vec<String> = key.split('.').map(str::to_owned).collect();
        tree.set(&key, value, Origin::Flag(name));
    }
}

/// Replaces `${env:NAME}` and `${file:/path}` in every text, and returns the files that were read.
pub(super) fn interpolate(
    tree: &mut Tree,
    environment: &Environment,
    schema: &Schema,
    mistakes: &mut Vec<Mistake>,
) -> Vec<PathBuf> {
    let mut value = std::mem::take(&mut tree.value);
    let (mut found, mut files) = (Vec::new(), Vec::new());
    walk(&mut value, String::new(), &mut |pointer, text| match expand(text, environment, &mut files) {
        Ok(None) => None,
        Ok(Some(Expanded::Nothing)) => Some(Value::Null),
        Ok(Some(Expanded::Text(text))) => Some(schema.coerce(pointer, &text)),
        Err(message) => {
            found.push((pointer.to_owned(), message));
            None
        }
    });
    tree.value = value;
    mistakes.extend(found.into_iter().map(|(pointer, message)| tree.mistake(&pointer, message)));
    files
}

enum Expanded {
    Text(String),
    /// The whole value is an optional variable that is not set.
    Nothing,
}

/// The key that the parts of a variable's name mean: those of structs by their schema, those of maps by what is there.
fn key<'a>(tree: &Tree, schema: &Schema, parts: impl Iterator<Item = &'a str>) -> Option<Vec<String>> {
    let mut key: Vec<String> = Vec::new();
    let mut pointer = String::new();
    for part in parts {
        if part.is_empty() {
            return None;
        }
        let there = tree.value.pointer(&pointer).and_then(Value::as_object);
        let known = schema.keys(&pointer);
        let name = known
            .iter()
            .map(String::as_str)
            .chain(there.into_iter().flat_map(|map| map.keys().map(String::as_str)))
            .find(|name| fold(name) == fold(part))
            .map_or_else(|| part.to_lowercase(), str::to_owned);
        pointer = join(&pointer, &name);
        key.push(name);
    }
    Some(key)
}

/// Variables have neither case nor hyphens.
fn fold(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

fn walk(value: &mut Value, pointer: String, change: &mut impl FnMut(&str, &str) -> Option<Value>) {
    match value {
        Value::String(text) => {
            if let Some(changed) = change(&pointer, text) {
                *value = changed;
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                walk(item, join(&pointer, &index.to_string()), change);
            }
        }
        Value::Object(map) => {
            for (key, item) in map.iter_mut() {
                walk(item, join(&pointer, key), change);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `None` where there is nothing to replace. `$${` stands for `${`.
fn expand(
    text: &str,
    environment: &Environment,
    files: &mut Vec<PathBuf>,
) -> Result<Option<Expanded>, String> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, tail) = rest.split_at(start);
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = &tail[2..];
            continue;
        }
        expanded.push_str(before);
        let end = tail.find('}').ok_or("`${` has no `}`")?;
        let inner = &tail[2..end];
        if let Some(name) = inner.strip_prefix("env:") {
            match environment.get(name) {
                Some(value) => expanded.push_str(value),
                None if name == OPTIONAL_VARIABLE && text.len() == end + 1 => {
                    return Ok(Some(Expanded::Nothing));
                }
                None => return Err(format!("the environment variable `{name}` is not set")),
            }
        } else if let Some(path) = inner.strip_prefix("file:") {
            let content =
                read(Path::new(path)).map_err(|error| format!("`{path}` cannot be read: {error}"))?;
            expanded.push_str(content.trim_end_matches(['\r', '\n']));
            files.push(path.into());
        } else {
            return Err(format!(
                "`${{{inner}}}` is neither `${{env:NAME}}` nor `${{file:/path}}`; write `$${{` for the text"
            ));
        }
        rest = &tail[end + 1..];
    }
    expanded.push_str(rest);
    Ok(Some(Expanded::Text(expanded)))
}

fn read(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.len() > INTERPOLATED_BYTES_MAX {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    fs::read_to_string(path)
}
