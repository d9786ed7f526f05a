//! The fields that restrict, and how they and the translated ones of other products come together.

use super::{Fields, Findings, Given, Node, Position, Reading, Value, value};
use crate::{
    agent::{PermissionMode, SpawnPolicy, ToolSelection},
    definition::{
        finding::shown,
        key::{Field, Translated},
        permission::{self, Permission},
        tool::{self, Grant, Granted},
        unique::Unique,
    },
    diagnostic::Code,
};

/// Everything that restricts an agent.
pub(super) struct Restrictions {
    pub(super) tools: ToolSelection,
    pub(super) disallowed_tools: Vec<String>,
    pub(super) spawns: SpawnPolicy,
    pub(super) output_schema: Option<String>,
    pub(super) permission_mode: Option<PermissionMode>,
}

/// Reads all restrictions.
pub(super) fn read(fields: &mut Fields, findings: &mut Findings) -> Restrictions {
    let written_spawns = fields.take(Field::Spawns, findings);
    let translated = translated(fields, findings);
    let mut denied = Unique::default();
    let mut granted = Granted::inherited();
    if let Some(given) = fields.take(Field::DisallowedTools, findings) {
        denied.extend(disallowed_tools(&given, findings));
    }
    if let Some(given) = fields.take(Field::Tools, findings) {
        granted = tools(&given, &mut denied, findings);
    }
    denied.extend(translated.permission.denied);
    if let Some(allowed) = translated.permission.allowed_only {
        granted.cut_to(allowed);
    }
    let disallowed_tools = denied.into_vec();

    let mut spawns = match (&written_spawns, translated.permission.spawns) {
        (Some(given), Some(_)) => {
            findings.refuse_duplicate("permission.task", given.at, translated.permission_at);
            SpawnPolicy::None
        }
        (Some(given), None) => written_policy(given, findings),
        (None, Some(policy)) => policy,
        (None, None) => granted.implied_spawns(),
    };
    if tool::denies_spawn(&disallowed_tools) {
        spawns = SpawnPolicy::None;
    }
    Restrictions {
        tools: granted.selection,
        disallowed_tools,
        spawns,
        output_schema: fields.take(Field::Output, findings).and_then(|given| output_schema(&given, findings)),
        permission_mode: translated.mode,
    }
}

/// What other products' restrictions, and our own mode, say.
struct TranslatedFields {
    permission: Permission,
    permission_at: Position,
    mode: Option<PermissionMode>,
}

fn translated(fields: &mut Fields, findings: &mut Findings) -> TranslatedFields {
    let own_at = fields.at(Field::PermissionMode);
    let own = fields
        .take(Field::PermissionMode, findings)
        .and_then(|given| permission::mode(&given.node, findings));
    let mut translated =
        TranslatedFields { permission: Permission::default(), permission_at: Position::START, mode: own };
    for (kind, entry) in std::mem::take(&mut fields.translated) {
        let Reading::Value(node) = &entry.value else { continue };
        match kind {
            Translated::Permission => {
                translated.permission = permission::permission(&entry.key, node, findings);
                translated.permission_at = entry.at;
            }
            Translated::ReadOnly | Translated::SandboxMode | Translated::ApprovalMode => {
                let mode = permission::translated_mode(kind, &entry.key, node, findings);
                if let (Some(_), Some(own_at)) = (mode, own_at) {
                    findings.refuse_duplicate(&entry.key, own_at, entry.at);
                }
                translated.mode = translated.mode.or(mode);
            }
        }
    }
    translated
}

/// Reads `tools`. The false names of a map are added to `denied`.
fn tools(given: &Given, denied: &mut Unique, findings: &mut Findings) -> Granted {
    match &given.node.value {
        Value::Text(text) => {
            Granted::new(tool::split_commas(&text.text).map(|entry| grant(entry, given.node.at, findings)))
        }
        Value::List(items) => {
            let mut grants = Vec::new();
            for item in items {
                match &item.value {
                    Value::Text(text) if text.text.trim().is_empty() => {}
                    Value::Text(text) => grants.push(grant(text.text.trim(), item.at, findings)),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {
                        value::wrong_element(given, item, findings);
                    }
                }
            }
            Granted::new(grants)
        }
        Value::Map(pairs) => tools_map(given, pairs, denied, findings),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            value::wrong_type(given, "a list, comma text or `\"*\"`", findings);
            Granted::inherited()
        }
    }
}

