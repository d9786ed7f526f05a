//! What a JSON Schema costs to run. A short one can unfold to billions of parts by referring twice to the same place at
//! each of many steps, and definitions are not trusted.

use std::collections::HashMap;

use serde_json::Value;

use super::{Fault, language::parts};

/// Most parts a schema may unfold to, references followed. Real ones have hundreds.
pub(super) const PARTS_MAX: u64 = 20_000;

/// Most parts that may be visited to say why data does not fit.
const VISITS_MAX: u64 = 1_000_000;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// Parts visited for one value; references back into themselves count as one.
    parts: u64,
    /// How many references a schema has that refers to itself; 0 when it does not.
    rounds: u64,
}

/// Weighs a schema, or refuses one that unfolds to too much.
pub(super) fn weigh(document: &Value) -> Result<Cost, Fault> {
    let mut scale = Scale { document, weights: HashMap::new(), references: 0, is_recursive: false };
    let parts = scale.weigh(document, document)?;
    match parts > PARTS_MAX {
        true => Err(Fault::TooCostly),
        false => Ok(Cost { parts, rounds: if scale.is_recursive { scale.references } else { 0 } }),
    }
}

impl Cost {
    /// Whether all reasons can be looked for in data of some depth. A verdict remembers what it has seen, the search for
    /// reasons does not: each level may multiply its work by the number of references.
    pub(super) fn permits_reasons(&self, data_depth: usize) -> bool {
        let levels = u32::try_from(data_depth).unwrap_or(u32::MAX);
        self.rounds.saturating_pow(levels).saturating_mul(self.parts) <= VISITS_MAX
    }
}

struct Scale<'a> {
    document: &'a Value,
    /// By the address of a schema; `None` while it is being weighed.
    weights: HashMap<*const Value, Option<u64>>,
    references: u64,
    is_recursive: bool,
}

impl<'a> Scale<'a> {
    /// `base` is the resource that pointers start from.
    fn weigh(&mut self, schema: &'a Value, base: &'a Value) -> Result<u64, Fault> {
        let key = std::ptr::from_ref(schema);
        match self.weights.get(&key) {
            Some(Some(weight)) => return Ok(*weight),
            Some(None) => {
                self.is_recursive = true;
                return Ok(1);
            }
            None => {}
        }
        self.weights.insert(key, None);

        let base = if schema.get("$id").is_some() { schema } else { base };
        let mut weight = 1_u64;
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(reference) = schema.get(keyword).and_then(Value::as_str) else { continue };
            self.references += 1;
            for (target, base) in self.targets(reference, base)? {
                weight = weight.saturating_add(self.weigh(target, base)?);
            }
        }
        for part in parts(schema) {
            weight = weight.saturating_add(self.weigh(part, base)?);
        }
        self.weights.insert(key, Some(weight));
        Ok(weight)
    }

    /// What a reference may lead to, each with the resource it lies in. An anchor may stand in several places.
    fn targets(&self, reference: &str, base: &'a Value) -> Result<Vec<(&'a Value, &'a Value)>, Fault> {
        let (resource, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let bases = match resource {
            "" => vec![base],
            identity => find(self.document, &|schema| text(schema, "$id") == Some(identity)),
        };
        let fragment = decode(fragment);
        let targets: Vec<_> = match fragment.is_empty() || fragment.starts_with('/') {
            true => bases.iter().filter_map(|&base| Some((base.pointer(&fragment)?, base))).collect(),
            false => find(self.document, &|schema| {
                ["$anchor", "$dynamicAnchor"].iter().any(|key| text(schema, key) == Some(&fragment))
            })
            .into_iter()
            .map(|target| (target, base))
            .collect(),
        };
        match targets.is_empty() {
            true => Err(Fault::DanglingReference(reference.to_owned())),
            false => Ok(targets),
        }
    }
}

fn find<'a>(schema: &'a Value, is_wanted: &dyn Fn(&Value) -> bool) -> Vec<&'a Value> {
    let mut found: Vec<&Value> = parts(schema).flat_map(|part| find(part, is_wanted)).collect();
    if is_wanted(schema) {
        found.push(schema);
    }
    found
}

fn text<'a>(schema: &'a Value, keyword: &str) -> Option<&'a str> {
    schema.get(keyword).and_then(Value::as_str)
}

/// Percent-encoded characters of a fragment; what is no encoding stays.
fn decode(fragment: &str) -> String {
    let bytes = fragment.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let code = (bytes[index] == b'%')
            .then(|| fragment.get(index + 1..index + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(code.unwrap_or(bytes[index]));
        index += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
