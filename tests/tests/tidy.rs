//! The repository's rules that text can check: layers, sizes, names. Each rule is also shown an offence that it must find.

use std::{collections::BTreeSet, sync::LazyLock};

use regex::Regex;
use tests::{
    repository,
    source::{self, Source, regex},
};

/// Lines of a file without its tests. Above it a file is a design question; an entry answers it with the reason.
const FILE_LINES_MAX: usize = 400;
const LONGER_FILES: &[(&str, &str)] = &[];

/// Lines of a function. Above it a function is a design question; an entry answers it with the reason.
const FUNCTION_LINES_MAX: usize = 70;
const LONGER_FUNCTIONS: &[(&str, &str)] =
    &[("reasons", "a table with a row for each reason reads best in one piece")];

/// Reasons that no caller can bring about from outside, each with why.
const UNREACHABLE_REASONS: &[(&str, &str)] = &[
    ("INTERNAL", "a panic; tested beside the layer that catches it"),
    ("RESPONSE_TOO_LARGE", "a guard: every answer is cut below it before it is sent"),
    ("SCAN_FAILED", "a panic while sources are read; what was in force stays"),
    ("TOO_MANY_DEFINITIONS", "thousands of durable writes; tested beside the workspace"),
];

/// Places that break a rule, one line each.
type Offences = Vec<String>;
type Rule = fn(&Source) -> Offences;

#[test]
fn only_the_edge_names_the_wire() {
    hold(check_wire);
}

#[test]
fn the_domain_neither_waits_nor_touches_the_machine() {
    hold(check_domain);
}

#[test]
fn the_environment_is_read_in_config_only() {
    hold(check_environment);
}

#[test]
fn nothing_runs_that_nobody_awaits() {
    hold(check_tasks);
}

#[test]
fn every_queue_is_bounded() {
    hold(check_queues);
}

#[test]
fn files_are_short_and_begin_with_what_they_are_for() {
    hold(check_files);

    let long = |path: &str| {
        source::program_sources()
            .iter()
            .any(|file| file.path == path && file.lines().count() > FILE_LINES_MAX)
    };
    still_needed(LONGER_FILES, long);
}

#[test]
fn functions_are_short() {
    hold(check_functions);

    let functions: Vec<_> = source::program_sources().iter().flat_map(Source::functions).collect();
    let long =
        |name: &str| functions.iter().any(|found| found.name == name && found.lines > FUNCTION_LINES_MAX);
    still_needed(LONGER_FUNCTIONS, long);
}

#[test]
fn tests_are_named_by_what_holds() {
    none(source::all_sources().iter().flat_map(check_test_names).collect());
}

#[test]
fn nothing_is_left_over_and_nothing_names_the_machine_it_was_written_on() {
    let readable = repository::files().into_iter().filter(|path| path != "Cargo.lock");
    let texts = readable.filter_map(|path| {
        let text = std::fs::read_to_string(repository::root().join(&path)).ok()?;
        Some(Source { path, text })
    });
    none(texts.flat_map(|file| check_leftovers(&file)).collect());
}

#[test]
fn every_reason_of_a_status_table_is_brought_about_by_a_black_box_test() {
    let stories: String = source::all_sources()
        .into_iter()
        .filter(|file| file.path.starts_with("tests/tests/") && !file.path.ends_with("/tidy.rs"))
        .map(|file| file.text)
        .collect();
    let reasons: BTreeSet<_> = source::program_sources().iter().flat_map(reasons).collect();
    assert!(reasons.len() > 10, "the status tables were not found: {reasons:?}");

    let untested = reasons
        .into_iter()
        .filter(|(reason, _)| !stories.contains(&format!("\"{reason}\"")))
        .filter(|(reason, _)| !UNREACHABLE_REASONS.iter().any(|(name, _)| name == reason))
        .map(|(reason, place)| format!("{place}: no test below tests/tests names `{reason}`"));
    none(untested.collect());
}

