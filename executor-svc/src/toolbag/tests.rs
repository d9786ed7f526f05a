use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Known, Rules, builtins, pack};
use crate::{
    definition::{PermissionMode, SpawnPolicy, ToolSelection},
    tool::{Class, name},
};

/// Rules that own what they are made of.
#[derive(Clone, Debug)]
struct Case {
    selection: ToolSelection,
    disallowed: Vec<String>,
    mcp_servers: Vec<String>,
    spawns: SpawnPolicy,
    permission_mode: PermissionMode,
    plan_mode: bool,
    depth: u32,
    depth_max: Option<u32>,
    root_tools: Vec<String>,
    aliases: BTreeMap<String, String>,
    is_coordinator: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            selection: ToolSelection::Inherit,
            disallowed: Vec::new(),
            mcp_servers: Vec::new(),
            spawns: SpawnPolicy::None,
            permission_mode: PermissionMode::MutatingWithReview,
            plan_mode: false,
            depth: 1,
            depth_max: Some(2),
            root_tools: vec!["*".to_owned()],
            aliases: BTreeMap::new(),
            is_coordinator: false,
        }
    }
}

impl Case {
    fn rules(&self) -> Rules<'_> {
        Rules {
            selection: &self.selection,
            disallowed: &self.disallowed,
            mcp_servers: &self.mcp_servers,
            spawns: &self.spawns,
            permission_mode: self.permission_mode,
            plan_mode: self.plan_mode,
            depth: self.depth,
            depth_max: self.depth_max,
            root_tools: &self.root_tools,
            aliases: &self.aliases,
            is_coordinator: self.is_coordinator,
        }
    }

    fn granted(&self) -> Vec<String> {
        let known = known();
        pack(&known, &self.rules()).granted(&known).map(str::to_owned).collect()
    }
}

fn mcp(server: &str, own_name: &str, class: Class) -> Known {
    Known {
        name: format!("mcp__{server}__{own_name}"),
        class,
        server: server.to_owned(),
        own_name: own_name.to_owned(),
        off: None,
    }
}

fn known() -> Vec<Known> {
    let mut known = builtins(true);
    known.extend([
        mcp("files", "list", Class::Read),
        mcp("files", "search", Class::Read),
        mcp("files", "remove", Class::Destructive),
        mcp("web", "search", Class::Read),
        mcp("web", "read", Class::Read),
        mcp("web", "fetch", Class::Write),
    ]);
    known
}

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn listed(names: &[&str]) -> ToolSelection {
    ToolSelection::Listed(list(names))
}

#[track_caller]
fn check(case: &Case, granted: &[&str]) {
    let mut expected = list(granted);
    expected.push(name::SUBMIT_RESULT.to_owned());
    let mut actual = case.granted();
    expected.sort();
    actual.sort();
    assert_eq!(actual, expected, "{case:?}");
}

#[track_caller]
fn rule(case: &Case, tool: &str, granted: bool, words: &str) {
    let known = known();
    let bag = pack(&known, &case.rules());
    let index = known.iter().position(|known| known.name == tool).unwrap();
    let verdict = &bag.verdicts[index];
    assert_eq!(verdict.granted, granted, "{tool}: {}", verdict.rule);
    assert!(verdict.rule.contains(words), "{tool}: {}", verdict.rule);
}

#[test]
fn a_list_selects_exactly_its_tools() {
    check(
        &Case { selection: listed(&["read", "grep", "submit_result"]), ..Case::default() },
        &["read", "grep"],
    );
    check(&Case { selection: listed(&[]), ..Case::default() }, &[]);
    rule(
        &Case { selection: listed(&["read"]), ..Case::default() },
        "read",
        true,
        "`tools` lists it (`read`)",
    );
    rule(&Case { selection: listed(&["read"]), ..Case::default() }, "grep", false, "does not list it");
    rule(&Case::default(), "mcp__web__fetch", true, "inherited");
    rule(&Case { selection: ToolSelection::All, ..Case::default() }, "bash", true, "every tool (`*`)");
}

