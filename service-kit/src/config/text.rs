//! Values that are more than JSON says: durations as text, and secrets that cannot be shown by accident.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A duration, written as text: `15s`, `2h`, `1m 30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// A value that is never shown: it has no `Debug` of its content, prints masked and is read by [`Secret::expose`] only.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The schema of an address and port, for fields that are a `SocketAddr`: `#[schemars(with = "Address")]`.
#[derive(Clone, Copy, Debug)]
pub struct Address;

impl Span {
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Reads `15s`, `2h`, `1m 30s`, `250ms`; a bare number has no unit and is refused.
    pub fn parse(text: &str) -> Option<Self> {
        humantime::parse_duration(text.trim()).ok().map(Self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(formatter)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| D::Error::custom(format!("`{text}` is not a duration such as `15s`")))
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "span",
            "pattern": r"^\s*([0-9]+\s*(ns|us|ms|s|sec|secs|m|min|mins|h|hr|hrs|d|day|days|w|week|weeks)\s*)+$",
        })
    }
}

impl JsonSchema for Address {
    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "address",
            "pattern": r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}$",
        })
    }
}

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The content, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "writeOnly": true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_text_both_ways() {
        for (text, duration) in [
            ("15s", Duration::from_secs(15)),
            ("250ms", Duration::from_millis(250)),
            ("1m 30s", Duration::from_secs(90)),
            ("2h", Duration::from_secs(7_200)),
        ] {
            let span = Span::parse(text).unwrap();
            assert_eq!(span.0, duration);
            assert_eq!(Span::parse(&span.to_string()), Some(span));
        }
        for text in ["", "15", "soon", "-1s"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_secret_shows_nothing() {
        let secret = Secret::new("hunter2");

        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
        assert_eq!(secret.expose(), "hunter2");
    }
}
