use super::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn granted(text: &str) -> Granted {
    Granted::new(split_commas(text).map(grant))
}

#[track_caller]
fn grants(text: &str, expected: &[&str]) {
    assert_eq!(granted(text).selection, ToolSelection::Listed(names(expected)), "{text:?}");
}

#[track_caller]
fn implies(text: &str, expected: SpawnPolicy) {
    assert_eq!(granted(text).implied_spawns(), expected, "{text:?}");
}

#[track_caller]
fn denies(entry: &str, expected: &[&str]) {
    assert_eq!(deny(entry), Ok(names(expected)), "{entry:?}");
}

#[test]
fn names_of_other_products_are_translated_exactly() {
    grants(
        "Read, Grep, Glob, LS, Write, MultiEdit, Bash",
        &["read", "grep", "find", "ls", "write", "edit", "bash", "submit_result"],
    );
    grants("READ, WebFetch, mcp__fs__*", &["READ", "WebFetch", "mcp__fs__*", "submit_result"]);
}

#[test]
fn repeats_go_and_submit_result_is_always_there() {
    grants("Read, read, ReadFile", &["read", "submit_result"]);
    grants("submit_result, read", &["submit_result", "read"]);
    grants("", &["submit_result"]);
    grants(" , ,", &["submit_result"]);
}

#[test]
fn a_star_among_the_tools_is_all() {
    assert_eq!(granted("read, *").selection, ToolSelection::All);
}

#[test]
fn commas_inside_parentheses_belong_to_the_entry() {
    let parts: Vec<&str> = split_commas("a, Agent(b, c(d, e)), f").collect();
    assert_eq!(parts, ["a", "Agent(b, c(d, e))", "f"]);
}

#[test]
fn a_specifier_grants_nothing_but_the_spawn_tool() {
    assert_eq!(grant("Bash(git *)"), Grant::Unsupported);
    assert_eq!(grant("Bash(git"), Grant::Unsupported);
    assert_eq!(grant("Agent(a"), Grant::Unsupported);
    assert_eq!(grant("Agent(a)(b)"), Grant::Unsupported);
    for spelling in ["Agent", "Task", "AgentTool", "task"] {
        let entry = format!("{spelling}(a, b)");
        assert_eq!(grant(&entry), Grant::Spawn(SpawnPolicy::Listed(names(&["a", "b"]))), "{entry}");
    }
    assert_eq!(grant("Agent()"), Grant::Spawn(SpawnPolicy::None));
    assert_eq!(grant("Agent(a, *)"), Grant::Spawn(SpawnPolicy::All));
    assert_eq!(grant("Agent(UI (mobile))"), Grant::Spawn(SpawnPolicy::Listed(names(&["UI (mobile)"]))));
}

#[test]
fn the_spawn_policy_follows_from_the_tools() {
    implies("read", SpawnPolicy::None);
    implies("read, task", SpawnPolicy::All);
    implies("Agent(x), Task(y, x)", SpawnPolicy::Listed(names(&["x", "y"])));
    implies("Agent(x), task", SpawnPolicy::Listed(names(&["x"])));
    implies("Agent(), task", SpawnPolicy::None);
    implies("Agent(x), Agent(*)", SpawnPolicy::All);
    implies("*", SpawnPolicy::None);
    implies("*, task", SpawnPolicy::None);
    implies("*, Agent(x)", SpawnPolicy::Listed(names(&["x"])));
    assert_eq!(Granted::inherited().implied_spawns(), SpawnPolicy::None);
}

#[test]
fn a_denial_takes_the_whole_tool_away() {
    denies("Bash", &["bash"]);
    denies("Bash(git push *)", &["bash"]);
    denies("Task(x)", &["task"]);
    denies("*", &["*"]);
    denies("mcp__*", &["mcp__*"]);
}

#[test]
fn a_pattern_denies_by_the_names_of_other_products_too() {
    denies("Bash*", &["Bash*", "bash"]);
    denies("*Edit", &["*Edit", "edit"]);
    denies("Read*", &["Read*", "read"]);
    denies("*_file", &["*_file", "read", "write", "edit"]);
    denies("Agent*", &["Agent*", "task"]);
}

#[test]
fn a_denial_that_would_deny_nothing_is_refused() {
    for entry in [
        "Bash Write",
        "\"Bash\"",
        "'x",
        "`x`",
        "[Bash",
        "Bash]",
        "{a}",
        "Bash(git",
        "Bash)",
        "a*b",
        "*a*",
        "**",
        "(x)",
        "Bash (x)y",
    ] {
        assert!(deny(entry).is_err(), "{entry:?}");
    }
}

#[test]
fn spawning_can_be_denied_by_name_and_pattern() {
    for entry in ["task", "Task", "Agent(x)", "ta*", "*", "*Tool", "Ag*"] {
        assert!(denies_spawn(&deny(entry).unwrap()), "{entry:?}");
    }
    for entry in ["bash", "tasks", "mcp__*", "tasks*"] {
        assert!(!denies_spawn(&deny(entry).unwrap()), "{entry:?}");
    }
}

#[test]
fn a_list_is_cut_to_what_is_allowed() {
    let cut = |text: &str, allowed: &[&str]| {
        let mut granted = granted(text);
        granted.cut_to(names(allowed));
        granted.selection
    };

    assert_eq!(
        cut("read, bash", &["read", "grep"]),
        ToolSelection::Listed(names(&["read", "submit_result"]))
    );
    assert_eq!(cut("*", &["read"]), ToolSelection::Listed(names(&["read", "submit_result"])));
    assert_eq!(cut("mcp__*", &["mcp__a"]), ToolSelection::Listed(names(&["mcp__a", "submit_result"])));
    assert_eq!(cut("mcp__a", &["mcp__*"]), ToolSelection::Listed(names(&["mcp__a", "submit_result"])));
}
