//! Trees of workers that end in every way, one after the other, for a while: nothing of them is left but their records.

use std::{
    fs,
    time::{Duration, Instant},
};

use executor_svc::limits::Bound;
use futures::stream::{self, StreamExt as _};
use proto::executor::v1::{
    Budget, SpawnRequest, SpawnStreamRequest, StopWorkerRequest,
    executor_service_client::ExecutorServiceClient, worker_event::Body,
};
use rusqlite::Connection;
use tests::{
    executor::{Executor, body, call},
    registry::Registry,
    scale,
};
use tokio::runtime::Handle;
use tonic::transport::Channel;

/// A parent with two children each; the word says how the children end.
const SCRIPT: &str = r#"
rules:
  - when: {agent: task, turn: 1, last: "^fine"}
    do:
      - call: {tool: AgentTool, arguments: {description: "a", subagent_type: quick_task, prompt: "fine a"}}
      - call: {tool: AgentTool, arguments: {description: "b", subagent_type: quick_task, prompt: "fails b"}}
  - when: {agent: task, turn: 1}
    do:
      - call: {tool: AgentTool, arguments: {description: "a", subagent_type: quick_task, prompt: "hangs a"}}
      - call: {tool: AgentTool, arguments: {description: "b", subagent_type: quick_task, prompt: "fine b"}}
  - when: {agent: quick_task, last: "^fails"}
    do:
      - error: {status: 400}
  - when: {agent: quick_task, last: "^hangs"}
    do:
      - delay: 600s
      - text: "never"
  - do:
      - delay: 20ms
      - text: "done"
"#;

/// How a tree is ended.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By itself.
    Fine,
    Stopped,
    CallerGone,
    OutOfTime,
}

const WAYS: [Way; 4] = [Way::Fine, Way::Stopped, Way::CallerGone, Way::OutOfTime];

/// Workers of one tree.
const TREE: usize = 3;

/// Trees at a time.
const AT_ONCE: usize = 20;

/// Memory that may be taken between the first part of the time and its end: pages and caches of the database, and what the
/// allocator keeps.
const GROWTH_MAX: u64 = 24 * 1024 * 1024;

/// What the process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    tasks: usize,
    files: usize,
    memory: u64,
}

impl Held {
    fn now() -> Self {
        let files = fs::read_dir("/proc/self/fd").expect("it is there").count();
        let status = fs::read_to_string("/proc/self/status").expect("it is there");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it says so");
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        Self { tasks: Handle::current().metrics().num_alive_tasks(), files, memory: kibibytes * 1024 }
    }
}

/// Runs one tree to its end in the eyes of its caller.
async fn run(mut client: ExecutorServiceClient<Channel>, way: Way) {
    let prompt = if matches!(way, Way::Fine) { "fine" } else { "hangs" };
    let budget = matches!(way, Way::OutOfTime).then(|| Budget {
        wall_time: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        ..Budget::default()
    });
    let spawn = SpawnRequest { budget, ..call("task", prompt) };
    let request = SpawnStreamRequest { spawn: Some(spawn) };
    let mut events = client.spawn_stream(request).await.expect("the spawn is accepted").into_inner();
    let mut children = 0;
    while let Some(response) = events.message().await.expect("the stream does not fail") {
        let event = response.event.expect("a message has an event");
        children += usize::from(matches!(body(&event), Body::ChildSpawned(_)));
        if children < TREE - 1 {
            continue;
        }
        match way {
            Way::CallerGone => return,
            Way::Stopped => {
                let request = StopWorkerRequest { worker_id: event.worker_id.clone(), ..Default::default() };
                client.stop_worker(request).await.expect("it is there");
            }
            Way::Fine | Way::OutOfTime => {}
        }
    }
    assert_eq!(children, TREE - 1, "{way:?}");
}

/// Runs trees in all ways for a time, and answers how many.
async fn run_for(executor: &Executor, time: Duration, trees_min: usize) -> usize {
    let began = Instant::now();
    let mut trees = 0;
    while began.elapsed() < time || trees < trees_min {
        let batch = (0..AT_ONCE).map(|index| run(executor.client.clone(), WAYS[index % WAYS.len()]));
        stream::iter(batch).for_each_concurrent(AT_ONCE, |tree| tree).await;
        trees += AT_ONCE;
    }
    trees
}

/// Waits until no row is open, and answers how many there are.
async fn all_closed(database: &Connection) -> (usize, Vec<(String, usize)>) {
    let number = |count: i64| usize::try_from(count).expect("a count");
    let count = |query: &str| {
        number(database.query_row(query, [], |count| count.get(0)).expect("the table is there"))
    };
    // Whoever is told to end does so at once; the last of them may still be at it.
    let deadline = Instant::now() + Duration::from_secs(30);
    while count("SELECT count(*) FROM workers WHERE is_open = 1") > 0 {
        assert!(Instant::now() < deadline, "rows stay open");
        tokio::task::yield_now().await;
    }
    let mut statement = database
        .prepare("SELECT coalesce(record ->> '$.stop_reason', 'none'), count(*) FROM workers GROUP BY 1 ORDER BY 1")
        .expect("the table is there");
    let reasons = statement.query_map([], |row| Ok((row.get(0)?, number(row.get(1)?))));
    let reasons = reasons.expect("it can be read");
    let reasons = reasons.collect::<Result<_, _>>().expect("it can be read");
    (count("SELECT count(*) FROM workers"), reasons)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trees_that_end_in_every_way_leave_nothing_behind() {
    let (seconds, workers_min) = (scale::scaled(8, 300), scale::scaled(120, 2_000));
    let registry = Registry::start().await;
    let executor = Executor::start_with(&registry, SCRIPT, |config| {
        config.limits.queue_length = Bound::Unlimited;
    })
    .await;
    let database = Connection::open(registry.directory.path().join("var/executor/sessions.sqlite")).unwrap();
    let time = Duration::from_secs(seconds as u64);

    let mut trees = run_for(&executor, time / 4, 0).await;
    all_closed(&database).await;
    let before = Held::now();
    trees += run_for(&executor, time / 4 * 3, workers_min / TREE).await;
    let (rows, reasons) = all_closed(&database).await;
    // What served a call ends a moment after its caller has seen the end.
    let deadline = Instant::now() + Duration::from_secs(30);
    while Held::now().tasks > before.tasks && Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    let after = Held::now();
    println!("{rows} workers in {trees} trees: {reasons:?}; {before:?}, then {after:?}");

    assert_eq!(rows, trees * TREE);
    assert!(reasons.len() >= 5, "they ended in every way: {reasons:?}");
    assert!(reasons.iter().all(|(reason, _)| reason != "none"), "{reasons:?}");
    assert!(after.tasks <= before.tasks && after.files <= before.files, "{before:?}, then {after:?}");
    assert!(after.memory < before.memory + GROWTH_MAX, "{before:?}, then {after:?}");
    executor.stop().await;
    registry.stop().await;
}
