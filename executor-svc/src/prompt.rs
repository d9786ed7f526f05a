//! Composing a worker's system prompt: the parts of the contract, in its order, joined by a blank line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::definition::Definition;

/// Texts of the operator around what a definition says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prompts {
    /// Stands before every agent's own prompt.
    pub base: String,
    /// Stands below the agent's own prompt under plan mode.
    pub plan: String,
    /// Header of an active skill; `<name>` stands for its name.
    pub skill_header: String,
}

/// A skill that is active for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    pub name: String,
    pub body: String,
}

/// One agent a coordinator may dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    pub name: String,
    pub description: String,
    pub when_to_use: String,
}

/// What a prompt is composed from.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub prompts: &'a Prompts,
    pub definition: &'a Definition,
    pub plan_mode: bool,
    /// Coordinators only: empty for workers.
    pub catalog: &'a [CatalogEntry],
    pub skills: &'a [Skill],
    /// The effective schema as JSON text.
    pub schema: Option<&'a str>,
    /// BCP 47 tag; empty where none was given.
    pub locale: &'a str,
}

impl Default for Prompts {
    fn default() -> Self {
        Self {
            base: String::new(),
            plan: "You are in plan mode. Look, think and answer with a plan. Nothing may be changed: only tools that read are at hand, and no agent can be dispatched.".to_owned(),
            skill_header: "[能力: <name>]".to_owned(),
        }
    }
}

/// The system prompt.
pub fn compose(parts: &Parts<'_>) -> String {
    let Parts { prompts, definition, plan_mode, catalog, skills, schema, locale } = *parts;
    let plan = if plan_mode { prompts.plan.as_str() } else { "" };
    let mut texts = vec![
        prompts.base.trim().to_owned(),
        definition.system_prompt.trim().to_owned(),
        in_tags("critical-reminder", &definition.critical_reminder),
        plan.trim().to_owned(),
        bullets(catalog),
    ];
    texts.extend(skills.iter().map(|skill| with_header(&prompts.skill_header, skill)));
    texts.push(schema.map(schema_part).unwrap_or_default());
    texts.push(locale_part(locale));
    texts.retain(|text| !text.is_empty());
    texts.join("\n\n")
}

/// The catalog as a list, one bullet an agent.
pub fn bullets(catalog: &[CatalogEntry]) -> String {
    let lines: Vec<String> = catalog
        .iter()
        .map(|CatalogEntry { name, description, when_to_use }| match when_to_use.is_empty() {
            true => format!("- `{name}`: {description}"),
            false => format!("- `{name}`: {description} When: {when_to_use}"),
        })
        .collect();
    lines.join("\n")
}

fn in_tags(tag: &str, text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!("<{tag}>{text}</{tag}>"),
    }
}

fn with_header(template: &str, skill: &Skill) -> String {
    let header = template.replace("<name>", &skill.name);
    let body = skill.body.trim();
    if body.starts_with(&header) { body.to_owned() } else { format!("{header}\n{body}") }
}

fn schema_part(schema: &str) -> String {
    format!(
        "Your result has a schema. End by calling `submit_result` with `data` that matches it, or with `error` where the task cannot be done:\n\n```json\n{}\n```",
        schema.trim()
    )
}

fn locale_part(locale: &str) -> String {
    match locale {
        "" => String::new(),
        locale => format!("Answer in the language of the BCP 47 tag `{locale}`."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{SpawnPolicy, ToolSelection};

    fn definition() -> Definition {
        Definition {
            name: "explore".to_owned(),
            description: String::new(),
            system_prompt: "You look.\n".to_owned(),
            tools: ToolSelection::Inherit,
            disallowed_tools: Vec::new(),
            spawns: SpawnPolicy::None,
            models: Vec::new(),
            thinking_level: None,
            output_schema: None,
            permission_mode: None,
            max_turns: None,
            critical_reminder: "Never guess.".to_owned(),
            skills: Vec::new(),
            mcp_servers: Vec::new(),
            blocking: false,
            digest: String::new(),
        }
    }

    #[test]
    fn the_parts_stand_in_the_order_of_the_contract() {
        let prompts = Prompts { base: "Base.".to_owned(), plan: "Plan.".to_owned(), ..Prompts::default() };
        let catalog = [CatalogEntry {
            name: "plan".to_owned(),
            description: "Plans.".to_owned(),
            when_to_use: "Before work.".to_owned(),
        }];
        let skills = [
            Skill { name: "git".to_owned(), body: "Use git.".to_owned() },
            Skill { name: "jj".to_owned(), body: "[能力: jj]\nUse jj.".to_owned() },
        ];

        let text = compose(&Parts {
            prompts: &prompts,
            definition: &definition(),
            plan_mode: true,
            catalog: &catalog,
            skills: &skills,
            schema: Some("{\"type\":\"object\"}"),
            locale: "de",
        });

        let expected = "Base.\n\nYou look.\n\n<critical-reminder>Never guess.</critical-reminder>\n\nPlan.\n\n\
            - `plan`: Plans. When: Before work.\n\n[能力: git]\nUse git.\n\n[能力: jj]\nUse jj.\n\n\
            Your result has a schema.";
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(text.matches("{\"type\":\"object\"}").count(), 1);
        assert!(text.ends_with("`de`."), "{text}");
    }

    #[test]
    fn empty_parts_are_left_out() {
        let mut bare = definition();
        bare.critical_reminder = " ".to_owned();

        let text = compose(&Parts {
            prompts: &Prompts::default(),
            definition: &bare,
            plan_mode: false,
            catalog: &[],
            skills: &[],
            schema: None,
            locale: "",
        });

        assert_eq!(text, "You look.");
    }
}
