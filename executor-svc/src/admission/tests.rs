use std::time::Duration;

use serde_json::json;

use super::*;
use crate::definition::ToolSelection;

fn limits(value: serde_json::Value) -> Limits {
    serde_json::from_value(value).unwrap()
}

fn listed(names: &[&str]) -> SpawnPolicy {
    SpawnPolicy::Listed(names.iter().map(|name| (*name).to_owned()).collect())
}

fn definition(name: &str, spawns: SpawnPolicy) -> Definition {
    Definition {
        name: name.to_owned(),
        description: String::new(),
        system_prompt: String::new(),
        tools: ToolSelection::Inherit,
        disallowed_tools: Vec::new(),
        spawns,
        models: Vec::new(),
        thinking_level: None,
        output_schema: None,
        permission_mode: None,
        max_turns: None,
        critical_reminder: String::new(),
        skills: Vec::new(),
        mcp_servers: Vec::new(),
        blocking: false,
        digest: String::new(),
    }
}

fn worker(depth: u32, agent: &str, own: SpawnPolicy) -> Spawner {
    Spawner { depth, agent: Some(agent.to_owned()), own_spawns: Some(own.clone()), ..Spawner::root(own) }
}

#[track_caller]
fn check(limits: &Limits, spawner: &Spawner, agent: &str, expected: Result<(), &str>) {
    let rules = Rules {
        limits,
        overrides: &Overrides::default(),
        coordinator: "default",
        blocked: &["outer".to_owned()],
    };

    let result = rules.before_lookup(spawner, agent);

    assert_eq!(
        result.map_err(|error| error.to_string()).as_ref().map_err(String::as_str),
        expected.as_ref().map_err(|text| *text)
    );
}

#[test]
fn a_child_of_the_root_may_spawn_and_its_grandchild_may_not() {
    let default = Limits::default();
    let none = limits(json!({ "max_recursion_depth": 0 }));
    let unlimited = limits(json!({ "max_recursion_depth": "unlimited" }));

    check(&default, &Spawner::root(SpawnPolicy::All), "explore", Ok(()));
    check(&default, &worker(1, "task", SpawnPolicy::All), "explore", Ok(()));
    check(
        &default,
        &worker(2, "task", SpawnPolicy::All),
        "explore",
        Err("Depth limit reached: this session is at depth 2 and the maximum is 2."),
    );
    check(
        &none,
        &Spawner::root(SpawnPolicy::All),
        "explore",
        Err("Depth limit reached: this session is at depth 0 and the maximum is 0."),
    );
    check(&unlimited, &worker(99, "task", SpawnPolicy::All), "explore", Ok(()));
}

#[test]
fn an_agent_spawns_itself_only_where_its_own_list_names_it() {
    let default = Limits::default();
    let refused = "Agent 'task' must not spawn itself (recursion prevention). Choose another agent.";

    check(&default, &worker(1, "task", SpawnPolicy::All), "task", Err(refused));
    check(&default, &worker(1, "task", listed(&["explore"])), "task", Err(refused));
    check(&default, &worker(1, "task", listed(&["task"])), "task", Ok(()));
    check(&default, &Spawner::root(SpawnPolicy::All), "task", Ok(()));
}

#[test]
fn blocked_agents_are_refused_to_everybody() {
    let configured = limits(json!({ "blocked_agents": ["inner"] }));

    for agent in ["inner", "outer"] {
        let refused =
            format!("Agent '{agent}' must not spawn itself (recursion prevention). Choose another agent.");
        check(&configured, &Spawner::root(SpawnPolicy::All), agent, Err(&refused));
    }
}

#[test]
fn a_policy_refusal_lists_what_is_allowed() {
    let default = Limits::default();

    check(
        &default,
        &worker(1, "task", listed(&["explore", "plan"])),
        "designer",
        Err("Cannot spawn 'designer'. Allowed: explore, plan"),
    );
    check(
        &default,
        &worker(1, "task", SpawnPolicy::None),
        "designer",
        Err("Cannot spawn 'designer'. Allowed: none"),
    );
}

#[test]
fn the_reviewer_and_the_coordinator_are_reserved() {
    let default = Limits::default();

    for agent in ["reviewer", "default"] {
        let refused = format!("Agent '{agent}' is reserved and cannot be spawned.");
        check(&default, &Spawner::root(SpawnPolicy::All), agent, Err(&refused));
    }
}

#[test]
fn the_rows_are_asked_in_their_order() {
    let shallow = limits(json!({ "max_recursion_depth": 1, "blocked_agents": ["task", "reviewer"] }));

    check(
        &shallow,
        &worker(1, "task", SpawnPolicy::None),
        "task",
        Err("Depth limit reached: this session is at depth 1 and the maximum is 1."),
    );
    check(
        &shallow,
        &Spawner::root(SpawnPolicy::None),
        "task",
        Err("Agent 'task' must not spawn itself (recursion prevention). Choose another agent."),
    );
    check(
        &shallow,
        &Spawner::root(SpawnPolicy::None),
        "default",
        Err("Cannot spawn 'default'. Allowed: none"),
    );
}

