//! What a definition's `tools` and `mcp_servers` select, and what a list of patterns is about.

use std::collections::BTreeMap;

use super::{Known, Pattern, Rules};
use crate::{definition::ToolSelection, tool::name};

/// The tools selected, by wire name, each with the entry that selected it.
pub(super) struct Selection {
    mode: Mode,
    by_entry: BTreeMap<String, String>,
    pub(super) notes: Vec<String>,
}

#[derive(Clone, Copy)]
enum Mode {
    Inherit,
    All,
    Listed,
}

impl Selection {
    pub(super) fn new(known: &[Known], rules: &Rules<'_>) -> Self {
        let (mode, listed) = match rules.selection {
            ToolSelection::Inherit => (Mode::Inherit, &[][..]),
            ToolSelection::All => (Mode::All, &[][..]),
            ToolSelection::Listed(names) => (Mode::Listed, names.as_slice()),
        };
        let mut selection = Self { mode, by_entry: BTreeMap::new(), notes: Vec::new() };
        for entry in listed {
            selection.add(entry, known, rules.aliases);
        }
        for server in rules.mcp_servers {
            selection.add_server(server, known);
        }
        selection
    }

    /// The rule that selects a tool, or the one that leaves it out.
    pub(super) fn of(&self, tool: &Known) -> Result<String, String> {
        match (self.mode, self.by_entry.get(&tool.name)) {
            (_, Some(rule)) => Ok(rule.clone()),
            (Mode::Inherit, None) => Ok("`tools` is absent, so every tool is inherited".to_owned()),
            (Mode::All, None) => Ok("`tools` selects every tool (`*`)".to_owned()),
            (Mode::Listed, None) => Err("`tools` does not list it".to_owned()),
        }
    }

    fn add(&mut self, entry: &str, known: &[Known], aliases: &BTreeMap<String, String>) {
        let target = aliases.get(entry).map_or(entry, String::as_str);
        let selected: Vec<&Known> = known.iter().filter(|tool| selects(target, tool, known)).collect();
        if selected.is_empty() && !is_spawn_tool(entry) {
            self.notes.push(why_nothing(entry, target, known));
        }
        for tool in selected {
            let rule = match target == entry {
                true => format!("`tools` lists it (`{entry}`)"),
                false => format!("`tools` lists it (`{entry}`, the operator's alias for `{target}`)"),
            };
            self.by_entry.entry(tool.name.clone()).or_insert(rule);
        }
    }

    fn add_server(&mut self, server: &str, known: &[Known]) {
        let mut tools =
            known.iter().filter(|tool| !tool.server.is_empty() && tool.server == server).peekable();
        if tools.peek().is_none() {
            self.notes.push(format!("`mcp_servers` names `{server}`, which has no tools here"));
        }
        for tool in tools {
            let rule = format!("`mcp_servers` lists its server (`{server}`)");
            self.by_entry.entry(tool.name.clone()).or_insert(rule);
        }
    }
}

/// The first pattern that is about a tool, under any of its names.
pub(super) fn denying<'a>(
    tool: &Known,
    patterns: &'a [String],
    aliases: &BTreeMap<String, String>,
) -> Option<&'a str> {
    let means = |text: &str| {
        let pattern = Pattern(text);
        pattern.matches(&tool.name)
            || name::product_names(&tool.name).iter().any(|other| pattern.matches(other))
            || (!tool.server.is_empty() && (pattern.matches(&tool.own_name) || text == whole_server(tool)))
    };
    let matches = |text: &str| {
        let targets = aliases.iter().filter(|(alias, _)| Pattern(text).matches(alias));
        means(text) || targets.into_iter().any(|(_, target)| means(target))
    };
    patterns.iter().map(String::as_str).find(|pattern| matches(pattern))
}

/// Whether a list of patterns grants a tool. A grant is read narrowly where a denial is read widely: what an MCP server
/// calls its tool counts only where nothing else is called so.
pub(super) fn grants(
    patterns: &[String],
    tool: &Known,
    known: &[Known],
    aliases: &BTreeMap<String, String>,
) -> bool {
    patterns.iter().any(|entry| {
        let target = aliases.get(entry).unwrap_or(entry);
        let pattern = Pattern(target);
        selects(target, tool, known)
            || pattern.matches(&tool.name)
            || name::product_names(&tool.name).iter().any(|other| pattern.matches(other))
    })
}

/// An entry of a list selects a tool by its wire name, by its server, by a pattern of MCP tools, or by what its server
/// calls it where nothing else is called so.
fn selects(entry: &str, tool: &Known, known: &[Known]) -> bool {
    if entry == tool.name {
        return true;
    }
    if tool.server.is_empty() {
        return false;
    }
    let pattern = Pattern(entry);
    entry == whole_server(tool)
        || (entry.starts_with("mcp__") && !pattern.is_exact() && pattern.matches(&tool.name))
        || (entry == tool.own_name && named(entry, known).count() == 1)
}

/// The tools a bare name may mean.
fn named<'a>(bare: &'a str, known: &'a [Known]) -> impl Iterator<Item = &'a Known> {
    known.iter().filter(move |tool| tool.name == bare || (!tool.server.is_empty() && tool.own_name == bare))
}

fn why_nothing(entry: &str, target: &str, known: &[Known]) -> String {
    let candidates: Vec<&str> = named(target, known).map(|tool| tool.name.as_str()).collect();
    match candidates.len() {
        0 => format!("`tools` lists `{entry}`, which is no tool here"),
        _ => format!(
            "`tools` lists `{entry}`, which may mean any of {}: use the whole name",
            candidates.join(", ")
        ),
    }
}

fn whole_server(tool: &Known) -> String {
    format!("mcp__{}", tool.server)
}

/// Selected by the spawn policy, which the registry has made of its entries.
fn is_spawn_tool(entry: &str) -> bool {
    entry == name::SPAWN || name::product_names(name::SPAWN).contains(&entry)
}