#[test]
fn each_rule_finds_its_offence_and_nothing_else() {
    let long = format!("//! Long.\nfn long() {{\n{}}}\n", "    go();\n".repeat(FILE_LINES_MAX));
    let in_tests = "//! Fine.\n// async is meant\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}";
    let cases: [(Rule, &str, &str, bool); 24] = [
        (check_wire, "registry-svc/src/workspace.rs", "use tonic::Status;", true),
        (check_wire, "executor-svc/src/run.rs", "fn f(x: proto::executor::Worker) {}", true),
        (check_wire, "registry-svc/src/grpc/status.rs", "use tonic::Status;", false),
        (check_wire, "registry-svc/src/workspace.rs", "use crate::from_proto::name;", false),
        (check_domain, "registry-svc/src/agent.rs", "pub async fn load() {}", true),
        (check_domain, "registry-svc/src/agent/names.rs", "use std::fs;", true),
        (check_domain, "executor-svc/src/worker.rs", "use tokio::sync::mpsc;", true),
        (check_domain, "registry-svc/src/agent.rs", in_tests, false),
        (check_environment, "executor-svc/src/tool.rs", "std::env::var(\"HOME\")", true),
        (check_environment, "service-kit/src/config.rs", "std::env::vars()", false),
        (check_tasks, "executor-svc/src/run.rs", "    tokio::spawn(async {});", true),
        (check_tasks, "executor-svc/src/run.rs", "    tokio::spawn(async {\n        go();\n    });", true),
        (check_tasks, "executor-svc/src/run.rs", "    let task = tokio::spawn(async {});", false),
        (
            check_tasks,
            "executor-svc/src/run.rs",
            "    spawn_blocking(|| {\n        go();\n    }).await?;",
            false,
        ),
        (check_tasks, "executor-svc/src/run.rs", "    spawn_blocking(go).await", false),
        (check_queues, "executor-svc/src/run.rs", "let (a, b) = mpsc::unbounded_channel();", true),
        (check_files, "service-kit/src/mod.rs", "//! Fine.", true),
        (check_files, "service-kit/src/page.rs", "use std::fmt;", true),
        (check_files, "service-kit/src/long.rs", &long, true),
        (check_functions, "service-kit/src/long.rs", &long, true),
        (check_functions, "service-kit/src/page.rs", "//! Fine.\nfn f() {\n}\n", false),
        (check_leftovers, "README.md", concat!("TO", "DO: write this"), true),
        (check_test_names, "service-kit/src/page.rs", "#[test]\nfn test_it() {}", true),
        (check_test_names, "service-kit/src/page.rs", "#[tokio::test]\nasync fn a_page_ends() {}", false),
    ];

    for (rule, path, text, offends) in cases {
        let offences = rule(&Source { path: path.into(), text: text.into() });
        assert_eq!(!offences.is_empty(), offends, "{path}: {text}: {offences:?}");
    }
}

fn check_wire(file: &Source) -> Offences {
    static WIRE: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(proto|tonic|tonic_\w+|prost|prost_types)::"));
    // `serve` mounts what `grpc` offers, the command lines are clients of a running service, the executor's `registry` is
    // one of the registry.
    let edge = ["grpc", "cli", "lib", "serve", "registry"];
    if file.module().is_none_or(|module| edge.contains(&module)) {
        return Vec::new();
    }
    file.matching(&WIRE, "the wire belongs to the edge")
}

fn check_domain(file: &Source) -> Offences {
    static IMPURE: LazyLock<Regex> = LazyLock::new(|| {
        regex(
            r"\basync\b|\.await\b|\btokio::|\bstd::(fs|net|process|env|thread)\b|(SystemTime|Instant)::now|\b(rusqlite|reqwest)::",
        )
    });
    let Some((service, module)) = file.service().zip(file.module()) else { return Vec::new() };
    if !source::domain_modules(service).iter().any(|name| name == module) {
        return Vec::new();
    }
    file.matching(&IMPURE, "the domain is pure")
}

fn check_environment(file: &Source) -> Offences {
    static READING: LazyLock<Regex> =
        LazyLock::new(|| regex(r"\benv::(var|vars|var_os|vars_os|current_dir|home_dir|temp_dir)\b"));
    if file.module() == Some("config") || file.path.starts_with("service-kit/src/config") {
        return Vec::new();
    }
    file.matching(&READING, "the environment is read in config.rs only")
}

