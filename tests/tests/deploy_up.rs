//! `deploy/up` as a person meets it: the first result, Ctrl-C, and everything that can be wrong on their machine.

use std::{
    env,
    ffi::OsString,
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
};

use axum::{Router, routing::post};
use tests::{
    program::{Running, deploy_up, without_configuration},
    repository::{self, printed},
};

#[test]
fn once_prints_a_result_that_names_files_of_the_repository_and_leaves_nothing_running() {
    let data = tempfile::tempdir().unwrap();

    let (status, text) = Running::start(deploy_up(data.path()).arg("--once")).end();

    assert!(status.success(), "{text}");
    let result = text.rsplit("summary").next().unwrap_or_default();
    let named = repository::files().into_iter().filter(|file| result.contains(file.as_str())).count();
    assert!(named > 0, "the result names no file:\n{text}");
    for line in ["REHEARSAL", "--url http://127.0.0.1:11434/v1", "OPENAI_API_KEY=", "ANTHROPIC_API_KEY="] {
        assert!(text.contains(line), "nothing is said of `{line}`:\n{text}");
    }
    nothing_listens(&text);
}

#[test]
fn ctrl_c_ends_both_services_cleanly() {
    let data = tempfile::tempdir().unwrap();
    let mut running = Running::start(&mut deploy_up(data.path()));
    running.line("both stay up");

    running.signal("INT");
    let (status, text) = running.end();

    assert!(status.success(), "{status}:\n{text}");
    nothing_listens(&text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_model_is_asked_by_its_url() {
    let answer = concat!(
        r#"data: {"id":"1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"finish_reason":null,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"submit_result","arguments":"{\"data\":{\"summary\":\"said by the model server\",\"files\":[]}}"}}]}}]}"#,
        "\n\n",
        r#"data: {"id":"1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"finish_reason":"tool_calls","delta":{}}]}"#,
        "\n\ndata: [DONE]\n\n",
    );
    let answer = move || async move { ([("content-type", "text/event-stream")], answer) };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/v1/chat/completions", post(answer))).await.unwrap();
    });
    let data = tempfile::tempdir().unwrap();
    let mut command = deploy_up(data.path());
    command.args(["--once", "--model", "local/anything", "--url", &url]);

    let (status, text) =
        tokio::task::spawn_blocking(move || Running::start(&mut command).end()).await.unwrap();

    assert!(status.success(), "{text}");
    assert!(text.contains("said by the model server"), "{text}");
    assert!(!text.contains("REHEARSAL"), "{text}");
    server.abort();
}

#[test]
fn a_taken_port_is_named() {
    // Whoever holds it, it is taken.
    let _taken = TcpListener::bind("127.0.0.1:7401");
    let data = tempfile::tempdir().unwrap();
    let mut command = Command::new("deploy/up");
    command.args(["--once", "--data"]).arg(data.path()).arg("--binaries").arg(repository::programs());

    refused(&mut command, 1, "port 7401 is taken");
}

#[test]
fn a_service_that_does_not_start_is_reported_with_its_own_words() {
    let data = tempfile::tempdir().unwrap();
    let mut command = deploy_up(data.path());
    command.env("ROSTER__LISTEM", "127.0.0.1:0");

    let text = refused(command.arg("--once"), 1, "the registry did not start");

    assert!(text.to_lowercase().contains("listem"), "{text}");
}

#[test]
fn a_machine_without_cargo_is_told_where_to_get_it() {
    let data = tempfile::tempdir().unwrap();
    let path: OsString = env::join_paths(
        env::split_paths(&env::var_os("PATH").unwrap()).filter(|directory| !directory.join("cargo").exists()),
    )
    .unwrap();
    let mut command = Command::new("deploy/up");
    command.args(["--once", "--free-ports", "--data"]).arg(data.path()).env("PATH", path);

    refused(&mut command, 2, "https://rustup.rs");
}

#[test]
fn wrong_usage_is_refused_before_anything_starts() {
    for (arguments, complaint) in [
        (&["--bogus"][..], "unknown argument `--bogus`"),
        (&["--data"], "--data needs a value"),
        (&["--config", "no/such/file"], "`no/such/file` cannot be read"),
        (&["--binaries", "no/such"], "no program no/such/registry-svc"),
        (&["--url", "http://127.0.0.1:1/v1"], "--url needs --model"),
        (&["--model", "qwen3"], "`qwen3` is not local/NAME"),
        (&["--model", "local/qwen3"], "needs --url"),
        (&["--model", "openai/gpt-5-mini"], "needs OPENAI_API_KEY"),
        (&["--model", "anthropic/claude-sonnet-4-5"], "needs ANTHROPIC_API_KEY"),
    ] {
        let mut command = Command::new("deploy/up");
        without_configuration(&mut command);
        refused(command.args(arguments), 2, complaint);
    }
}

#[track_caller]
fn refused(command: &mut Command, code: i32, complaint: &str) -> String {
    let outcome = repository::outcome(command);
    let text = printed(&outcome);
    assert_eq!(outcome.status.code(), Some(code), "{text}");
    assert!(text.contains(complaint), "`{complaint}` is not said:\n{text}");
    text
}

/// Fails when one of the addresses that were announced still answers.
#[track_caller]
fn nothing_listens(text: &str) {
    let announced: Vec<SocketAddr> = text
        .lines()
        .filter_map(|line| line.split_once(" ready on ")?.1.split(',').next()?.parse().ok())
        .collect();
    assert_eq!(announced.len(), 2, "{text}");
    for address in announced {
        assert!(TcpStream::connect(address).is_err(), "something still listens on {address}");
    }
}