#[test]
fn a_permit_narrows_and_never_widens() {
    let default = Limits::default();
    let rules =
        Rules { limits: &default, overrides: &Overrides::default(), coordinator: "default", blocked: &[] };
    let mut parent = worker(0, "task", SpawnPolicy::All);
    parent.root_policy = listed(&["explore", "plan"]);
    parent.permission_mode = Some(PermissionMode::ReadOnly);
    let mut child = definition("plan", listed(&["explore", "designer"]));
    child.permission_mode = Some(PermissionMode::MutatingWithReview);

    let permit = rules.permit(&parent, &child, false);

    assert_eq!(permit.spawns, listed(&["explore"]));
    assert_eq!(permit.permission_mode, PermissionMode::ReadOnly);
    assert_eq!(permit.depth, 1);
}

#[test]
fn an_ancestors_list_does_not_narrow_a_descendant() {
    let default = Limits::default();
    let rules =
        Rules { limits: &default, overrides: &Overrides::default(), coordinator: "default", blocked: &[] };
    let mut parent = worker(0, "task", listed(&["plan"]));
    parent.root_policy = SpawnPolicy::All;

    let permit = rules.permit(&parent, &definition("plan", listed(&["explore"])), false);

    assert_eq!(permit.spawns, listed(&["explore"]));
}

#[test]
fn a_worker_at_the_depth_limit_or_under_plan_mode_spawns_nobody() {
    let default = Limits::default();
    let rules =
        Rules { limits: &default, overrides: &Overrides::default(), coordinator: "default", blocked: &[] };
    let free = definition("task", SpawnPolicy::All);

    let deep = rules.permit(&worker(1, "task", SpawnPolicy::All), &free, false);
    let planned = rules.permit(&Spawner::root(SpawnPolicy::All), &free, true);
    let free = rules.permit(&Spawner::root(SpawnPolicy::All), &free, false);

    assert_eq!(deep.spawns, SpawnPolicy::None);
    assert_eq!(planned.spawns, SpawnPolicy::None);
    assert!(planned.plan_mode);
    assert_eq!(free.spawns, SpawnPolicy::All);
}

#[test]
fn the_smallest_budget_counts() {
    let default = Limits::default();
    let rules =
        Rules { limits: &default, overrides: &Overrides::default(), coordinator: "default", blocked: &[] };
    let mut agent = definition("task", SpawnPolicy::All);
    agent.max_turns = Some(5);
    let request = Budget { turns: Some(9), tokens: Some(700), ..Budget::default() };
    let left = Budget { tokens: Some(500), wall_time: Some(Duration::from_secs(3)), ..Budget::default() };
    let parent = Spawner { budget: left, ..Spawner::root(SpawnPolicy::All) };

    let grant = Grant::new(&request, &parent, &agent, &rules).unwrap();

    assert_eq!(grant, Grant { turns: 5, tokens: Some(500), wall_time: Duration::from_secs(3), spawns: None });
}

#[track_caller]
fn check_used_up(
    request: Budget,
    parent: &Spawner,
    configured: serde_json::Value,
    overrides: serde_json::Value,
    expected: (&str, &str),
) {
    let overrides: Overrides = serde_json::from_value(overrides).unwrap();
    let limits = limits(configured).with(&overrides);
    let rules = Rules { limits: &limits, overrides: &overrides, coordinator: "default", blocked: &[] };

    let refusal = Grant::new(&request, parent, &definition("task", SpawnPolicy::All), &rules).unwrap_err();

    let Error::BudgetExhausted { limit, origin } = &refusal else { panic!("{refusal}") };
    assert_eq!((limit.as_str(), origin.as_str()), expected);
}

#[test]
fn nothing_left_is_refused_with_the_limit_and_where_it_comes_from() {
    let root = Spawner::root(SpawnPolicy::All);
    let with = |budget| Spawner { budget, ..root.clone() };
    let none = Budget::default;
    let empty = || json!({});

    let turns = Budget { turns: Some(0), ..none() };
    check_used_up(turns, &root, empty(), empty(), ("turns", "request"));
    let tokens = Budget { tokens: Some(0), ..none() };
    check_used_up(tokens, &root, empty(), empty(), ("tokens", "request"));
    check_used_up(none(), &with(tokens), empty(), empty(), ("tokens", "session"));
    let time = Budget { wall_time: Some(Duration::ZERO), ..none() };
    check_used_up(time, &root, empty(), empty(), ("wall_time", "request"));
    check_used_up(none(), &with(time), empty(), empty(), ("wall_time", "session"));
    check_used_up(none(), &root, json!({ "max_turns": 0 }), empty(), ("max_turns", "config"));
    check_used_up(none(), &root, empty(), json!({ "max_turns": 0 }), ("max_turns", "workspace"));
    let no_time = json!({ "worker_wall_time": "0s" });
    check_used_up(none(), &root, no_time, empty(), ("worker_wall_time", "config"));
    let late = Spawner { tree_time: Some(Duration::ZERO), ..root.clone() };
    check_used_up(none(), &late, empty(), empty(), ("tree_wall_time", "default"));
}