#[test]
fn tools_of_mcp_servers_are_selected_in_each_of_their_forms() {
    for (entry, granted) in [
        ("mcp__files__list", &["mcp__files__list"][..]),
        ("mcp__files", &["mcp__files__list", "mcp__files__search", "mcp__files__remove"]),
        ("mcp__files__*", &["mcp__files__list", "mcp__files__search", "mcp__files__remove"]),
        ("mcp__files__re*", &["mcp__files__remove"]),
        ("list", &["mcp__files__list"]),
        ("docs", &["mcp__files__search"]),
        ("anything", &["mcp__web__search", "mcp__web__read", "mcp__web__fetch"]),
        // Two servers have it, a built-in tool has it, nobody has it, no MCP pattern.
        ("search", &[]),
        ("read", &["read"]),
        ("absent", &[]),
        ("re*", &[]),
        ("mcp__", &[]),
    ] {
        let aliases = BTreeMap::from([
            ("docs".to_owned(), "mcp__files__search".to_owned()),
            ("anything".to_owned(), "mcp__web".to_owned()),
        ]);
        check(&Case { selection: listed(&[entry]), aliases, ..Case::default() }, granted);
    }
    let case = Case { selection: listed(&["read"]), mcp_servers: list(&["web"]), ..Case::default() };
    check(&case, &["read", "mcp__web__search", "mcp__web__read", "mcp__web__fetch"]);
    rule(&case, "mcp__web__fetch", true, "`mcp_servers` lists its server (`web`)");
}

#[test]
fn an_entry_that_selects_nothing_is_said() {
    let known = known();
    let case = Case {
        selection: listed(&["search", "absent", "task", "AgentTool", "read", "submit_result"]),
        mcp_servers: list(&["nowhere"]),
        ..Case::default()
    };

    let notes = pack(&known, &case.rules()).notes;

    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes[0].contains("mcp__files__search, mcp__web__search"), "{notes:?}");
    assert!(notes[1].contains("`absent`, which is no tool here"), "{notes:?}");
    assert!(notes[2].contains("`nowhere`"), "{notes:?}");
}

#[test]
fn a_denied_tool_is_denied_under_every_name_it_has() {
    for (pattern, tool) in [
        ("bash", "bash"),
        ("ba*", "bash"),
        ("*sh", "bash"),
        ("*", "read"),
        ("Bash*", "bash"),
        ("run_shell_command", "bash"),
        ("Read", "read"),
        ("MultiEdit", "edit"),
        ("mcp__web__fetch", "mcp__web__fetch"),
        ("mcp__web", "mcp__web__fetch"),
        ("mcp__web__*", "mcp__web__fetch"),
        ("*fetch", "mcp__web__fetch"),
        ("fetch", "mcp__web__fetch"),
        ("docs", "mcp__files__search"),
    ] {
        let case = Case {
            selection: listed(&["read", "edit", "bash", "mcp__web", "mcp__files"]),
            disallowed: list(&[pattern]),
            aliases: BTreeMap::from([("docs".to_owned(), "mcp__files__search".to_owned())]),
            ..Case::default()
        };
        rule(&case, tool, false, &format!("`disallowed_tools` takes it away (`{pattern}`)"));
    }
}

#[test]
fn the_result_can_always_be_handed_in() {
    let case = Case {
        selection: listed(&[]),
        disallowed: list(&["*", "submit_result"]),
        root_tools: Vec::new(),
        permission_mode: PermissionMode::ReadOnly,
        plan_mode: true,
        ..Case::default()
    };
    check(&case, &[]);
}

#[test]
fn the_spawn_tool_follows_the_policy_the_depth_and_the_mode() {
    let spawner = Case { spawns: SpawnPolicy::All, selection: listed(&["read"]), ..Case::default() };
    check(&spawner, &["read", "AgentTool"]);
    for (case, words) in [
        (
            Case { spawns: SpawnPolicy::None, selection: listed(&["task"]), ..Case::default() },
            "may spawn no agent",
        ),
        (Case { spawns: SpawnPolicy::Listed(Vec::new()), ..Case::default() }, "may spawn no agent"),
        (Case { depth: 2, ..spawner.clone() }, "at depth 2 and the maximum is 2"),
        (Case { depth: 0, depth_max: Some(0), ..spawner.clone() }, "at depth 0 and the maximum is 0"),
        (Case { plan_mode: true, ..spawner.clone() }, "plan mode"),
        (Case { disallowed: list(&["task"]), ..spawner.clone() }, "`disallowed_tools`"),
        (Case { disallowed: list(&["Agent*"]), ..spawner.clone() }, "`disallowed_tools`"),
        (Case { root_tools: list(&["read"]), ..spawner.clone() }, "root"),
    ] {
        rule(&case, "AgentTool", false, words);
    }
    rule(&Case { depth: 90, depth_max: None, ..spawner }, "AgentTool", true, "may spawn agents");
}

