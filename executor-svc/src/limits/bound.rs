//! A limit or none, as configuration, environment and people write it.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;
use service_kit::config::Span;

/// The word for "no limit"; 0 never means it.
const UNLIMITED: &str = "unlimited";

/// A limit, or none. The derived order puts `Unlimited` last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound<T> {
    Of(T),
    Unlimited,
}

impl<T: Copy> Bound<T> {
    /// The number, absent where there is no limit.
    pub fn get(self) -> Option<T> {
        match self {
            Self::Of(value) => Some(value),
            Self::Unlimited => None,
        }
    }
}

impl Bound<u64> {
    /// True where `used` leaves room for one more.
    pub fn has_room(self, used: u64) -> bool {
        self.get().is_none_or(|limit| used < limit)
    }

    /// The limit for a count of 32 bits, all of them where there is none.
    pub fn count(self) -> u32 {
        self.get().map_or(u32::MAX, |limit| u32::try_from(limit).unwrap_or(u32::MAX))
    }
}

impl Bound<Span> {
    pub fn duration(self) -> Option<Duration> {
        self.get().map(|span| span.0)
    }
}

impl<T: fmt::Display> fmt::Display for Bound<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(value) => value.fmt(formatter),
            Self::Unlimited => formatter.write_str(UNLIMITED),
        }
    }
}

impl<T: Serialize> Serialize for Bound<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Of(value) => value.serialize(serializer),
            Self::Unlimited => serializer.serialize_str(UNLIMITED),
        }
    }
}

impl<'de> Deserialize<'de> for Bound<u64> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bound(deserializer, |value| match value {
            // A number from the environment arrives as text.
            Value::String(text) => u64::from_str(text).ok(),
            other => other.as_u64(),
        })
    }
}

impl<'de> Deserialize<'de> for Bound<Span> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bound(deserializer, |value| value.as_str().and_then(Span::parse))
    }
}

impl JsonSchema for Bound<u64> {
    fn schema_name() -> Cow<'static, str> {
        "BoundedCount".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "const": UNLIMITED }] })
    }
}

impl JsonSchema for Bound<Span> {
    fn schema_name() -> Cow<'static, str> {
        "BoundedSpan".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [Span::json_schema(generator), { "const": UNLIMITED }] })
    }
}

fn bound<'de, D, T>(deserializer: D, read: impl Fn(&Value) -> Option<T>) -> Result<Bound<T>, D::Error>
where
    D: Deserializer<'de>,
{
    let value = Value::deserialize(deserializer)?;
    if value.as_str() == Some(UNLIMITED) {
        return Ok(Bound::Unlimited);
    }
    read(&value)
        .map(Bound::Of)
        .ok_or_else(|| D::Error::custom(format!("`{value}` is neither a limit nor `{UNLIMITED}`")))
}
