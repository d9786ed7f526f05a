//! Names of tools: one alias table, comma text, specifiers, patterns, and the spawn tool with its lists.

use std::collections::HashSet;

use crate::agent::{SpawnPolicy, ToolSelection};

use super::{name, unique::Unique};

/// With this tool an agent ends its work; nothing can leave it out or deny it.
pub(super) const SUBMIT_RESULT: &str = "submit_result";

/// The spawn tool as definitions name it.
pub(super) const SPAWN_TOOL: &str = "task";

/// The tool that changes a file in place; OpenCode means `write` by it too.
pub(super) const EDIT: &str = "edit";

/// The tool that writes whole files.
pub(super) const WRITE: &str = "write";

/// Names of other products and what they are here.
#[rustfmt::skip]
const ALIASES: &[(&str, &str)] = &[
    ("Read", "read"), ("read_file", "read"), ("ReadFile", "read"), ("ReadManyFiles", "read"),
    ("Grep", "grep"), ("grep_search", "grep"), ("search_file_content", "grep"),
    ("Glob", "find"), ("glob", "find"),
    ("LS", "ls"), ("list", "ls"), ("list_directory", "ls"),
    ("Write", WRITE), ("write_file", WRITE), ("WriteFile", WRITE),
    ("Edit", EDIT), ("MultiEdit", EDIT), ("edit_file", EDIT), ("replace", EDIT), ("patch", EDIT),
    ("Bash", "bash"), ("run_shell_command", "bash"), ("Shell", "bash"), ("shell", "bash"),
    ("Agent", SPAWN_TOOL), ("Task", SPAWN_TOOL), ("AgentTool", SPAWN_TOOL),
];

/// One entry of `tools`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// `*`
    All,
    Tool(String),
    /// The spawn tool with the agents it may spawn.
    Spawn(SpawnPolicy),
    /// A specifier that is not understood; it grants nothing.
    Unsupported,
}

/// What `tools` grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) selection: ToolSelection,
    /// The union of the spawn tool's lists; absent where it has none.
    spawn_lists: Option<SpawnPolicy>,
    /// The spawn tool is listed without a list.
    bare_spawn: bool,
}

impl Granted {
    /// `tools` is not there.
    pub(super) fn inherited() -> Self {
        Self { selection: ToolSelection::Inherit, spawn_lists: None, bare_spawn: false }
    }

    /// Unites entries in the order written. `*` is all; otherwise it is a list, which always ends a run properly.
    pub(super) fn new(entries: impl IntoIterator<Item = Grant>) -> Self {
        let mut names = Unique::default();
        let mut lists: Option<SpawnLists> = None;
        let mut granted = Self::inherited();
        let mut all = false;
        for entry in entries {
            match entry {
                Grant::All => all = true,
                Grant::Tool(name) => {
                    granted.bare_spawn |= name == SPAWN_TOOL;
                    names.add(name);
                }
                Grant::Spawn(policy) => {
                    names.add(SPAWN_TOOL);
                    lists.get_or_insert_default().add(policy);
                }
                Grant::Unsupported => {}
            }
        }
        granted.spawn_lists = lists.map(SpawnLists::into_policy);
        granted.selection = if all { ToolSelection::All } else { listed(names) };
        granted
    }

    /// The spawn policy where none is written.
    pub(super) fn implied_spawns(&self) -> SpawnPolicy {
        match (&self.spawn_lists, &self.selection) {
            (Some(lists), _) => lists.clone(),
            (None, ToolSelection::Listed(_)) if self.bare_spawn => SpawnPolicy::All,
            (None, ToolSelection::Listed(_) | ToolSelection::Inherit | ToolSelection::All) => {
                SpawnPolicy::None
            }
        }
    }

    /// Keeps only what `allowed` has too.
    pub(super) fn cut_to(&mut self, allowed: Vec<String>) {
        let names = match &self.selection {
            ToolSelection::Inherit | ToolSelection::All => allowed.into_iter().collect(),
            ToolSelection::Listed(names) => {
                let mut kept: Unique = covered(names, &allowed).collect();
                kept.extend(covered(&allowed, names));
                kept
            }
        };
        let names = names.into_vec();
        let had_spawn = self.selection != ToolSelection::Inherit && self.spawn_lists.is_some();
        let has_spawn = names.iter().any(|name| name == SPAWN_TOOL);
        if !has_spawn {
            self.spawn_lists = None;
        }
        self.bare_spawn = has_spawn && !had_spawn;
        self.selection = listed(names.into_iter().collect());
    }
}

/// The lists of several spawn tools, united.
#[derive(Debug, Default)]
struct SpawnLists {
    all: bool,
    names: Unique,
}

