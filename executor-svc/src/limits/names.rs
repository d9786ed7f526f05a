//! A list of names in configuration, or all there are.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

use crate::definition::SpawnPolicy;

/// Names, or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    All,
    Listed(Vec<String>),
}

impl Names {
    pub fn policy(&self) -> SpawnPolicy {
        match self {
            Self::All => SpawnPolicy::All,
            Self::Listed(names) if names.is_empty() => SpawnPolicy::None,
            Self::Listed(names) => SpawnPolicy::Listed(names.clone()),
        }
    }
}

impl Serialize for Names {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("*"),
            Self::Listed(names) => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) if text == "*" => Ok(Self::All),
            list @ Value::Array(_) => {
                serde_json::from_value(list).map(Self::Listed).map_err(D::Error::custom)
            }
            other => Err(D::Error::custom(format!("`{other}` is neither `*` nor a list of names"))),
        }
    }
}

impl JsonSchema for Names {
    fn schema_name() -> Cow<'static, str> {
        "Names".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "*" }, { "type": "array", "items": { "type": "string" } }] })
    }
}
