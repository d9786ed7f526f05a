//! The references below `docs/` are generated; these tests fail when they are stale.

use std::fs;

use tests::repository;

/// Set to anything, it writes the files instead of comparing them.
const REWRITE: &str = "ROSTER_WRITE_DOCS";

#[test]
fn the_reference_of_the_configuration_is_what_the_structs_say() {
    let head = "# Configuration\n\n\
        Generated from the configuration structs; do not edit.\n\n\
        A value comes from the first of these that has it: flags, environment, file, defaults. In the environment a key of the\n\
        top level is `ROSTER__<KEY>`, one below is `ROSTER_<SECTION>__<KEY>`, and each further level follows behind `__`:\n\
        `ROSTER_WORKSPACES__DEFAULT__CWD`. Variables without `__` are not configuration. A list or a map may be written as YAML:\n\
        `[a, b]`. The file is YAML, so it may be JSON. In any value `${env:NAME}` and `${file:/path}` are replaced, and `$${` is\n\
        `${`. Durations are text such as `15s` or `2h`. Unknown keys are mistakes; all mistakes are listed at once, with their\n\
        places, and the exit is 2. `serve --print-config` prints the result with the origin of each value.\n";
    let sections = [registry_svc::config::reference(), executor_svc::config::reference()];

    check("docs/configuration.md", head, &sections);
}

#[test]
fn the_reference_of_the_errors_is_what_the_tables_say() {
    let head = "# Errors\n\n\
        Generated from the reason tables; do not edit.\n\n\
        A refusal is a `google.rpc.Status` with exactly one `ErrorInfo`: `reason` and `domain` as below, single values in\n\
        `metadata`. `BadRequest` names fields, `RetryInfo` says when to come back, `ResourceInfo` and `QuotaFailure` what it is\n\
        about. All of it is at most 4 KiB. Reasons and metadata keys do not change; texts may.\n";
    let sections = [registry_svc::grpc::status::reference(), executor_svc::grpc::status::reference()];

    check("docs/errors.md", head, &sections);
}

#[track_caller]
fn check(path: &str, head: &str, sections: &[String]) {
    let text = sections.iter().fold(head.to_owned(), |text, section| format!("{text}\n{section}"));
    let file = repository::root().join(path);
    if std::env::var_os(REWRITE).is_some() {
        fs::write(&file, text).expect("the reference is written");
        return;
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == text, "`{path}` is stale: run `{REWRITE}=1 cargo nextest run -p tests --test docs`");
}