/// A task is detached where the statement that spawns it keeps no handle and does not await it.
fn check_tasks(file: &Source) -> Offences {
    static SPAWN: LazyLock<Regex> =
        LazyLock::new(|| regex(r"^(\s*)(?:let _ = |drop\()?(?:tokio::)?(?:task::)?spawn(?:_blocking)?\("));
    let lines: Vec<_> = file.code().collect();
    let mut offences = Vec::new();
    for (index, (number, line)) in lines.iter().enumerate() {
        let Some(spawn) = SPAWN.captures(line) else { continue };
        let closing = format!("{}}}", &spawn[1]);
        // One line, or a block that closes below its own beginning.
        let rest = || lines[index + 1..].iter().map(|(_, line)| *line);
        let last =
            if line.ends_with('{') { rest().find(|line| line.starts_with(&closing)) } else { Some(*line) };
        let last = last.unwrap_or_default();
        if last.ends_with(';') && !last.contains(".await") {
            offences.push(format!("{}:{number}: nobody awaits this task: {}", file.path, line.trim()));
        }
    }
    offences
}

fn check_queues(file: &Source) -> Offences {
    static UNBOUNDED: LazyLock<Regex> = LazyLock::new(|| regex(r"\bunbounded(_channel)?\b"));
    file.matching(&UNBOUNDED, "a queue has a limit")
}

fn check_files(file: &Source) -> Offences {
    let Source { path, text } = file;
    let mut offences = Vec::new();
    let lines = file.lines().count();
    if lines > FILE_LINES_MAX && !LONGER_FILES.iter().any(|(excused, _)| excused == path) {
        offences.push(format!("{path}: {lines} lines, more than {FILE_LINES_MAX}"));
    }
    // The tests of a module are what their name says.
    if !text.starts_with("//! ") && !file.is_tests() {
        offences.push(format!("{path}: does not begin with what it is for"));
    }
    if path.ends_with("/mod.rs") {
        offences.push(format!("{path}: a module is `name.rs`, never `mod.rs`"));
    }
    offences
}

fn check_functions(file: &Source) -> Offences {
    let long = file.functions().into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
    long.filter(|function| !LONGER_FUNCTIONS.iter().any(|(excused, _)| *excused == function.name))
        .map(|function| {
            format!("{}:{}: `{}` has {} lines", file.path, function.line, function.name, function.lines)
        })
        .collect()
}

fn check_test_names(file: &Source) -> Offences {
    static NAME: LazyLock<Regex> =
        LazyLock::new(|| regex(r"#\[(?:tokio::)?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)"));
    NAME.captures_iter(&file.text)
        .map(|found| found[1].to_owned())
        .filter(|name| name.starts_with("test_") || !name.contains('_'))
        // The offending example of this very file stands in a string.
        .filter(|_| !file.path.ends_with("/tidy.rs"))
        .map(|name| format!("{}: the test `{name}` does not say what holds", file.path))
        .collect()
}

fn check_leftovers(file: &Source) -> Offences {
    // Put together from parts, or this line would be an offence itself.
    static LEFT: LazyLock<Regex> = LazyLock::new(|| {
        let words =
            ["TO_DO", "FIX_ME", "to_do!", "unimple_mented!", "d_bg!", "/wo_rk/", "/tmp/br_ief", "/ro_ot/"];
        regex(&words.map(|word| word.replace('_', "")).join("|"))
    });
    let lines = file.text.lines().enumerate().filter(|(_, line)| LEFT.is_match(line));
    lines.map(|(index, line)| format!("{}:{}: left over: {}", file.path, index + 1, line.trim())).collect()
}

/// The reasons that a file gives to callers, with its path: in a row of a reason table or in a verdict.
fn reasons(file: &Source) -> Vec<(String, String)> {
    static REASON: LazyLock<Regex> = LazyLock::new(|| {
        regex(r#"(?:\breason\(|\brow\(|\breason: |\bVerdict::new\([^"()]*,)\s*"([A-Z][A-Z0-9_]+)""#)
    });
    let code: Vec<&str> = file.code().map(|(_, line)| line).collect();
    let code = code.join("\n");
    REASON.captures_iter(&code).map(|reason| (reason[1].to_owned(), file.path.clone())).collect()
}

#[track_caller]
fn hold(rule: Rule) {
    none(source::program_sources().iter().flat_map(rule).collect());
}

#[track_caller]
fn none(offences: Offences) {
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

/// An excuse whose offence is gone has to go too.
#[track_caller]
fn still_needed(excuses: &[(&str, &str)], needed: impl Fn(&str) -> bool) {
    let stale = excuses.iter().filter(|(name, _)| !needed(name));
    none(stale.map(|(name, _)| format!("`{name}` needs no excuse any more")).collect());
}
