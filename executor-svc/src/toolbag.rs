//! Which tools a session has. What a definition selects is only ever narrowed, and each tool's fate comes with its rule.

pub mod class;
mod pattern;
mod selection;

use std::collections::BTreeMap;

pub use self::pattern::Pattern;
use self::selection::Selection;
use crate::{
    definition::{PermissionMode, SpawnPolicy, ToolSelection},
    tool::{Class, name},
};

/// A tool that the executor has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// On the wire.
    pub name: String,
    /// After the operator's table.
    pub class: Class,
    /// The MCP server it comes from; empty when built in.
    pub server: String,
    /// What that server calls it; empty when built in.
    pub own_name: String,
    /// Set when it is not there: why.
    pub off: Option<String>,
}

/// All that decides over a session's bag.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The definition's `tools`.
    pub selection: &'a ToolSelection,
    /// The definition's `disallowed_tools`.
    pub disallowed: &'a [String],
    /// The definition's `mcp_servers`.
    pub mcp_servers: &'a [String],
    /// Whom the session may spawn: its definition's policy within its root's.
    pub spawns: &'a SpawnPolicy,
    pub permission_mode: PermissionMode,
    pub plan_mode: bool,
    pub depth: u32,
    /// `limits.max_recursion_depth`. `None` is unlimited.
    pub depth_max: Option<u32>,
    /// Patterns of the tools that the root grants to its tree (`limits.root_tools`).
    pub root_tools: &'a [String],
    /// The operator's names for tools (`tools.aliases`).
    pub aliases: &'a BTreeMap<String, String>,
    pub is_coordinator: bool,
}

/// A tool's fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub granted: bool,
    /// The rule that granted it or took it away, as a sentence.
    pub rule: String,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bag {
    /// One for each known tool, in their order.
    pub verdicts: Vec<Verdict>,
    /// Entries of the selection that select nothing, each as a sentence that says why.
    pub notes: Vec<String>,
}

/// The built-in tools as they are before the operator's classes.
pub fn builtins(bash: bool) -> Vec<Known> {
    let bash_off = (!bash).then_some("it is switched off by the operator (`tools.bash`)");
    [
        (name::READ, Class::Read, None),
        (name::GREP, Class::Read, None),
        (name::FIND, Class::Read, None),
        (name::LS, Class::Read, None),
        (name::WRITE, Class::Write, None),
        (name::EDIT, Class::Write, None),
        (name::BASH, Class::Destructive, bash_off),
        (name::SPAWN, Class::Read, None),
        (name::SEND_MESSAGE, Class::Read, None),
        (name::STOP, Class::Read, None),
        (name::SUBMIT_RESULT, Class::Read, None),
    ]
    .map(|(name, class, off)| Known {
        name: name.to_owned(),
        class,
        server: String::new(),
        own_name: String::new(),
        off: off.map(str::to_owned),
    })
    .into()
}

/// Decides for each known tool. The first rule that takes a tool away is the one that is named.
pub fn pack(known: &[Known], rules: &Rules<'_>) -> Bag {
    let selection = Selection::new(known, rules);
    let verdicts = known
        .iter()
        .map(|tool| match decide(tool, known, rules, &selection) {
            Ok(rule) => Verdict { granted: true, rule },
            Err(rule) => Verdict { granted: false, rule },
        })
        .collect();
    Bag { verdicts, notes: selection.notes }
}

impl Bag {
    /// The names of the tools that are granted. `known` is what the bag was packed from.
    pub fn granted<'a>(&'a self, known: &'a [Known]) -> impl Iterator<Item = &'a str> {
        known
            .iter()
            .zip(&self.verdicts)
            .filter(|(_, verdict)| verdict.granted)
            .map(|(tool, _)| tool.name.as_str())
    }
}

impl SpawnPolicy {
    /// True when there is an agent that may be spawned.
    pub fn permits_any(&self) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Listed(names) => !names.is_empty(),
        }
    }
}

/// `Ok` is the rule that grants, `Err` the one that takes away.
fn decide(tool: &Known, known: &[Known], rules: &Rules<'_>, selection: &Selection) -> Result<String, String> {
    if tool.name == name::SUBMIT_RESULT {
        return Ok("every session may hand in its result".to_owned());
    }
    if let Some(reason) = &tool.off {
        return Err(reason.clone());
    }
    if let Some(pattern) = selection::denying(tool, rules.disallowed, rules.aliases) {
        return Err(format!("`disallowed_tools` takes it away (`{pattern}`)"));
    }
    let granted = match tool.name.as_str() {
        name::SPAWN => spawning(rules)?,
        name::SEND_MESSAGE | name::STOP => match rules.is_coordinator {
            true => "coordinators have it".to_owned(),
            false => return Err("only coordinators have it".to_owned()),
        },
        _ => selection.of(tool)?,
    };
    if !selection::grants(rules.root_tools, tool, known, rules.aliases) {
        return Err("the root session does not grant it to its tree (`root_tools`)".to_owned());
    }
    match (tool.class, rules.permission_mode, rules.plan_mode) {
        (Class::Read, _, _)
        | (
            Class::Write | Class::Destructive,
            PermissionMode::DualSign | PermissionMode::MutatingWithReview,
            false,
        ) => Ok(granted),
        (class @ (Class::Write | Class::Destructive), PermissionMode::ReadOnly, _) => {
            Err(format!("the permission mode `read-only` takes tools of class {} away", word(class)))
        }
        (
            class @ (Class::Write | Class::Destructive),
            PermissionMode::DualSign | PermissionMode::MutatingWithReview,
            true,
        ) => Err(format!("plan mode takes tools of class {} away", word(class))),
    }
}

fn spawning(rules: &Rules<'_>) -> Result<String, String> {
    if !rules.spawns.permits_any() {
        return Err("the session may spawn no agent (`spawns`)".to_owned());
    }
    if let Some(maximum) = rules.depth_max.filter(|maximum| rules.depth >= *maximum) {
        return Err(format!("the session is at depth {} and the maximum is {maximum}", rules.depth));
    }
    if rules.plan_mode {
        return Err("plan mode permits no spawn".to_owned());
    }
    Ok("the session may spawn agents (`spawns`)".to_owned())
}

fn word(class: Class) -> &'static str {
    match class {
        Class::Read => "read",
        Class::Write => "write",
        Class::Destructive => "destructive",
    }
}

#[cfg(test)]
mod tests;
