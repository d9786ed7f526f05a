//! Top-level entries → an agent: what each field accepts and means, and what every other key is.

mod restriction;
mod value;

use std::collections::HashMap;

use crate::{
    agent::{Agent, AgentName, Digest},
    diagnostic::Code,
};

use super::{
    Origin,
    fence::Body,
    finding::{Findings, Position, shown},
    key::{self, Field, Meaning, Switch, Translated},
    name,
    node::{Entry, Node, Reading, Value},
    permission,
};

/// What a document is beside its entries.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) origin: &'a Origin<'a>,
    /// Where a field that is missing would stand.
    pub(super) start: Position,
    pub(super) body: Body,
    pub(super) digest: Digest,
}

/// What the entries make of a document.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Its owner switched it off.
    Disabled,
    /// Complete, if nothing refuses it. Absent without a name.
    Read(Option<Box<Agent>>),
}

/// Reads all entries of a document.
pub(super) fn read(entries: Vec<Entry>, frame: Frame<'_>, findings: &mut Findings) -> Outcome {
    if let Some(entry) = entries.iter().find(|entry| is_switched_off(entry)) {
        let message =
            format!("{} switches the definition off, remove it to use the agent", shown(&entry.key));
        findings.refuse(Code::Disabled, entry.at, message);
        return Outcome::Disabled;
    }
    let mut fields = Fields::sort(entries, findings);
    Outcome::Read(agent(&mut fields, frame, findings).map(Box::new))
}

fn agent(fields: &mut Fields, frame: Frame<'_>, findings: &mut Findings) -> Option<Agent> {
    let name = agent_name(fields, &frame, findings);
    let description = fields.text(Field::Description, findings);
    if description.is_empty() && !fields.is_wrong(Field::Description) {
        let message = "`description` is missing, say in one line what the agent does";
        findings.refuse(Code::MissingField, fields.at(Field::Description).unwrap_or(frame.start), message);
    }
    let when_to_use = fields.text(Field::WhenToUse, findings);
    let critical_reminder = fields.text(Field::CriticalReminder, findings);
    let restrictions = restriction::read(fields, findings);
    let agent = Agent {
        name: name?,
        description,
        when_to_use,
        system_prompt: frame.body.text,
        tools: restrictions.tools,
        disallowed_tools: restrictions.disallowed_tools,
        spawns: restrictions.spawns,
        models: fields
            .take(Field::Model, findings)
            .map_or_else(Vec::new, |given| value::models(&given, findings)),
        thinking_level: fields
            .take(Field::ThinkingLevel, findings)
            .and_then(|given| value::thinking_level(&given, findings)),
        output_schema: restrictions.output_schema,
        permission_mode: restrictions.permission_mode,
        max_turns: fields
            .take(Field::MaxTurns, findings)
            .and_then(|given| value::max_turns(&given, findings)),
        critical_reminder,
        skills: fields
            .take(Field::Skills, findings)
            .map_or_else(Vec::new, |given| value::names(&given, findings)),
        mcp_servers: fields
            .take(Field::McpServers, findings)
            .map_or_else(Vec::new, |given| value::mcp_servers(&given, findings)),
        blocking: fields
            .take(Field::Blocking, findings)
            .is_some_and(|given| value::blocking(&given, findings)),
        extra_json: fields.extra_json(),
        digest: frame.digest,
    };
    Some(agent)
}

/// The name, from the document or, where that is the custom, from its file.
fn agent_name(fields: &mut Fields, frame: &Frame<'_>, findings: &mut Findings) -> Option<AgentName> {
    let text = fields.text(Field::Name, findings);
    let at = fields.value_at(Field::Name).unwrap_or(frame.start);
    let text = match frame.origin.stem {
        _ if fields.is_wrong(Field::Name) => return None,
        _ if !text.is_empty() => text,
        Some(stem) if frame.origin.name_from_stem => stem.to_owned(),
        Some(stem) => {
            findings.refuse(Code::MissingField, at, format!("`name` is missing, add `name: {stem}`"));
            return None;
        }
        None => {
            findings.refuse(Code::MissingField, at, "`name` is missing, add one that no other agent has");
            return None;
        }
    };
    let name = match name::check(&text) {
        Ok(name) => name,
        Err(fault) => {
            let mend = "use letters, digits, blanks and `- _ . : + # & ' ! @ / ( )`";
            findings.refuse(Code::InvalidName, at, format!("name {} {fault}, {mend}", shown(&text)));
            return None;
        }
    };
    if let Some(guarded) = frame.origin.guarded_names.confusable_with(&name) {
        let message = format!("name {} looks like `{guarded}`, choose another", shown(&name));
        findings.warn(Code::ConfusableName, at, message);
    }
    Some(AgentName::new_valid(&name))
}

fn is_switched_off(entry: &Entry) -> bool {
    let Reading::Value(node) = &entry.value else { return false };
    match Meaning::of(&entry.key) {
        Meaning::Switch(Switch::Disable) => value::bool_of(node) == Some(true),
        Meaning::Switch(Switch::Enabled) => value::bool_of(node) == Some(false),
        Meaning::Field(_)
        | Meaning::Translated(_)
        | Meaning::Foreign
        | Meaning::NearMiss(_)
        | Meaning::Known
        | Meaning::Unknown => false,
    }
}

