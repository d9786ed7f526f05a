//! Skills: prompt bodies that are added to an agent's system prompt when they are named, or when a text calls for them.

use std::sync::Arc;

use serde::Deserialize;

use crate::{
    agent::{Digest, Source},
    command::first_of_each,
    diagnostic::{Code, Diagnostic, Severity},
    front_matter,
};

/// One skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    pub name: String,
    pub description: String,
    pub prompt_body: String,
    pub activation: Activation,
    pub source: Arc<Source>,
    pub digest: Digest,
}

/// When a skill is active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Whenever an agent or a caller names it.
    Named,
    /// When the user text contains one of these, in any case, or it is named.
    Keyword(Vec<String>),
    Always,
}

/// The skills that are active, and what was asked for in vain.
#[derive(Debug, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// In merge order.
    pub skills: Vec<&'a Skill>,
    pub missing: Vec<String>,
}

#[derive(Deserialize)]
struct Fields {
    name: Option<String>,
    description: Option<String>,
    activation: Option<ActivationFields>,
}

#[derive(Deserialize)]
struct ActivationFields {
    mode: Option<Mode>,
    #[serde(default)]
    keywords: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Always,
    Keyword,
    Named,
}

impl Skill {
    /// Reads a `SKILL.md`. What cannot be used is a finding.
    pub fn parse(document: &[u8], source: &Arc<Source>) -> Result<Self, Diagnostic> {
        let (fields, body) =
            front_matter::read::<Fields>(document).map_err(|fault| fault.at(&source.path))?;
        let fields = fields.ok_or_else(|| {
            refused(
                source,
                Code::NoFrontMatter,
                "a skill begins with a line `---` and its `name` and `description`",
            )
        })?;
        let text =
            |value: Option<String>| value.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let missing =
            |field: &str| refused(source, Code::MissingField, &format!("`{field}` is missing; add it"));

        Ok(Self {
            name: text(fields.name).ok_or_else(|| missing("name"))?,
            description: text(fields.description).ok_or_else(|| missing("description"))?,
            prompt_body: body,
            activation: activation(fields.activation),
            source: Arc::clone(source),
            digest: Digest::of(document),
        })
    }

    fn is_called_for(&self, user_text: &str) -> bool {
        match &self.activation {
            Activation::Named => false,
            Activation::Keyword(keywords) => {
                keywords.iter().any(|keyword| user_text.contains(keyword.as_str()))
            }
            Activation::Always => true,
        }
    }
}

/// Finds the active skills for names and a user text.
pub fn resolve<'a>(skills: &'a [Arc<Skill>], names: &[String], user_text: &str) -> Resolved<'a> {
    let user_text = user_text.to_lowercase();
    let is_named = |skill: &Skill| names.contains(&skill.name);
    let skills_by_text = skills.iter().map(Arc::as_ref);
    let active = skills_by_text.filter(|skill| is_named(skill) || skill.is_called_for(&user_text)).collect();
    let mut missing: Vec<String> = Vec::new();
    for name in names {
        if !skills.iter().any(|skill| skill.name == *name) && !missing.contains(name) {
            missing.push(name.clone());
        }
    }
    Resolved { skills: active, missing }
}

/// Keeps the first of each name, in the order given; a second one in the same source is a finding.
pub fn first_wins(
    skills: impl IntoIterator<Item = Arc<Skill>>,
    findings: &mut Vec<Diagnostic>,
) -> Vec<Arc<Skill>> {
    first_of_each(skills, "skill", |skill| (&skill.name, &skill.source), findings)
}

/// Keywords are kept in lower case, as they are compared. A skill with keywords and no mode means them.
fn activation(fields: Option<ActivationFields>) -> Activation {
    let Some(ActivationFields { mode, keywords }) = fields else { return Activation::Named };
    let keywords: Vec<String> = keywords
        .iter()
        .map(|keyword| keyword.trim().to_lowercase())
        .filter(|keyword| !keyword.is_empty())
        .collect();
    match mode {
        Some(Mode::Always) => Activation::Always,
        Some(Mode::Named) => Activation::Named,
        Some(Mode::Keyword) => Activation::Keyword(keywords),
        None if keywords.is_empty() => Activation::Named,
        None => Activation::Keyword(keywords),
    }
}

fn refused(source: &Source, code: Code, message: &str) -> Diagnostic {
    let mut diagnostic = Diagnostic::new(Severity::Error, code, 1, 1, message);
    diagnostic.path.clone_from(&source.path);
    diagnostic
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agent::SourceKind, document::tests::source};

    fn parse(text: &str) -> Result<Arc<Skill>, Diagnostic> {
        Skill::parse(text.as_bytes(), &source(SourceKind::Root, 9, "/d/skills/s/SKILL.md")).map(Arc::new)
    }

    fn skill(name: &str, activation: &str) -> Arc<Skill> {
        parse(&format!("---\nname: {name}\ndescription: d\n{activation}\n---\nBody of {name}.\n")).unwrap()
    }

    #[track_caller]
    fn refused(text: &str, code: Code) {
        assert_eq!(parse(text).unwrap_err().code, code, "{text:?}");
    }

    #[test]
    fn a_skill_needs_a_name_and_a_description() {
        refused("Body.\n", Code::NoFrontMatter);
        refused("---\nname: a\n---\n", Code::MissingField);
        refused("---\ndescription: d\nname: ''\n---\n", Code::MissingField);
        refused("---\nname: [\n---\n", Code::YamlInvalid);
        refused("---\nname: a\ndescription: d\nactivation: {mode: sometimes}\n---\n", Code::YamlInvalid);
    }

    #[test]
    fn a_skill_is_active_when_named_called_for_or_always() {
        let skills = [
            skill("quiet", ""),
            skill("disk", "activation: {mode: keyword, keywords: [Disk Full, inode]}"),
            skill("house-style", "activation: {mode: always}"),
        ];
        let active = |names: &[&str], text: &str| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            let resolved = resolve(&skills, &names, text);
            let active: Vec<String> = resolved.skills.iter().map(|skill| skill.name.clone()).collect();
            (active.join(" "), resolved.missing.join(" "))
        };

        assert_eq!(active(&[], ""), ("house-style".into(), String::new()));
        assert_eq!(active(&[], "my DISK FULL alarm"), ("disk house-style".into(), String::new()));
        assert_eq!(active(&["quiet", "no", "no"], "x"), ("quiet house-style".into(), "no".into()));
        assert_eq!(active(&["disk"], ""), ("disk house-style".into(), String::new()));
    }

    #[test]
    fn the_first_skill_of_a_name_wins() {
        let mut findings = Vec::new();

        let kept = first_wins([skill("a", ""), skill("b", ""), skill("a", "")], &mut findings);

        assert_eq!(kept.len(), 2);
        assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [Code::DuplicateName]);
    }
}
