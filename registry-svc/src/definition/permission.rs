//! Permission modes, and the restrictions of other products that are translated into ours.

use crate::{
    agent::{PermissionMode, SpawnPolicy},
    diagnostic::Code,
};

use super::{
    finding::{Findings, Position, shown},
    key::{Translated, fold},
    node::{Node, Value},
    tool,
    unique::Unique,
};

/// What OpenCode's `permission` means here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Permission {
    /// Denied tools in the order written, as in `disallowed_tools`.
    pub(super) denied: Vec<String>,
    /// Everything else is denied: these are the tools.
    pub(super) allowed_only: Option<Vec<String>>,
    /// What the pattern map of `task` allows.
    pub(super) spawns: Option<SpawnPolicy>,
}

/// A word of OpenCode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allow,
    Ask,
    Deny,
}

/// Reads `permission_mode`.
pub(super) fn mode(node: &Node, findings: &mut Findings) -> Option<PermissionMode> {
    const MEND: &str = "use `read-only`, `dual-sign` or `mutating-with-review`";
    let written = node.written();
    let Value::Text(text) = &node.value else {
        findings.refuse_restriction(node.at, format!("`permission_mode` is {}, {MEND}", node.kind()));
        return None;
    };
    match fold(text.text.trim()).as_str() {
        "readonly" | "plan" => Some(PermissionMode::ReadOnly),
        "mutatingwithconfirm" | "mutatingwithreview" => Some(PermissionMode::MutatingWithReview),
        "dualsignrequired" | "dualsign" => Some(PermissionMode::DualSign),
        "default" | "acceptedits" | "dontask" | "auto" | "manual" | "ask" => {
            let message =
                format!("`permission_mode` {} is no mode here and counts as absent, {MEND}", shown(&written));
            findings.warn(Code::UnknownValue, node.at, message);
            None
        }
        "bypasspermissions" => {
            privilege_ignored("permission_mode", node, findings);
            None
        }
        _ => {
            findings.refuse_restriction(
                node.at,
                format!("`permission_mode` {} is unknown, {MEND}", shown(&written)),
            );
            None
        }
    }
}

/// Reads a mode in the language of another product; `key` is as written.
pub(super) fn translated_mode(
    kind: Translated,
    key: &str,
    node: &Node,
    findings: &mut Findings,
) -> Option<PermissionMode> {
    let word = match &node.value {
        Value::Bool(value) => value.to_string(),
        Value::Text(text) => fold(text.text.trim()),
        Value::Null | Value::Number(_) | Value::List(_) | Value::Map(_) => String::new(),
    };
    match (kind, word.as_str()) {
        (Translated::ReadOnly, "true") => Some(PermissionMode::ReadOnly),
        (Translated::ReadOnly, "false") => None,
        (Translated::SandboxMode, "readonly") => Some(PermissionMode::ReadOnly),
        (Translated::SandboxMode, "workspacewrite") => None,
        (Translated::SandboxMode, "dangerfullaccess") => {
            privilege_ignored(key, node, findings);
            None
        }
        (Translated::ApprovalMode, "plan") => Some(PermissionMode::ReadOnly),
        (Translated::ApprovalMode, "default" | "autoedit" | "yolo") => {
            let value = shown(&node.written());
            let message =
                format!("{} {value} is no mode here and counts as absent, use `permission_mode`", shown(key));
            findings.warn(Code::UnknownValue, node.at, message);
            None
        }
        (
            Translated::ReadOnly
            | Translated::SandboxMode
            | Translated::ApprovalMode
            | Translated::Permission,
            _,
        ) => {
            foreign(key, node, findings);
            None
        }
    }
}