/// OpenCode's map of name to bool: it takes away, unless it denies all but some.
fn tools_map(given: &Given, pairs: &[(Node, Node)], denied: &mut Unique, findings: &mut Findings) -> Granted {
    let mut denies_rest = false;
    let mut grants = Vec::new();
    for (key, node) in pairs {
        let (Value::Text(name), Value::Bool(value)) = (&key.value, &node.value) else {
            let part = if matches!(key.value, Value::Text(_)) { node } else { key };
            value::wrong_element(given, part, findings);
            continue;
        };
        let name = name.text.trim();
        match (name, value) {
            ("*", false) => denies_rest = true,
            ("*", true) => {}
            (name, true) => grants.push((name, key.at)),
            (name, false) => denied.extend(deny(given, name, key.at, findings)),
        }
    }
    if !denies_rest {
        return Granted::inherited();
    }
    Granted::new(grants.into_iter().map(|(name, at)| grant(name, at, findings)))
}

fn grant(entry: &str, at: Position, findings: &mut Findings) -> Grant {
    let grant = tool::grant(entry);
    if grant == Grant::Unsupported {
        let message = format!("`tools` entry {} grants nothing, name the whole tool", shown(entry));
        findings.warn(Code::UnsupportedSpecifier, at, message);
    }
    grant
}

fn disallowed_tools(given: &Given, findings: &mut Findings) -> Vec<String> {
    let mut denied = Unique::default();
    let mut add = |text: &str, at: Position, findings: &mut Findings| {
        for entry in tool::split_commas(text) {
            denied.extend(deny(given, entry, at, findings));
        }
    };
    match &given.node.value {
        Value::Text(text) => add(&text.text, given.node.at, findings),
        Value::List(items) => {
            for item in items {
                match &item.value {
                    Value::Text(text) => add(&text.text, item.at, findings),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {
                        value::wrong_element(given, item, findings);
                    }
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Map(_) => {
            value::wrong_type(given, "a list or comma text", findings);
        }
    }
    denied.into_vec()
}

fn deny(given: &Given, entry: &str, at: Position, findings: &mut Findings) -> Vec<String> {
    match tool::deny(entry) {
        Ok(names) if names == [tool::SUBMIT_RESULT] => {
            let message =
                format!("`{}` cannot be denied, an agent ends its work with it", tool::SUBMIT_RESULT);
            findings.warn(Code::UnknownValue, at, message);
            Vec::new()
        }
        Ok(names) => names,
        Err(fault) => {
            let message = format!(
                "`{}` entry {} {fault} and would deny nothing, write a name, `prefix*`, `*suffix` or `*`",
                given.field.key(),
                shown(entry),
            );
            findings.refuse_restriction(at, message);
            Vec::new()
        }
    }
}

fn written_policy(given: &Given, findings: &mut Findings) -> SpawnPolicy {
    match &given.node.value {
        Value::Text(text) => tool::spawn_policy(tool::split_commas(&text.text)),
        Value::List(items) => {
            let mut names = Vec::new();
            for item in items {
                match &item.value {
                    Value::Text(text) if text.text.trim().is_empty() => {}
                    Value::Text(text) => names.push(text.text.trim()),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {
                        value::wrong_element(given, item, findings);
                    }
                }
            }
            tool::spawn_policy(names.into_iter())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Map(_) => {
            value::wrong_type(given, "a list, comma text or `\"*\"`", findings);
            SpawnPolicy::None
        }
    }
}

/// The schema as JSON text: JSON text as it stands, YAML translated.
fn output_schema(given: &Given, findings: &mut Findings) -> Option<String> {
    let refuse = |at: Position, fault: String, findings: &mut Findings| {
        let message = format!("`output` {fault}, write a schema as a map, or as JSON text");
        findings.refuse(Code::InvalidOutputSchema, at, message);
        None
    };
    let at = given.node.at;
    match &given.node.value {
        Value::Map(_) | Value::Bool(_) => match given.node.to_strict_json() {
            Ok(schema) => Some(schema.to_string()),
            Err(part) => {
                refuse(part.at, format!("contains {}, which JSON cannot say", shown(&part.written)), findings)
            }
        },
        Value::Text(text) => match serde_json::from_str::<serde_json::Value>(&text.text) {
            Ok(serde_json::Value::Object(_) | serde_json::Value::Bool(_)) => {
                Some(text.text.trim().to_owned())
            }
            Ok(_) => refuse(at, format!("{} is no schema", shown(&text.text)), findings),
            Err(error) => refuse(at, format!("{} is no JSON ({error})", shown(&text.text)), findings),
        },
        Value::Null | Value::Number(_) | Value::List(_) => {
            refuse(at, format!("is {}, {}", given.node.kind(), shown(&given.node.written())), findings)
        }
    }
}
