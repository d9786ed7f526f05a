//! A configuration on its way to its struct: values, and for each the place it came from.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Mistake, Origin};

/// Values by key, each key with its origin. A key is a JSON pointer inside this module and dotted towards people.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) value: Value,
    pub(super) origins: BTreeMap<String, Origin>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { value: Value::Object(Map::new()), origins: BTreeMap::new() }
    }
}

impl Tree {
    /// Sets one key, making the maps above it. Lists are replaced whole.
    pub(super) fn set(&mut self, key: &[String], value: Value, origin: Origin) {
        let mut node = &mut self.value;
        let mut pointer = String::new();
        for part in key {
            if !node.is_object() {
                *node = Value::Object(Map::new());
            }
            let Value::Object(map) = node else { unreachable!("made an object just above") };
            pointer = join(&pointer, part);
            node = map.entry(part.clone()).or_insert(Value::Null);
        }
        *node = value;
        let below = format!("{pointer}/");
        self.origins.retain(|other, _| !other.starts_with(&below));
        self.origins.insert(pointer, origin);
    }

    /// The origin of a key, or of the nearest one above it that has one.
    pub(super) fn origin(&self, pointer: &str) -> Origin {
        let mut pointer = pointer;
        loop {
            if let Some(origin) = self.origins.get(pointer) {
                return origin.clone();
            }
            match pointer.rfind('/') {
                Some(end) => pointer = &pointer[..end],
                None => return Origin::Default,
            }
        }
    }

    pub(super) fn mistake(&self, pointer: &str, message: String) -> Mistake {
        Mistake { place: self.origin(pointer).to_string(), key: dotted(pointer), message }
    }

    /// A mistake at a dotted key.
    pub(super) fn mistake_at_key(&self, key: &str, message: String) -> Mistake {
        let pointer = key.split('.').fold(String::new(), |pointer, part| join(&pointer, part));
        Mistake { place: self.origin(&pointer).to_string(), key: key.to_owned(), message }
    }
}

/// The pointer of a child.
pub(super) fn join(pointer: &str, part: &str) -> String {
    format!("{pointer}/{}", part.replace('~', "~0").replace('/', "~1"))
}

/// A pointer as people write keys: `workspaces.default.roots[0]`.
pub(super) fn dotted(pointer: &str) -> String {
    let mut key = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            key.push_str(&format!("[{part}]"));
        } else {
            if !key.is_empty() {
                key.push('.');
            }
            key.push_str(&part);
        }
    }
    key
}
