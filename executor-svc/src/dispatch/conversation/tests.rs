//! Conversations over the real store, with a model that acts on what it is told.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::{
    clock::Clock,
    config::Config,
    definition::SpawnPolicy,
    double::{Acting, Agents, Core, Step, anybody, calls, definition, text},
    limits::Bound,
    model,
    session::{StopWish, sqlite::Store},
    worker::{Status, StopReason},
};

/// A kernel over a store in a directory of its own.
struct Stage {
    core: Core,
    store: Arc<Store>,
    directory: tempfile::TempDir,
}

impl Stage {
    fn new(act: impl Fn(&model::Turn<'_>) -> Step + Send + Sync + 'static) -> Self {
        Self::with(Config::default(), act)
    }

    fn with(config: Config, act: impl Fn(&model::Turn<'_>) -> Step + Send + Sync + 'static) -> Self {
        Self::inside(tempfile::tempdir().expect("a directory"), config, act)
    }

    fn inside(
        directory: tempfile::TempDir,
        config: Config,
        act: impl Fn(&model::Turn<'_>) -> Step + Send + Sync + 'static,
    ) -> Self {
        let clock = Clock::start();
        let store = Store::open(directory.path(), Arc::new(move || clock.now())).expect("a new store");
        let store = Arc::new(store);
        let agents = ["default", "explore", "task"].map(|name| (name.to_owned(), definition(name)));
        let model = Arc::new(Acting::new(act));
        let registry = Arc::new(Agents(agents.into()));
        let core = Core::start(config, clock, Arc::clone(&store), registry, model, Vec::new());
        Self { core, store, directory }
    }

    fn kernel(&self) -> &Arc<Kernel> {
        &self.core.kernel
    }

    /// Says something and waits for the end of the turn.
    async fn say(&self, session: Option<&SessionId>, message: &str) -> Worker {
        let turn = self.kernel().converse(&anybody(), talk(session, message)).await.expect("it is let in");
        turn.waiter.expect("it runs").closed().await
    }

    async fn end(self) -> tempfile::TempDir {
        self.core.end().await;
        self.store.close().await;
        self.directory
    }
}

fn talk(session: Option<&SessionId>, message: &str) -> Talk {
    Talk {
        workspace: None,
        session: session.cloned(),
        agent: None,
        message: message.to_owned(),
        locale: String::new(),
        request: None,
        plan_mode: false,
        output_schema: None,
        budget: Budget::default(),
        deadline: None,
    }
}

fn dispatching(id: &str, agent: &str, prompt: &str) -> Step {
    let arguments = json!({ "description": "d", "subagent_type": agent, "prompt": prompt }).to_string();
    Step::Reply(calls("", &[(id, "AgentTool", &arguments)]))
}

/// What the last message is.
fn last(turn: &model::Turn<'_>) -> String {
    match turn.messages.last().expect("a turn has a message") {
        Message::User { text } | Message::Assistant { text, .. } | Message::Tool { text, .. } => text.clone(),
    }
}

fn report(turn: &model::Turn<'_>) -> Value {
    serde_json::from_str(&last(turn)).unwrap_or_else(|error| panic!("{error}: {}", last(turn)))
}

#[tokio::test]
async fn a_session_is_kept_and_a_later_turn_sees_the_end_of_what_was_said() {
    let seen: Arc<Mutex<Vec<Vec<Message>>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let stage = Stage::new(move |turn| {
        noted.lock().push(turn.messages.to_vec());
        Step::Reply(text(&format!("answer to {}", last(turn))))
    });

    let root = stage.say(None, "0").await.id;
    for number in 1..30 {
        let turn = stage.say(Some(&root), &number.to_string()).await;
        assert_eq!((turn.id, turn.result), (root.clone(), format!("answer to {number}")));
        assert_eq!(turn.usage.turns, 1, "each turn counts for itself");
    }

    let seen = std::mem::take(&mut *seen.lock());
    assert_eq!(seen[1].len(), 3, "the first question, its answer, and the second");
    assert_eq!(seen[29].len(), EARLIER_MAX + 1, "the end of it");
    assert_eq!(seen[29][0], Message::User { text: "4".to_owned() });
    let kept = stage.kernel().log.root(&root).await.unwrap().unwrap();
    assert_eq!((kept.agent.as_str(), kept.usage.turns, kept.turn_running), ("default", 30, false));
    assert!(kept.close_time.is_none() && kept.open_workers == 0);
    stage.end().await;
}

#[tokio::test]
async fn one_turn_runs_at_a_time_and_a_stop_ends_it_and_leaves_the_session() {
    let stage = Stage::new(|turn| match last(turn).as_str() {
        "hang" => Step::Hang,
        _ => Step::Reply(text("done")),
    });
    let root = stage.say(None, "hello").await.id;
    let running = stage.kernel().converse(&anybody(), talk(Some(&root), "hang")).await.unwrap();
    let kept = stage.kernel().log.root(&root).await.unwrap().unwrap();
    assert_eq!((kept.turn_running, kept.open_workers), (true, 0));

    let refused = stage.kernel().converse(&anybody(), talk(Some(&root), "again")).await.unwrap_err();
    assert!(matches!(refused, Error::TurnInProgress(_)), "{refused}");
    let wish = StopWish { by: "somebody".to_owned(), reason: String::new() };
    let receipt = stage.kernel().stop(&root, wish.clone(), Some(Duration::from_secs(5))).await.unwrap();

    assert_eq!(receipt.entries.len(), 1);
    assert_eq!((&receipt.entries[0].worker, receipt.entries[0].after), (&root, Status::Killed));
    assert_eq!(running.waiter.unwrap().closed().await.stop_reason, Some(StopReason::Stopped));
    let receipt = stage.kernel().stop(&root, wish, None).await.unwrap();
    assert!(receipt.entries.is_empty(), "nothing runs any more");
    assert_eq!(stage.say(Some(&root), "hello").await.result, "done", "the wish was for the turn before");
    stage.end().await;
}

#[tokio::test]
async fn a_hundred_messages_at_once_make_one_turn() {
    let stage = Arc::new(Stage::new(|turn| match last(turn).as_str() {
        "race" => Step::Hang,
        _ => Step::Reply(text("done")),
    }));
    let root = stage.say(None, "hello").await.id;

    let racing = (0..100).map(|_| {
        let (kernel, root) = (Arc::clone(stage.kernel()), root.clone());
        async move { kernel.converse(&anybody(), talk(Some(&root), "race")).await }
    });
    let answers = futures::future::join_all(racing).await;

    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 99));
    assert!(lost.iter().all(|answer| matches!(answer, Err(Error::TurnInProgress(_)))));
    drop(won);
    stage.kernel().open.emptied().await;
    Arc::into_inner(stage).expect("nobody else has it").end().await;
}

#[tokio::test]
async fn the_same_request_finds_its_turn_while_it_runs_and_after_later_ones() {
    let stage = Stage::new(|turn| Step::Reply(text(&format!("answer to {}", last(turn)))));
    let request = |id: &str| Some(Request { id: id.to_owned(), content: [1; 32] });
    let ask = |session: Option<SessionId>, id: &str, message: &str| {
        let talk = Talk { request: request(id), ..talk(session.as_ref(), message) };
        async { stage.kernel().converse(&anybody(), talk).await.unwrap() }
    };

    let first = ask(None, "a", "one").await;
    first.waiter.expect("it runs").closed().await;
    let second = ask(Some(first.root.clone()), "b", "two").await;
    second.waiter.expect("it runs").closed().await;

    let again = ask(None, "a", "one").await;
    assert_eq!((&again.root, again.after), (&first.root, first.after), "no second session");
    assert!(again.waiter.is_none(), "it has ended");
    let again = ask(Some(first.root.clone()), "b", "two").await;
    assert_eq!(again.after, second.after);
    let other = Request { id: "a".to_owned(), content: [2; 32] };
    let refused = Talk { request: Some(other), ..talk(None, "three") };
    let refused = stage.kernel().converse(&anybody(), refused).await.unwrap_err();
    assert!(matches!(refused, Error::RequestIdReused(_)), "{refused}");
    stage.end().await;
}

#[tokio::test]
async fn a_coordinator_sends_further_messages_and_stops_workers_only_below_its_own_root() {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&told);
    let foreign: Arc<Mutex<String>> = Arc::default();
    let other = Arc::clone(&foreign);
    let stage = Stage::new(move |turn| match (turn.agent, turn.number) {
        ("explore" | "task", _) => Step::Reply(text(&format!("{} messages", turn.messages.len()))),
        ("default", 1) => dispatching("a", "explore", "Look."),
        ("default", 2) => {
            let arguments = json!({ "to": report(turn)["task_id"], "message": "And then?" }).to_string();
            Step::Reply(calls("", &[("b", "SendMessage", &arguments)]))
        }
        ("default", 3) => {
            let further = report(turn);
            noted.lock().push(further["result"].as_str().unwrap().to_owned());
            let stop = json!({ "task_id": further["task_id"] }).to_string();
            let foreign = json!({ "task_id": *other.lock() }).to_string();
            let send = json!({ "to": *other.lock(), "message": "Hello." }).to_string();
            Step::Reply(calls(
                "",
                &[("c", "TaskStop", &stop), ("d", "TaskStop", &foreign), ("e", "SendMessage", &send)],
            ))
        }
        _ => {
            let answers = turn.messages.iter().rev().take(3).map(|message| match message {
                Message::Tool { call_id, text, .. } => format!("{call_id} {text}"),
                other => panic!("{other:?}"),
            });
            noted.lock().extend(answers);
            Step::Reply(text("done"))
        }
    });
    let stranger = stage.kernel().dispatch(&anybody(), crate::double::call("Go."), None).await;
    let stranger = stranger.unwrap().waiter.unwrap().closed().await;
    *foreign.lock() = stranger.id.to_string();