/// Reads OpenCode's `permission`: a word, or a map of tool to a word or to a map of patterns to words.
pub(super) fn permission(key: &str, node: &Node, findings: &mut Findings) -> Permission {
    let mut permission = Permission::default();
    let pairs = match (&node.value, verdict(node)) {
        (_, Some(Verdict::Deny)) => {
            permission.denied.push("*".to_owned());
            return permission;
        }
        (_, Some(Verdict::Allow | Verdict::Ask)) => return permission,
        (Value::Map(pairs), None) => pairs,
        (_, None) => {
            foreign(key, node, findings);
            return permission;
        }
    };
    let mut denies_rest = false;
    let mut denied = Unique::default();
    let mut allowed = Unique::default();
    for (name, value) in pairs {
        let Some((tool_name, rule)) = rule(name, value) else {
            foreign(key, value, findings);
            continue;
        };
        let tool = tool::canonical(tool_name);
        match rule {
            Rule::Patterns(patterns) if tool == tool::SPAWN_TOOL => {
                permission.spawns = Some(spawns(&patterns, value.at, findings));
            }
            Rule::Patterns(patterns) => {
                let denies = patterns.iter().any(|(_, verdict)| *verdict == Verdict::Deny);
                let allows = patterns.iter().any(|(_, verdict)| *verdict == Verdict::Allow);
                if denies && allows {
                    unsupported_pattern(tool_name, value.at, findings);
                }
                if denies && tool == "*" {
                    denies_rest = true;
                } else if denies {
                    deny(key, name, tool, &mut denied, findings);
                }
            }
            Rule::Word(Verdict::Deny) if tool == "*" => denies_rest = true,
            Rule::Word(Verdict::Deny) => deny(key, name, tool, &mut denied, findings),
            Rule::Word(Verdict::Allow) if tool != "*" => allowed.add(tool),
            Rule::Word(Verdict::Allow | Verdict::Ask) => {}
        }
    }
    if denies_rest && allowed.is_empty() {
        denied.add("*");
    } else if denies_rest {
        permission.allowed_only = Some(allowed.into_vec());
    }
    permission.denied = denied.into_vec();
    permission
}

enum Rule<'a> {
    Word(Verdict),
    Patterns(Vec<(&'a str, Verdict)>),
}

/// What a map says of one tool.
fn rule<'a>(name: &'a Node, value: &'a Node) -> Option<(&'a str, Rule<'a>)> {
    let Value::Text(name) = &name.value else { return None };
    if let Some(verdict) = verdict(value) {
        return Some((name.text.trim(), Rule::Word(verdict)));
    }
    let Value::Map(pairs) = &value.value else { return None };
    let patterns = pairs.iter().map(|(pattern, value)| match &pattern.value {
        Value::Text(pattern) => Some((pattern.text.trim(), verdict(value)?)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => None,
    });
    Some((name.text.trim(), Rule::Patterns(patterns.collect::<Option<_>>()?)))
}

fn verdict(node: &Node) -> Option<Verdict> {
    let Value::Text(text) = &node.value else { return None };
    match fold(text.text.trim()).as_str() {
        "allow" => Some(Verdict::Allow),
        "ask" => Some(Verdict::Ask),
        "deny" => Some(Verdict::Deny),
        _ => None,
    }
}

/// The agents that are allowed by name; a pattern cannot be said in a spawn policy and allows none.
fn spawns(patterns: &[(&str, Verdict)], at: Position, findings: &mut Findings) -> SpawnPolicy {
    let allowed =
        || patterns.iter().filter(|(_, verdict)| *verdict == Verdict::Allow).map(|(pattern, _)| *pattern);
    let is_pattern = |name: &&str| name.contains(['*', '?']);
    if allowed().any(|name| is_pattern(&name)) {
        unsupported_pattern(tool::SPAWN_TOOL, at, findings);
    }
    tool::spawn_policy(allowed().filter(|name| !is_pattern(name)))
}

fn deny(key: &str, name: &Node, tool: &str, denied: &mut Unique, findings: &mut Findings) {
    match tool::deny(tool) {
        Ok(names) => {
            for name in names {
                let takes_write = name == tool::EDIT;
                denied.add(name);
                if takes_write {
                    denied.add(tool::WRITE);
                }
            }
        }
        Err(_) => foreign(key, name, findings),
    }
}

/// Says that a restriction of another product cannot be read.
pub(super) fn foreign(key: &str, node: &Node, findings: &mut Findings) {
    let message = format!(
        "{} {} is a restriction of another product that cannot be read, use `tools`, `disallowed_tools` or `permission_mode`",
        shown(key),
        shown(&node.written()),
    );
    findings.refuse(Code::ForeignRestriction, node.at, message);
}

/// Says that a privilege was dropped, which no file can give itself.
pub(super) fn privilege_ignored(key: &str, node: &Node, findings: &mut Findings) {
    let message = format!(
        "{} {} is ignored, a definition cannot give itself a privilege, ask the operator",
        shown(key),
        shown(&node.written()),
    );
    findings.warn(Code::PrivilegeIgnored, node.at, message);
}

fn unsupported_pattern(tool: &str, at: Position, findings: &mut Findings) {
    let message = format!(
        "patterns for {} allow nothing here, only whole tools and agents by name can be allowed",
        shown(tool)
    );
    findings.warn(Code::UnsupportedSpecifier, at, message);
}
