//! What a server says of a tool, made into what a model may be told of it.

use std::{collections::BTreeMap, sync::Arc};

use rmcp::model::Tool;
use serde_json::{Value, json};

use super::{name, server::Offers};
use crate::{
    model::ToolSpec,
    tool::{Class, limits},
    toolbag::class::{Hints, of_hints},
};

/// Most bytes of a description.
const DESCRIPTION_MAX: usize = 8 * 1024;

/// Most bytes of a schema. A model could not follow a longer one.
const SCHEMA_MAX: usize = 64 * 1024;

/// A tool as its server offers it.
#[derive(Debug)]
pub(super) struct Offer {
    /// What the server calls it.
    pub(super) own_name: String,
    pub(super) spec: ToolSpec,
    /// Before the operator's table.
    pub(super) class: Class,
}

/// The tools that can be offered, by their names on the wire, and why others cannot.
pub(super) fn all(server: &str, is_trusted: bool, tools: Vec<Tool>) -> (Offers, Vec<String>) {
    let mut offers = BTreeMap::new();
    let mut left_out = Vec::new();
    for tool in tools {
        let own_name = limits::start(&tool.name, 100);
        match Offer::new(server, is_trusted, tool) {
            Err(reason) => left_out.push(format!("`{own_name}`: {reason}")),
            Ok(offer) if offers.contains_key(&offer.spec.name) => {
                left_out.push(format!("`{own_name}`: listed twice"));
            }
            Ok(offer) => {
                offers.insert(offer.spec.name.clone(), Arc::new(offer));
            }
        }
    }
    (Arc::new(offers), left_out)
}

impl Offer {
    fn new(server: &str, is_trusted: bool, tool: Tool) -> Result<Self, String> {
        let hints = tool.annotations.as_ref().map_or_else(Hints::default, |annotations| Hints {
            read_only: annotations.read_only_hint,
            destructive: annotations.destructive_hint,
        });
        let mut input_schema = Value::Object(Arc::unwrap_or_clone(tool.input_schema));
        // Providers take nothing but an object; some servers leave it to be understood.
        match input_schema.get("type").and_then(Value::as_str) {
            Some("object") => {}
            None => input_schema["type"] = json!("object"),
            Some(other) => return Err(format!("its arguments are of type {}", limits::start(other, 100))),
        }
        let length = input_schema.to_string().len();
        if length > SCHEMA_MAX {
            return Err(format!("its schema has {length} bytes, more than {SCHEMA_MAX}"));
        }
        let description = tool.description.or_else(|| tool.title.map(Into::into)).unwrap_or_default();
        Ok(Self {
            spec: ToolSpec {
                name: name::on_the_wire(server, &tool.name),
                description: limits::start(&description, DESCRIPTION_MAX),
                input_schema,
            },
            own_name: tool.name.into_owned(),
            class: of_hints(hints, is_trusted),
        })
    }

    /// True where both mean the same tool of the server with the same arguments.
    pub(super) fn takes_the_same(&self, other: &Self) -> bool {
        self.own_name == other.own_name && self.spec.input_schema == other.spec.input_schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(value: Value) -> Tool {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_a_server_says_is_bounded_and_believed_as_far_as_it_is_trusted() {
        let read = json!({"readOnlyHint": true});
        let tools = || {
            vec![
                tool(
                    json!({"name": "look", "description": "d".repeat(20_000), "inputSchema": {}, "annotations": read}),
                ),
                tool(
                    json!({"name": "add.one", "title": "Adds", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": false}}),
                ),
                tool(json!({"name": "wipe", "inputSchema": {"type": "object"}})),
                tool(json!({"name": "wipe", "inputSchema": {"type": "object"}, "annotations": read})),
                tool(json!({"name": "list", "inputSchema": {"type": "array"}})),
                tool(
                    json!({"name": "vast", "inputSchema": {"type": "object", "description": "x".repeat(SCHEMA_MAX)}}),
                ),
            ]
        };

        for (is_trusted, look) in [(true, Class::Read), (false, Class::Destructive)] {
            let (offers, left_out) = all("s", is_trusted, tools());

            let classes: Vec<_> =
                offers.values().map(|offer| (offer.own_name.as_str(), offer.class)).collect();
            let expected = [("add.one", Class::Write), ("look", look), ("wipe", Class::Destructive)];
            assert_eq!(classes, expected);
            assert_eq!(left_out.len(), 3, "{left_out:?}");
        }
        let (offers, _) = all("s", false, tools());
        let look = &offers["mcp__s__look"].spec;
        assert!(look.description.len() < DESCRIPTION_MAX + 100);
        assert_eq!(look.input_schema, json!({"type": "object"}));
        assert!(offers.values().any(|offer| offer.spec.description == "Adds"));
    }
}