    let turn = stage.say(None, "hello").await;

    assert_eq!((turn.status, turn.result.as_str()), (Status::Completed, "done"), "{}", turn.error);
    let mut told = std::mem::take(&mut *told.lock());
    told.sort();
    assert_eq!(told[0], "3 messages", "the further run sees what was said before");
    assert!(told[1].starts_with(r#"c {"stopped":[{"task_id":"worker-"#), "{told:?}");
    for (told, id) in [(&told[2], 'd'), (&told[3], 'e')] {
        assert_eq!(*told, format!("{id} session `{}` is not there", stranger.id));
    }
    let below = stage.kernel().log.descendants(&turn.id, 10).await.unwrap();
    assert_eq!(below.iter().map(|worker| worker.depth).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(below[1].continues.as_ref(), Some(&below[0].id));
    stage.end().await;
}

#[tokio::test]
async fn a_tool_that_an_agent_has_is_redirected_and_workers_have_no_such_tools() {
    let mut config = Config::default();
    config.tools.redirects = [("host_bash", "task"), ("gone_tool", "reviewer")]
        .map(|(tool, agent)| (tool.to_owned(), agent.to_owned()))
        .into();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let stage = Stage::with(config, move |turn| {
        noted.lock().extend(turn.tools.iter().map(|tool| format!("{} {}", turn.agent, tool.name)));
        match (turn.agent, turn.number) {
            ("default", 1) => Step::Reply(calls("", &[("a", "host_bash", "{}")])),
            ("default", 2) => {
                assert!(last(turn).contains("Use `AgentTool` with `subagent_type` `task`"), "{}", last(turn));
                dispatching("b", "task", "Do it.")
            }
            _ => Step::Reply(text("done")),
        }
    });

    stage.say(None, "hello").await;

    let seen = std::mem::take(&mut *seen.lock());
    for (tool, coordinator, worker) in [
        ("AgentTool", true, true),
        ("SendMessage", true, false),
        ("TaskStop", true, false),
        ("host_bash", true, false),
        // Its agent may not be spawned.
        ("gone_tool", false, false),
    ] {
        let has = |agent: &str| seen.contains(&format!("{agent} {tool}"));
        assert_eq!((has("default"), has("task")), (coordinator, worker), "{tool}");
    }
    stage.end().await;
}

#[tokio::test]
async fn budgets_and_limits_of_a_tree_count_in_one_turn() {
    let mut config = Config::default();
    config.limits.max_spawns_per_tree = Bound::Of(2);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&told);
    let stage = Stage::with(config, move |turn| match (turn.agent, turn.number) {
        ("default", number @ 1..=3) => {
            noted.lock().push(last(turn));
            dispatching(&format!("call-{number}"), "explore", &format!("Look {number} {}.", turn.prompt))
        }
        ("default", _) => {
            noted.lock().push(last(turn));
            Step::Reply(text("done"))
        }
        _ => Step::Reply(text("looked")),
    });

    let root = stage.say(None, "first").await.id;
    let turn = stage.say(Some(&root), "second").await;

    assert_eq!(turn.result, "done");
    let told = std::mem::take(&mut *told.lock());
    assert_eq!(told.len(), 8);
    for (index, answer) in told.iter().enumerate() {
        let is_refused = answer.contains("`max_spawns_per_tree` is used up");
        assert_eq!(is_refused, index % 4 == 3, "{index}: {answer}");
    }
    let budget = Budget { spawns: Some(0), ..Budget::default() };
    let frugal = Talk { budget, ..talk(Some(&root), "third") };
    let turn = stage.kernel().converse(&anybody(), frugal).await.unwrap();
    turn.waiter.unwrap().closed().await;
    let below = stage.kernel().log.descendants(&root, 10).await.unwrap();
    assert_eq!(below.len(), 4, "the third turn spawned nobody");
    stage.end().await;
}

#[tokio::test]
async fn plan_mode_of_a_turn_takes_spawning_and_writing_away() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let stage = Stage::new(move |turn| {
        noted.lock().extend(turn.tools.iter().map(|tool| tool.name.clone()));
        assert!(turn.system.contains("You are in plan mode."), "{}", turn.system);
        Step::Reply(text("a plan"))
    });

    let turn = stage.kernel().converse(&anybody(), Talk { plan_mode: true, ..talk(None, "plan") }).await;
    let turn = turn.unwrap().waiter.unwrap().closed().await;

    assert!(turn.plan_mode && turn.spawns == SpawnPolicy::None);
    assert!(!seen.lock().iter().any(|tool| tool == "AgentTool" || tool == "write"), "{seen:?}");
    stage.end().await;
}

#[tokio::test]
async fn refusals_start_nothing_and_say_why() {
    let stage = Stage::new(|_| Step::Reply(text("done")));
    let kernel = stage.kernel();
    let plain = kernel.dispatch(&anybody(), crate::double::call("Go."), None).await.unwrap();
    let plain = plain.waiter.unwrap().closed().await.root;
    let root = stage.say(None, "hello").await.id;
    let closed = stage.say(None, "hello").await.id;
    kernel.close_session(&closed, "somebody").await.unwrap();
    let agent = |name: &str| Some(name.to_owned());
    let narrow = Caller { spawns: Some(SpawnPolicy::Listed(vec!["explore".to_owned()])), ..anybody() };
    let somebody = Caller { operator: "somebody".to_owned(), is_anonymous: false, ..anybody() };

    for (caller, talk, text) in [
        (
            &anybody(),
            talk(Some(&plain), "a"),
            format!("session `{plain}` has no coordinator: its caller runs its own"),
        ),
        (&anybody(), talk(Some(&closed), "a"), format!("session `{closed}` is closed")),
        (&somebody, talk(Some(&root), "a"), format!("session `{root}` is not there")),
        (
            &anybody(),
            Talk { workspace: agent("other"), ..talk(Some(&root), "a") },
            format!("session `{root}` is not there"),
        ),
        (
            &anybody(),
            Talk { workspace: agent("other"), ..talk(None, "a") },
            "workspace `other` is not there".to_owned(),
        ),
        (
            &anybody(),
            Talk { agent: agent("task"), ..talk(Some(&root), "a") },
            "`agent`: the session runs under `default`".to_owned(),
        ),
        (
            &anybody(),
            Talk { agent: agent("reviewer"), ..talk(None, "a") },
            "Agent 'reviewer' is reserved and cannot be spawned.".to_owned(),
        ),
        (
            &anybody(),
            Talk { agent: agent("nobody"), ..talk(None, "a") },
            "Unknown agent \"nobody\".".to_owned(),
        ),
        (
            &narrow,
            Talk { agent: agent("task"), ..talk(None, "a") },
            "Cannot spawn 'task'. Allowed: explore".to_owned(),
        ),
        (
            &anybody(),
            Talk { output_schema: agent("{"), ..talk(None, "a") },
            "the output schema of the call is not usable".to_owned(),
        ),
        (
            &anybody(),
            Talk { budget: Budget { turns: Some(0), ..Budget::default() }, ..talk(None, "a") },
            "the budget `turns` is used up (request)".to_owned(),
        ),
    ] {
        let before = kernel.log.roots(Default::default()).await.unwrap().len();
        let refused = kernel.converse(caller, talk).await.unwrap_err();
        assert!(refused.to_string().starts_with(&text), "{refused}\n{text}");
        assert_eq!(kernel.log.roots(Default::default()).await.unwrap().len(), before);
    }
    assert!(kernel.converse(&narrow, talk(None, "a")).await.is_ok(), "its coordinator is a workspace's own");
    stage.end().await;
}

#[tokio::test]
async fn a_turn_that_an_executor_left_is_continued_by_the_next_one() {
    let stage = Stage::new(|turn| match (turn.agent, turn.number) {
        ("default", 1) => dispatching("a", "explore", "Look."),
        _ => Step::Hang,
    });
    let turn = stage.kernel().converse(&anybody(), talk(None, "hello")).await.unwrap();
    let mut events = stage.kernel().hub.follow(Arc::clone(&stage.kernel().log), &turn.root, 0);
    while let Some(update) = events.next().await.unwrap() {
        if let crate::live::Update::Event(event) = update
            && matches!(event.body, Body::ChildSpawned { .. })
        {
            break;
        }
    }
    // As a process that dies leaves its file: what is committed is there, and no more.
    let copy = tempfile::tempdir().unwrap();
    for name in ["sessions.sqlite", "sessions.sqlite-wal"] {
        std::fs::copy(stage.directory.path().join(name), copy.path().join(name)).unwrap();
    }
    let root = turn.root.clone();
    drop(turn);
    stage.kernel().shutdown.hurry();
    stage.end().await;

    let stage = Stage::inside(copy, Config::default(), |turn| match turn.agent {
        "default" => Step::Reply(text(report(turn)["result"].as_str().unwrap_or("again"))),
        _ => Step::Reply(text("looked")),
    });
    stage.kernel().open.emptied().await;
    let mut kept = stage.kernel().log.worker(&root).await.unwrap().unwrap();
    while !kept.status.is_final() {
        // Its supervisor may not have opened it yet.
        tokio::task::yield_now().await;
        kept = stage.kernel().log.worker(&root).await.unwrap().unwrap();
    }

    assert_eq!((kept.result.as_str(), kept.takeovers), ("looked", 1), "{}", kept.error);
    assert_eq!(stage.kernel().log.descendants(&root, 10).await.unwrap().len(), 1, "the same child");
    assert_eq!(stage.say(Some(&root), "{}").await.status, Status::Completed);
    stage.end().await;
}