/// A field with its value.
#[derive(Debug)]
struct Given {
    field: Field,
    at: Position,
    node: Node,
}

/// The entries of a document by what they mean.
#[derive(Debug, Default)]
struct Fields {
    given: Vec<(Field, Entry)>,
    translated: Vec<(Translated, Entry)>,
    extra: serde_json::Map<String, serde_json::Value>,
    /// Text fields whose value was no text.
    wrong: Vec<Field>,
    places: Vec<(Field, Position, Position)>,
}

impl Fields {
    /// Sorts `entries`, and says what is wrong with their keys.
    fn sort(entries: Vec<Entry>, findings: &mut Findings) -> Self {
        let mut fields = Self::default();
        let mut seen: HashMap<String, Position> = HashMap::new();
        for entry in entries {
            let first = *seen.entry(key::identity(&entry.key)).or_insert(entry.at);
            if first != entry.at {
                findings.refuse_duplicate(&entry.key, first, entry.at);
                continue;
            }
            match Meaning::of(&entry.key) {
                Meaning::Field(field) => {
                    let value_at = match &entry.value {
                        Reading::Value(node) => node.at,
                        Reading::Unreadable(at) => *at,
                    };
                    fields.places.push((field, entry.at, value_at));
                    fields.given.push((field, entry));
                }
                Meaning::Translated(kind) => fields.translated.push((kind, entry)),
                Meaning::Switch(_) => switch_without_meaning(&entry, findings),
                Meaning::Foreign => {
                    if let Reading::Value(node) = &entry.value {
                        permission::foreign(&entry.key, &Node { at: entry.at, ..node.clone() }, findings);
                    }
                }
                Meaning::NearMiss(field) => {
                    let message = format!("{} is no field, write `{}`", shown(&entry.key), field.key());
                    findings.refuse(Code::MisspeltRestriction, entry.at, message);
                }
                Meaning::Known => fields.keep(entry),
                Meaning::Unknown => {
                    unknown_key(&entry, findings);
                    fields.keep(entry);
                }
            }
        }
        fields
    }

    /// Keeps a key that is not interpreted. One without a value is absent.
    fn keep(&mut self, entry: Entry) {
        if let Reading::Value(node) = entry.value
            && node.value != Value::Null
        {
            self.extra.insert(entry.key, node.to_json());
        }
    }

    /// The value of a field, if it is there. Without a value it is absent, but a restriction is refused.
    fn take(&mut self, field: Field, findings: &mut Findings) -> Option<Given> {
        let index = self.given.iter().position(|(given, _)| *given == field)?;
        let (_, entry) = self.given.swap_remove(index);
        match entry.value {
            Reading::Unreadable(at) => {
                let message = format!(
                    "`{}` cannot be read here, put its value on one line or below it as a list",
                    field.key()
                );
                findings.refuse_restriction(at, message);
                None
            }
            Reading::Value(Node { value: Value::Null, .. }) => {
                if field.restricts() {
                    let message = format!("`{}` has no value, give it one or remove it", field.key());
                    findings.refuse_restriction(entry.at, message);
                }
                None
            }
            Reading::Value(node) => Some(Given { field, at: entry.at, node }),
        }
    }

    /// The trimmed text of a field; empty when it is absent, or wrong.
    fn text(&mut self, field: Field, findings: &mut Findings) -> String {
        let Some(given) = self.take(field, findings) else {
            return String::new();
        };
        let Value::Text(text) = &given.node.value else {
            self.wrong.push(field);
            value::wrong_type(&given, "text, in quotes where it looks like something else", findings);
            return String::new();
        };
        if text.cut_by_comment {
            let message = format!(
                "`{}` ends at ` #`: {}, quote the value to keep all of it",
                field.key(),
                shown(text.text.trim())
            );
            findings.warn(Code::ValueCutByComment, given.node.at, message);
        }
        text.text.trim().to_owned()
    }

    fn is_wrong(&self, field: Field) -> bool {
        self.wrong.contains(&field)
    }

    fn at(&self, field: Field) -> Option<Position> {
        self.places.iter().find(|(placed, ..)| *placed == field).map(|(_, at, _)| *at)
    }

    fn value_at(&self, field: Field) -> Option<Position> {
        self.places.iter().find(|(placed, ..)| *placed == field).map(|(.., at)| *at)
    }

    fn extra_json(&self) -> String {
        if self.extra.is_empty() {
            return String::new();
        }
        serde_json::to_string(&self.extra).expect("a JSON object with text keys can always be written")
    }
}

fn unknown_key(entry: &Entry, findings: &mut Findings) {
    if !findings.takes_warnings() {
        return;
    }
    let mend = match key::likely_field(&entry.key) {
        Some(field) => format!("did you mean `{}`?", field.key()),
        None => "remove it unless another program reads it".to_owned(),
    };
    findings.warn(
        Code::UnknownKey,
        entry.at,
        format!("{} is no field and is kept unread, {mend}", shown(&entry.key)),
    );
}

/// A switch that does not switch the definition off.
fn switch_without_meaning(entry: &Entry, findings: &mut Findings) {
    let Reading::Value(node) = &entry.value else { return };
    if value::bool_of(node).is_none() && node.value != Value::Null {
        let message = format!(
            "{} {} is neither true nor false and counts as absent",
            shown(&entry.key),
            shown(&node.written())
        );
        findings.warn(Code::UnknownValue, node.at, message);
    }
}