#[test]
fn what_narrows_from_above_takes_tools_away() {
    let read_only = Case { permission_mode: PermissionMode::ReadOnly, ..Case::default() };
    rule(&read_only, "write", false, "`read-only` takes tools of class write away");
    rule(&read_only, "mcp__files__remove", false, "class destructive");
    rule(&read_only, "grep", true, "");
    let plan = Case { plan_mode: true, ..Case::default() };
    rule(&plan, "write", false, "plan mode takes tools of class write away");
    rule(&plan, "mcp__files__list", true, "");
    let root = Case { root_tools: list(&["read", "mcp__files"]), ..Case::default() };
    check(&root, &["read", "mcp__files__list", "mcp__files__search", "mcp__files__remove"]);
    rule(&root, "write", false, "root");
}

#[test]
fn a_tool_that_is_switched_off_says_so() {
    let known = builtins(false);
    let case = Case { selection: listed(&["bash"]), ..Case::default() };

    let bag = pack(&known, &case.rules());

    let index = known.iter().position(|tool| tool.name == "bash").unwrap();
    assert_eq!(bag.verdicts[index].rule, "it is switched off by the operator (`tools.bash`)");
    assert!(!bag.verdicts[index].granted);
}

#[test]
fn only_coordinators_talk_to_workers_and_stop_them() {
    rule(&Case::default(), "SendMessage", false, "only coordinators");
    let coordinator = Case { is_coordinator: true, selection: listed(&["read"]), ..Case::default() };
    check(&coordinator, &["read", "SendMessage", "TaskStop"]);
}

fn names() -> impl Strategy<Value = Vec<String>> {
    let one = prop::sample::select(vec![
        "read",
        "grep",
        "write",
        "edit",
        "bash",
        "task",
        "submit_result",
        "mcp__files",
        "mcp__files__*",
        "mcp__web__fetch",
        "search",
        "*",
        "*sh",
        "mcp__*",
        "Bash*",
        "Read",
        "SendMessage",
        "absent",
    ]);
    prop::collection::vec(one.prop_map(str::to_owned), 0..6)
}

prop_compose! {
    fn cases()(
        selection in prop_oneof![
            Just(ToolSelection::Inherit), Just(ToolSelection::All), names().prop_map(ToolSelection::Listed)
        ],
        disallowed in names(),
        root_tools in names(),
        servers in prop::collection::vec(prop::sample::select(vec!["files", "web"]), 0..2),
        spawns in prop_oneof![
            Just(SpawnPolicy::None), Just(SpawnPolicy::All), Just(SpawnPolicy::Listed(vec!["a".to_owned()]))
        ],
        permission_mode in prop::sample::select(vec![
            PermissionMode::ReadOnly, PermissionMode::DualSign, PermissionMode::MutatingWithReview
        ]),
        (plan_mode, is_coordinator) in any::<(bool, bool)>(),
        depth in 0..4_u32,
        depth_max in prop::option::of(0..4_u32),
    ) -> Case {
        Case {
            selection, disallowed, root_tools, spawns, permission_mode, plan_mode, depth, depth_max, is_coordinator,
            mcp_servers: servers.into_iter().map(str::to_owned).collect(),
            aliases: BTreeMap::new(),
        }
    }
}

proptest! {
    #[test]
    fn a_bag_only_narrows(case in cases(), more_denied in names()) {
        let granted = case.granted();

        // Whatever the rest: what is denied, too dangerous or too deep is not in it.
        for tool in known().iter().filter(|tool| granted.contains(&tool.name) && tool.name != name::SUBMIT_RESULT) {
            prop_assert!(!case.disallowed.contains(&tool.name));
            prop_assert!(!case.disallowed.contains(&"*".to_owned()));
            if case.permission_mode == PermissionMode::ReadOnly || case.plan_mode {
                prop_assert_eq!(tool.class, Class::Read);
            }
            if tool.name == name::SPAWN {
                prop_assert!(case.spawns.permits_any() && !case.plan_mode);
                prop_assert!(case.depth_max.is_none_or(|maximum| case.depth < maximum));
            }
        }
        prop_assert!(granted.contains(&name::SUBMIT_RESULT.to_owned()));

        // Each narrowing leaves a part of what there was.
        let mut narrower = vec![
            Case { permission_mode: PermissionMode::ReadOnly, ..case.clone() },
            Case { plan_mode: true, ..case.clone() },
            Case { depth: case.depth + 1, ..case.clone() },
            Case { spawns: SpawnPolicy::None, ..case.clone() },
            Case { root_tools: case.root_tools.iter().skip(1).cloned().collect(), ..case.clone() },
        ];
        let mut denied = case.disallowed.clone();
        denied.extend(more_denied);
        narrower.push(Case { disallowed: denied, ..case });
        for narrow in narrower {
            prop_assert!(narrow.granted().iter().all(|tool| granted.contains(tool)), "{:?}", narrow);
        }
    }
}
