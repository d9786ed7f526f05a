//! Every limit of the contract: its key, its default and why, in one list that configuration, overrides and `GetLimits` share.

mod bound;
mod names;
mod shown;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use service_kit::config::Span;

use self::shown::Shown as _;
pub use self::{bound::Bound, names::Names};
use crate::definition::PermissionMode;

/// Where a limit in force comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    Config,
    Workspace,
    Agent,
    Session,
    Request,
}

/// One limit in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: &'static str,
    pub value: String,
    pub origin: Origin,
}

macro_rules! limits {
    (
        replica { $( $(#[$r_doc:meta])* $r_name:ident: $r_type:ty = $r_default:expr; )* }
        workspace { $( $(#[$w_doc:meta])* $w_name:ident: $w_type:ty = $w_default:expr; )* }
    ) => {
        /// Limits. 0 means none, absent the default, `unlimited` no limit.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits {
            $( $(#[$r_doc])* pub $r_name: $r_type, )*
            $( $(#[$w_doc])* pub $w_name: $w_type, )*
        }

        /// The limits that a workspace sets otherwise. Absent keeps the one of `limits`.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct Overrides {
            $(
                $(#[$w_doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $w_name: Option<$w_type>,
            )*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $( $r_name: $r_default, )* $( $w_name: $w_default, )* }
            }
        }

        impl Limits {
            /// The limits of a workspace.
            pub fn with(&self, overrides: &Overrides) -> Self {
                Self {
                    $( $r_name: self.$r_name.clone(), )*
                    $( $w_name: overrides.$w_name.clone().unwrap_or_else(|| self.$w_name.clone()), )*
                }
            }

            /// Every limit in force in a workspace, with where it comes from.
            pub fn rows(&self, overrides: &Overrides) -> Vec<Row> {
                let default = Self::default();
                vec![
                    $( Row {
                        key: concat!("limits.", stringify!($r_name)),
                        value: self.$r_name.shown(),
                        origin: if self.$r_name == default.$r_name { Origin::Default } else { Origin::Config },
                    }, )*
                    $( match &overrides.$w_name {
                        Some(value) => Row {
                            key: concat!("limits.", stringify!($w_name)),
                            value: value.shown(),
                            origin: Origin::Workspace,
                        },
                        None => Row {
                            key: concat!("limits.", stringify!($w_name)),
                            value: self.$w_name.shown(),
                            origin: if self.$w_name == default.$w_name { Origin::Default } else { Origin::Config },
                        },
                    }, )*
                ]
            }
        }
    };
}

limits! {
    replica {
        /// Workers of this replica that may be in a model or tool call at once.
        max_running: Bound<u64> = Bound::Of(64);
        /// Workers of this replica that may be open: waiting, running or waiting for others.
        max_open: Bound<u64> = Bound::Of(4096);
        /// Accepted workers that may wait for a slot.
        queue_length: Bound<u64> = Bound::Of(256);
        /// How long an accepted worker may wait for a slot; then it fails.
        queue_wait: Bound<Span> = Bound::Of(Span::seconds(60));
    }
    workspace {
        /// A session at depth d may spawn when d is smaller. A root has depth 0; 0 forbids every spawn.
        max_recursion_depth: Bound<u64> = Bound::Of(2);
        /// Workers of one tree that may be in a model or tool call at once.
        max_running_per_tree: Bound<u64> = Bound::Of(32);
        /// Workers below one root in one coordinator turn, or within `tree_window`.
        max_spawns_per_tree: Bound<u64> = Bound::Of(200);
        /// Wall time of a coordinator turn, or of the worker directly below a caller's root and everything below it.
        tree_wall_time: Bound<Span> = Bound::Of(Span::seconds(2 * 60 * 60));
        /// Input plus output tokens of one tree, counted as `max_spawns_per_tree` is.
        tree_tokens: Bound<u64> = Bound::Unlimited;
        /// The sliding window in which the budgets of a caller's own root are counted.
        tree_window: Span = Span::seconds(24 * 60 * 60);
        /// Model turns of one worker where its definition does not say.
        max_turns: Bound<u64> = Bound::Of(30);
        /// Wall time of one worker, without the time it waits for a review or a person.
        worker_wall_time: Bound<Span> = Bound::Of(Span::seconds(30 * 60));
        /// Calls of one tool of class read in one run; repeated ones are answered from memory and do not count.
        read_calls_per_tool: Bound<u64> = Bound::Of(200);
        /// Calls of one tool of any other class in one run.
        calls_per_tool: Bound<u64> = Bound::Of(20);
        /// Time of one tool call; `tools.timeouts` sets it by pattern.
        tool_timeout: Span = Span::seconds(15);
        /// The mode of agents that do not name one, and the widest there is.
        permission_mode: PermissionMode = PermissionMode::MutatingWithReview;
        /// The agents that callers may spawn directly: `*` or a list of names.
        root_spawns: Names = Names::All;
        /// The tools that workers may be given: `*` or a list of names.
        root_tools: Names = Names::All;
        /// Agents that are switched off.
        disabled_agents: Vec<String> = Vec::new();
        /// Agents that nobody may spawn because they are what is running already.
        blocked_agents: Vec<String> = Vec::new();
    }
}

impl Origin {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Config => "config",
            Self::Workspace => "workspace",
            Self::Agent => "agent",
            Self::Session => "session",
            Self::Request => "request",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::definition::SpawnPolicy;

    fn read(value: Value) -> Limits {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn absent_is_the_default_zero_is_none_and_unlimited_is_a_word() {
        let limits = read(json!({ "max_recursion_depth": 0, "max_turns": "unlimited", "queue_wait": "5s" }));

        assert_eq!(limits.max_recursion_depth, Bound::Of(0));
        assert!(!limits.max_recursion_depth.has_room(0));
        assert_eq!(limits.max_turns, Bound::Unlimited);
        assert!(limits.max_turns.has_room(u64::MAX));
        assert_eq!(limits.queue_wait.duration(), Some(Duration::from_secs(5)));
        assert_eq!(limits.max_spawns_per_tree, Bound::Of(200));
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for value in [json!(-1), json!("none"), json!(1.5), json!(null)] {
            let limits = serde_json::from_value::<Limits>(json!({ "max_turns": value }));
            assert!(limits.is_err(), "{limits:?}");
        }
        assert!(serde_json::from_value::<Limits>(json!({ "queue_wait": 5 })).is_err());
    }

    #[test]
    fn a_workspace_overrides_what_it_names_and_rows_say_where_each_comes_from() {
        let limits = read(json!({ "max_turns": 7 }));
        let overrides: Overrides = serde_json::from_value(json!({ "root_spawns": ["explore"] })).unwrap();

        let effective = limits.with(&overrides);
        let rows = limits.rows(&overrides);

        assert_eq!(effective.max_turns, Bound::Of(7));
        assert_eq!(effective.root_spawns.policy(), SpawnPolicy::Listed(vec!["explore".to_owned()]));
        let row = |key: &str| rows.iter().find(|row| row.key == key).unwrap().clone();
        assert_eq!(row("limits.max_turns").origin, Origin::Config);
        assert_eq!(row("limits.root_spawns").origin, Origin::Workspace);
        assert_eq!(row("limits.root_spawns").value, "explore");
        assert_eq!(row("limits.tree_tokens").value, "unlimited");
        assert_eq!(row("limits.tool_timeout").origin, Origin::Default);
    }

    #[test]
    fn the_default_reads_back_as_itself() {
        let limits = Limits::default();

        assert_eq!(read(serde_json::to_value(&limits).unwrap()), limits);
    }
}