impl SpawnLists {
    fn add(&mut self, policy: SpawnPolicy) {
        match policy {
            SpawnPolicy::All => self.all = true,
            SpawnPolicy::None => {}
            SpawnPolicy::Listed(names) => self.names.extend(names),
        }
    }

    fn into_policy(self) -> SpawnPolicy {
        if self.all {
            SpawnPolicy::All
        } else if self.names.is_empty() {
            SpawnPolicy::None
        } else {
            SpawnPolicy::Listed(self.names.into_vec())
        }
    }
}

/// Splits comma text outside parentheses. Parts are trimmed, empty ones go.
pub(super) fn split_commas(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

/// The name of a tool here.
pub(super) fn canonical(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, own)| own)
}

/// Reads one entry of `tools`.
pub(super) fn grant(entry: &str) -> Grant {
    if entry == "*" {
        return Grant::All;
    }
    let Some((tool, specifier)) = specifier(entry) else {
        return if entry.contains(['(', ')']) {
            Grant::Unsupported
        } else {
            Grant::Tool(canonical(entry).to_owned())
        };
    };
    if canonical(tool) == SPAWN_TOOL {
        Grant::Spawn(spawn_policy(split_commas(specifier)))
    } else {
        Grant::Unsupported
    }
}

/// Reads one entry of `disallowed_tools`: what it denies, or why it would deny nothing.
///
/// A pattern comes with the tools whose names in other products it matches.
pub(super) fn deny(entry: &str) -> Result<Vec<String>, &'static str> {
    let name = specifier(entry).map_or(entry, |(tool, _)| tool);
    if name.is_empty() {
        return Err("names no tool");
    }
    if name.contains(char::is_whitespace) {
        return Err("contains a blank");
    }
    if name.contains(['"', '\'', '`']) {
        return Err("contains a quote");
    }
    if name.contains(['[', ']', '{', '}', '(', ')']) {
        return Err("contains a bracket outside its specifier");
    }
    match name.matches('*').count() {
        0 => return Ok(vec![canonical(name).to_owned()]),
        1 if name.starts_with('*') || name.ends_with('*') => {}
        _ => return Err("has a `*` elsewhere than at one end"),
    }
    let mut denied = Unique::from_iter([name]);
    denied.extend(
        ALIASES.iter().filter(|(alias, own)| covers(name, alias) && !covers(name, own)).map(|(_, own)| *own),
    );
    Ok(denied.into_vec())
}

/// A spawn policy from the elements of a list. An element `*` means all.
pub(super) fn spawn_policy<'a>(elements: impl Iterator<Item = &'a str>) -> SpawnPolicy {
    let mut lists = SpawnLists::default();
    for element in elements {
        if element == "*" {
            lists.all = true;
        } else {
            // Names are compared exactly, in the form that the name of an agent has.
            lists.names.add(name::check(element).unwrap_or_else(|_| element.to_owned()));
        }
    }
    lists.into_policy()
}

/// True when an entry of `denied` takes the spawn tool away.
pub(super) fn denies_spawn(denied: &[String]) -> bool {
    denied.iter().any(|pattern| {
        let spellings = ALIASES.iter().filter(|(_, own)| *own == SPAWN_TOOL).map(|(alias, _)| *alias);
        spellings.chain([SPAWN_TOOL]).any(|spelling| covers(pattern, spelling))
    })
}

/// True where `pattern` (exact, `prefix*`, `*suffix` or `*`) matches `name`.
fn covers(pattern: &str, name: &str) -> bool {
    match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(prefix), _) => name.starts_with(prefix),
        (None, Some(suffix)) => name.ends_with(suffix),
        (None, None) => pattern == name,
    }
}

/// A tool and the specifier behind it: `Bash(git *)` is `Bash` with `git *`.
fn specifier(entry: &str) -> Option<(&str, &str)> {
    let (tool, rest) = entry.split_once('(')?;
    let specifier = rest.strip_suffix(')')?;
    name::parentheses_balance(specifier).then_some((tool.trim_end(), specifier))
}

/// The names that are among `patterns` or match one of them.
fn covered<'a>(names: &'a [String], patterns: &'a [String]) -> impl Iterator<Item = &'a str> {
    let exact: HashSet<&str> = patterns.iter().map(String::as_str).collect();
    let wide: Vec<&str> =
        patterns.iter().map(String::as_str).filter(|pattern| pattern.contains('*')).collect();
    names
        .iter()
        .map(String::as_str)
        .filter(move |name| exact.contains(name) || wide.iter().any(|pattern| covers(pattern, name)))
}

fn listed(mut names: Unique) -> ToolSelection {
    names.add(SUBMIT_RESULT);
    ToolSelection::Listed(names.into_vec())
}

#[cfg(test)]
mod tests;
