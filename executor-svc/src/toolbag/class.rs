//! How dangerous a tool is: the operator's word first, then what its server says of it, then the worst.

use std::collections::BTreeMap;

use super::Pattern;
use crate::tool::{Class, name};

/// What an MCP server says of a tool. Absent is not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
}

/// A tool's class by the operator's `tools.classes`: the most dangerous of the patterns that match, otherwise `own`. Tools
/// that act on the session itself are always of class read.
pub fn decide(classes: &BTreeMap<String, Class>, tool: &str, own: Class) -> Class {
    if name::is_kernel(tool) {
        return Class::Read;
    }
    matching(classes, tool).max().unwrap_or(own)
}

/// The class of an MCP tool that the operator's table does not name. That it only reads is believed of a trusted server
/// alone.
pub fn of_hints(hints: Hints, is_trusted: bool) -> Class {
    match hints {
        Hints { read_only: Some(true), .. } if is_trusted => Class::Read,
        Hints { destructive: Some(false), .. } => Class::Write,
        Hints { read_only: Some(_) | None, destructive: Some(true) | None } => Class::Destructive,
    }
}

/// True when the operator's table says nothing of a tool.
pub fn is_unclassified(classes: &BTreeMap<String, Class>, tool: &str) -> bool {
    !name::is_kernel(tool) && matching(classes, tool).next().is_none()
}

fn matching<'a>(classes: &'a BTreeMap<String, Class>, tool: &'a str) -> impl Iterator<Item = Class> + 'a {
    classes.iter().filter(|(pattern, _)| Pattern(pattern).matches(tool)).map(|(_, class)| *class)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Class, Hints, decide, is_unclassified, of_hints};

    fn classes() -> BTreeMap<String, Class> {
        BTreeMap::from([
            ("mcp__files__*".to_owned(), Class::Read),
            ("mcp__files__write_*".to_owned(), Class::Write),
            ("*_all".to_owned(), Class::Destructive),
            ("bash".to_owned(), Class::Write),
            ("*Tool".to_owned(), Class::Destructive),
        ])
    }

    #[test]
    fn the_most_dangerous_match_wins() {
        for (tool, own, class) in [
            ("mcp__files__list", Class::Destructive, Class::Read),
            ("mcp__files__write_one", Class::Destructive, Class::Write),
            ("mcp__files__write_all", Class::Read, Class::Destructive),
            ("bash", Class::Destructive, Class::Write),
            ("write", Class::Write, Class::Write),
            ("mcp__other__x", Class::Destructive, Class::Destructive),
            ("AgentTool", Class::Destructive, Class::Read),
        ] {
            assert_eq!(decide(&classes(), tool, own), class, "{tool}");
        }
        assert!(is_unclassified(&classes(), "mcp__other__x") && !is_unclassified(&classes(), "bash"));
    }

    #[test]
    fn a_server_is_believed_only_as_far_as_it_is_trusted() {
        for (read_only, destructive, is_trusted, class) in [
            (None, None, true, Class::Destructive),
            (Some(true), None, true, Class::Read),
            (Some(true), None, false, Class::Destructive),
            (Some(true), Some(false), false, Class::Write),
            (Some(true), Some(true), true, Class::Read),
            (Some(false), Some(false), true, Class::Write),
            (None, Some(true), true, Class::Destructive),
            (Some(false), None, true, Class::Destructive),
        ] {
            let hints = Hints { read_only, destructive };
            assert_eq!(of_hints(hints, is_trusted), class, "{hints:?}, trusted {is_trusted}");
        }
    }
}
