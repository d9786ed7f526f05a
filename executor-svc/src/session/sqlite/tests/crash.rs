//! A process that is killed in the middle of its appends: this test's own binary, run once more as the one that dies.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use super::*;

/// Appends that the process has to have answered before it is killed.
const ANSWERED_MIN: u64 = 200;

/// What the process says after each append, before the position.
const ANSWERED: &str = "answered ";

#[tokio::test]
async fn every_answered_append_is_there_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture"])
        .arg(concat!(module_path!(), "::appends_until_it_is_killed").split_once("::").unwrap().1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(victim.stdin.as_mut().unwrap(), "{}", directory.path().display()).unwrap();
    let mut said = BufReader::new(victim.stdout.take().unwrap()).lines().map(Result::unwrap);

    let id = said.find_map(|line| SessionId::parse(line.split_whitespace().last()?)).unwrap();
    let mut answered = 0;
    for line in said {
        // A kill in the middle of a line leaves a number that is too small, never one that is too large.
        let Some(position) = line.strip_prefix(ANSWERED).and_then(|rest| rest.parse().ok()) else { continue };
        answered = position;
        if answered >= ANSWERED_MIN {
            victim.kill().unwrap();
        }
    }
    let status = victim.wait().unwrap();
    let store = Store::open(directory.path(), Arc::new(|| Time(0))).unwrap();
    let records = store.records(&id, 0, usize::MAX).await.unwrap();

    assert!(status.code().is_none(), "it was killed, and did not end: {status}");
    assert!(answered >= ANSWERED_MIN);
    let kept = records.len() as u64;
    assert!(kept >= answered, "{answered} were answered and {kept} are there");
    assert!(records.iter().map(|stored| stored.position).eq(1..=kept));
    // Each step had two records.
    assert_eq!((kept - 3) % 2, 0, "a step is there whole or not at all");
    let worker = store.worker(&id).await.unwrap().unwrap();
    assert_eq!(u64::from(worker.usage.turns), (kept - 3) / 2, "the row stands where the log does");
}

/// The process that dies. Run by hand it has no directory, and does nothing.
#[tokio::test]
#[ignore = "run by the test above, with a directory on standard input"]
async fn appends_until_it_is_killed() {
    let mut directory = String::new();
    io::stdin().read_line(&mut directory).unwrap();
    if directory.trim().is_empty() {
        return;
    }
    let store = Store::open(Path::new(directory.trim()), Arc::new(|| Time(0))).unwrap();
    let mut worker = new(store.accept(acceptance()).await);
    worker.status = Status::Running;
    println!("{}", worker.id);
    let mut position = 3;
    loop {
        worker.usage.turns += 1;
        let records = vec![user("one"), user("two")];
        let append =
            Append { session: worker.id.clone(), expected: position, records, worker: worker.clone() };
        position = store.append(append).await.unwrap().position;
        println!("{ANSWERED}{position}");
    }
}
