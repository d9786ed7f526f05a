//! What a coordinator's system prompt says of the agents: one short row each.

use std::sync::Arc;

use crate::{agent::SpawnPolicy, document::Definition};

/// Agents that no coordinator may spawn: itself, and the one that only the review gate asks.
const NEVER_LISTED: [&str; 2] = ["default", "reviewer"];

/// At most this many rows: a longer catalog costs every turn of every coordinator more than it helps.
const ENTRIES_MAX: usize = 100;

/// Longest description, in characters.
const DESCRIPTION_MAX: usize = 1024;

/// Longest `when_to_use`, in characters.
const WHEN_TO_USE_MAX: usize = 256;

/// The rows of a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// In merge order.
    pub entries: Vec<Entry>,
    /// How many more agents there are.
    pub omitted: usize,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub description: String,
    pub when_to_use: String,
}

/// Lists the agents that a policy allows; without one, all but those that are never listed.
pub fn catalog(in_force: &[Arc<Definition>], spawns: Option<&SpawnPolicy>) -> Catalog {
    let listed = in_force.iter().map(|definition| &definition.agent).filter(|agent| {
        let name = agent.name.as_str();
        !NEVER_LISTED.contains(&name) && spawns.is_none_or(|policy| allows(policy, name))
    });
    let mut catalog = Catalog { entries: Vec::new(), omitted: 0 };
    for agent in listed {
        if catalog.entries.len() == ENTRIES_MAX {
            catalog.omitted += 1;
            continue;
        }
        catalog.entries.push(Entry {
            name: agent.name.as_str().to_owned(),
            description: cut(&one_line(&agent.description), DESCRIPTION_MAX),
            when_to_use: cut(
                agent.when_to_use.trim().lines().next().unwrap_or_default().trim(),
                WHEN_TO_USE_MAX,
            ),
        });
    }
    catalog
}

fn allows(policy: &SpawnPolicy, name: &str) -> bool {
    match policy {
        SpawnPolicy::None => false,
        SpawnPolicy::All => true,
        SpawnPolicy::Listed(names) => names.iter().any(|listed| listed == name),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At most `length_max` characters; what was cut ends in `…`.
fn cut(text: &str, length_max: usize) -> String {
    match text.char_indices().nth(length_max) {
        None => text.to_owned(),
        Some(_) => {
            let kept: String = text.chars().take(length_max - 1).collect();
            format!("{kept}…")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::tests::definition;

    fn names(catalog: &Catalog) -> Vec<&str> {
        catalog.entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn the_coordinator_and_the_reviewer_are_never_listed() {
        let in_force = ["default", "explore", "reviewer", "plan"].map(|name| definition(name, "d"));

        assert_eq!(names(&catalog(&in_force, None)), ["explore", "plan"]);
        assert_eq!(names(&catalog(&in_force, Some(&SpawnPolicy::All))), ["explore", "plan"]);
        let listed = SpawnPolicy::Listed(vec!["plan".to_owned(), "reviewer".to_owned(), "nobody".to_owned()]);
        assert_eq!(names(&catalog(&in_force, Some(&listed))), ["plan"]);
        assert!(catalog(&in_force, Some(&SpawnPolicy::None)).entries.is_empty());
    }

    #[test]
    fn texts_are_one_line_and_cut() {
        let description = format!("a\n  b\n\n{}", "ü".repeat(2000));

        let catalog = catalog(&[definition("x", &description)], None);

        let shown = &catalog.entries[0].description;
        assert_eq!(shown.chars().count(), DESCRIPTION_MAX);
        assert!(shown.starts_with("a b ü") && shown.ends_with("ü…"), "{shown}");
    }

    #[test]
    fn a_long_catalog_says_how_many_it_leaves_out() {
        let in_force: Vec<_> = (0..130).map(|number| definition(&format!("agent-{number}"), "d")).collect();

        let catalog = catalog(&in_force, None);

        assert_eq!((catalog.entries.len(), catalog.omitted), (ENTRIES_MAX, 30));
        assert_eq!(catalog.entries[99].name, "agent-99");
    }
}
