use std::{fs, pin::pin, task::Poll};

use futures::poll;
use serde_json::json;

use super::{Bash, Decoder};
use crate::tool::{Error, Tool, builtin::fixture::Fixture, limits::RESULT_MAX};

/// True when a process is there and no mere entry for its parent to read.
fn lives(process: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", process.trim()))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
}

#[tokio::test]
async fn a_command_answers_output_errors_and_status_in_order() {
    let fixture = Fixture::new(&[("a", "1"), ("b", "2")]);
    let bash = Bash::new();

    let text = fixture.ok(&bash, json!({"command": "ls; echo oops >&2; echo done; exit 3"})).await;
    let silent = fixture.ok(&bash, json!({"cmd": "true"})).await;
    let killed = fixture.ok(&bash, json!({"command": "printf x; kill -TERM $$"})).await;
    let input = fixture.ok(&bash, json!({"command": "cat"})).await;

    assert_eq!(text, "a\nb\noops\ndone\n(exit status 3)");
    assert_eq!(silent, "(exit status 0)");
    assert_eq!(killed, "x\n(signal: 15 (SIGTERM))");
    assert_eq!(input, "(exit status 0)", "there is no input to wait for");
    fixture.refused(&bash, json!({"command": ""}), "`command`").await;
    fixture.refused(&bash, json!({"command": "x", "timeout": 5}), "there is no argument `timeout`").await;
}

#[tokio::test]
async fn the_environment_is_clean_and_the_home_goes_with_the_call() {
    let fixture = Fixture::new(&[]);

    let text = fixture
        .ok(&Bash::new(), json!({"command": "env | cut -d= -f1 | sort; touch $HOME/x; echo $HOME"}))
        .await;

    let names: Vec<&str> = text.lines().filter(|line| !line.starts_with(['/', '('])).collect();
    let expected = ["HOME", "LANG", "PATH", "PWD", "ROSTER_CALL", "SHLVL", "TERM", "TMPDIR", "_"];
    assert_eq!(names, expected);
    let home = text.lines().find(|line| line.starts_with("/tmp/roster-")).unwrap();
    assert!(!fs::exists(home).unwrap());
}

#[tokio::test]
async fn nothing_is_left_running() {
    let fixture = Fixture::new(&[]);

    // In the background, out of the group, and out of it twice; the command ends when all three have come that far.
    let command = "
        run='echo $$ >> pids; exec sleep 1000'
        sh -c \"$run\" & setsid sh -c \"$run\" & (setsid setsid sh -c \"$run\" &)
        until [ \"$(cat pids | wc -l)\" = 3 ]; do :; done";
    let text = fixture.ok(&Bash::new(), json!({"command": command})).await;

    let pids = fixture.content("pids");
    let processes: Vec<&str> = pids.lines().collect();
    assert_eq!(processes.len(), 3, "{text}");
    assert!(processes.iter().all(|process| !lives(process)), "{text}");
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_nothing_running() {
    let fixture = Fixture::new(&[]);
    let bash = Bash::new();
    let arguments = json!({"command": "setsid sleep 1000 & echo $! $$ > new; mv new pids; wait"});

    {
        let mut call = pin!(bash.call(&fixture.context, &arguments));
        while !fixture.path("pids").exists() {
            assert!(matches!(poll!(&mut call), Poll::Pending));
            tokio::task::yield_now().await;
        }
        let pids = fixture.content("pids");
        assert!(pids.split_whitespace().all(lives), "{pids} run while the call does");
    }

    let pids = fixture.content("pids");
    assert!(!pids.split_whitespace().any(lives), "{pids}");
}

#[tokio::test]
async fn a_cancelled_call_ends() {
    let fixture = Fixture::new(&[]);
    fixture.context.cancel.cancel();

    let result = fixture.call(&Bash::new(), json!({"command": "sleep 1000"})).await;

    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
}

#[tokio::test]
async fn long_output_keeps_head_and_tail_and_endless_output_ends() {
    let fixture = Fixture::new(&[]);
    let bash = Bash::new();

    let long = fixture.ok(&bash, json!({"command": "seq 100000"})).await;
    let endless = fixture.ok(&bash, json!({"command": "yes"})).await;

    assert!(long.starts_with("1\n2\n") && long.ends_with("\n100000\n(exit status 0)"), "{long}");
    assert!(long.len() <= RESULT_MAX);
    assert!(endless.ends_with("bytes of output)"), "{endless}");
}

#[test]
fn characters_in_two_pieces_are_put_together() {
    let bytes = "aé😀\u{7}€".as_bytes();
    for split in 0..bytes.len() {
        let mut decoder = Decoder::default();
        let text = decoder.decode(&bytes[..split]) + &decoder.decode(&bytes[split..]) + &decoder.finish();
        assert_eq!(text, "aé😀\u{7}€", "split at {split}");
    }
    let mut decoder = Decoder::default();
    let text = decoder.decode(b"a\xff\xe2\x82") + &decoder.decode(b"\xac\xe2") + &decoder.finish();
    assert_eq!(text, "a\u{fffd}€\u{fffd}");
}
